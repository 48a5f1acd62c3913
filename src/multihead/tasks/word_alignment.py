"""Word alignment of source and target from cross-attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multihead.tasks.word_spans import WORDS

Span = tuple[int, int]


def link_words(
    source: str, read: Sequence[Span], target: str, written: Sequence[Span], weights: NDArray[Any]
) -> list[Any]:
    """Return {source: [start, end], target: [start, end], score} for every word of the target, in its order.

    read, written: the character span of each token; weights [written, read]. A word of several tokens has the mean of
    their attention, and a token of several words (Chinese characters, say) is a part of each; the score is the share of
    the attention that the chosen word gets.
    """
    ours, theirs = ([m.span() for m in WORDS.finditer(text)] for text in (target, source))
    if not ours or not theirs:
        return []
    mass = _shares(written, ours).T @ weights @ _shares(read, theirs)
    links = []
    for word, row in enumerate(mass):
        if row.sum() > 0:
            best = int(row.argmax())
            share = round(float(row[best] / row.sum()), 4)
            links.append({"source": list(theirs[best]), "target": list(ours[word]), "score": share})
    return links


def _shares(tokens: Sequence[Span], words: Sequence[Span]) -> NDArray[Any]:
    """Return the share of each token's characters in each word [tokens, words]."""
    a, b = np.array(tokens, dtype=float).reshape(-1, 2), np.array(words, dtype=float)
    both = np.minimum(a[:, 1:], b[None, :, 1]) - np.maximum(a[:, :1], b[None, :, 0])
    both = both.clip(min=0)
    return both / both.sum(1, keepdims=True).clip(min=1)


def token_spans(texts: Sequence[str]) -> list[Span]:
    """Return the character span that each token adds, from the texts of the prefixes of 0, 1, 2, … tokens."""
    ends = [len(text) for text in texts]
    return [(min(a, b), b) for a, b in pairwise(ends)]
