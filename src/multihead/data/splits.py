"""Selection of held-out and sampled examples as pure functions of the text, so that equal texts never cross splits, and
the choice is the same on every machine.

Equality ignores case, white space and Unicode form: an example and its copy in capitals stay together.
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
    """Return the text without case, compatibility forms (full-width letters) and differences of white space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def hash_fraction(text: str) -> float:
    """Return a number in [0, 1) that depends on the folded text alone, on every machine and in every version."""
    digest = hashlib.sha256(fold_text(text).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2.0**48


def is_valid(text: str, share: float = VALID) -> bool:
    """Return whether a text belongs to the validation split."""
    return hash_fraction(text) < share


def sample_key(text: str, number: int) -> int:
    """Return a sort key that is random but reproducible: another hash of the folded text; copies by their numbers."""
    digest = hashlib.sha256(b"drawn\0" + fold_text(text).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") << 40 | number


def kth_smallest(places: Iterable[int], count: int) -> int | None:
    """Return the last of the `count` smallest, in O(count) memory; None if there are no more than that."""
    largest: list[int] = []  # a heap of negatives: its first is the largest retained
    more = False
    for place in places:
        if len(largest) < count:
            heapq.heappush(largest, -place)
        else:
            more = True
            heapq.heappushpop(largest, -place)
    return -largest[0] if more else None


def split(texts: Iterable[str], share: float = VALID) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row numbers of the training and of the validation split, in their order."""
    if not 0 < share < 1:
        raise ValueError(f"the validation share is {share}; use a number between 0 and 1")
    valid = np.fromiter((is_valid(text, share) for text in texts), dtype=np.bool_)
    return np.flatnonzero(~valid), np.flatnonzero(valid)
