"""Tokenized running text with the characters and bytes that each token adds, for bits per character."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multihead.tasks.task import Values, content_span
from multihead.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ScoredText:
    """Tokens of a text under evaluation, and how many characters and bytes each of them adds."""

    tokens: NDArray[np.int32]
    characters: NDArray[np.int64]
    octets: NDArray[np.int64]


def score_text(tokenizer: Tokenizer, values: Values, stop: list[int]) -> ScoredText:
    """Tokenize a document, or a part of one: only the first and last part have the document's start and end tokens."""
    text = values["text"]
    encoding = tokenizer.encode(text)
    first, last = content_span(encoding.special)
    begins = values.get("at", 0) == 0
    ends = values.get("at", 0) + len(text) >= values.get("of", 0)
    head = encoding.ids[:first] if begins else []
    tail = stop if ends else []
    ids = encoding.ids[first:last]
    # A token adds the text between the previous token's end and its own; the last token takes the rest.
    bounds = np.array([0, *(end for _, end in encoding.offsets[first:last])], dtype=np.int64)
    if len(bounds) > 1:
        bounds[-1] = len(text)
    bounds = np.maximum.accumulate(bounds)
    sizes = _octets(text)
    pad = (np.zeros(len(head), np.int64), np.zeros(len(tail), np.int64))
    return ScoredText(
        np.array([*head, *ids, *tail], dtype=np.int32),
        np.concatenate((pad[0], np.diff(bounds), pad[1])),
        np.concatenate((pad[0], np.diff(sizes[bounds]), pad[1])),
    )


def _octets(text: str) -> NDArray[np.int64]:
    """Return the UTF-8 byte offset of each character [characters + 1]."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    sizes = 1 + (codes > 0x7F) + (codes > 0x7FF) + (codes > 0xFFFF)
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
