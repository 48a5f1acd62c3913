"""Which rows are held out, and which are taken if not all are: pure functions of the text, so that equal texts never
stand on both sides, and a choice is the same on every machine.

Equal means equal but for case, white space and Unicode form: a row and its copy in capitals stay together.
"""

from __future__ import annotations

import hashlib
import heapq
import unicodedata
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

VALID = 0.1


def fold_text(text: str) -> str:
    """The text without case, compatibility forms (full-width letters) and differences of white space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def hash_fraction(text: str) -> float:
    """A number in [0, 1) that depends on the folded text alone: the same on every machine, in every version."""
    digest = hashlib.sha256(fold_text(text).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2.0**48


def is_valid(text: str, share: float = VALID) -> bool:
    """Does this text belong to the validation side?"""
    return hash_fraction(text) < share


def sample_key(text: str, number: int) -> int:
    """Sorts rows at random and always alike: by another hash of the folded text; copies by their numbers."""
    digest = hashlib.sha256(b"drawn\0" + fold_text(text).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") << 40 | number


def kth_smallest(places: Iterable[int], count: int) -> int | None:
    """The last of the `count` smallest; None if there are no more than that. Memory is of the count, not of all."""
    largest: list[int] = []  # a heap of negatives: its first is the largest kept
    more = False
    for place in places:
        if len(largest) < count:
            heapq.heappush(largest, -place)
        else:
            more = True
            heapq.heappushpop(largest, -place)
    return -largest[0] if more else None


def split(texts: Iterable[str], share: float = VALID) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers of the training and of the validation side, in their order."""
    if not 0 < share < 1:
        raise ValueError(f"the validation share lies between 0 and 1, not at {share}")
    valid = np.fromiter((is_valid(text, share) for text in texts), dtype=np.bool_)
    return np.flatnonzero(~valid), np.flatnonzero(valid)
