"""Word alignment: which words of the source each written word came from, out of the cross-attention's weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multihead.tasks.words import WORDS, word_of

Span = tuple[int, int]


def links(source: str, read: Sequence[Span], target: str, written: Sequence[Span], weights: NDArray[Any]) -> list[Any]:
    """{source: [start, end], target: [start, end], score} for every word of the target, in its order.

    read, written: the characters of each token; weights [written, read]. A word of several tokens looks where they
    look on average; the score is the share of its attention that the chosen word gets.
    """
    ours, theirs = ([m.span() for m in WORDS.finditer(text)] for text in (target, source))
    if not ours or not theirs:
        return []
    of_target, of_source = word_of(written, ours), word_of(read, theirs)
    mass = np.zeros((len(ours), len(theirs)))
    for row, word in zip(weights, of_target, strict=True):
        if word >= 0:
            np.add.at(mass[word], of_source[of_source >= 0], row[of_source >= 0])
    found = []
    for word, row in enumerate(mass):
        if row.sum() > 0:
            best = int(row.argmax())
            share = round(float(row[best] / row.sum()), 4)
            found.append({"source": list(theirs[best]), "target": list(ours[word]), "score": share})
    return found


def places(texts: Sequence[str]) -> list[Span]:
    """The characters that each token added, from the texts of the beginnings of 0, 1, 2, … tokens."""
    ends = [len(text) for text in texts]
    return [(min(a, b), b) for a, b in pairwise(ends)]
