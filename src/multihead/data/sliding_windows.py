"""Overlapping windows over inputs longer than the model, and which window is responsible for which token.

A token belongs to the window where the nearer of its two cut edges is farthest away (the text's own ends are not cuts);
among equals to the earlier window. So every token has exactly one owner, and owners are ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]


def split_windows(length: int, size: int, overlap: int) -> list[Span]:
    """Return (start, stop) of windows of `size` tokens, with neighbors sharing `overlap`; the last moves back to be
    full.
    """
    if size < 1 or not 0 <= overlap < size:
        raise ValueError(f"a window of {size} cannot overlap by {overlap}; use 0 ≤ overlap < size")
    if length < 0:
        raise ValueError(f"length {length} is negative")
    if length <= size:
        return [(0, length)] if length else []
    starts = [*range(0, length - size, size - overlap), length - size]
    return [(start, start + size) for start in starts]


def core_spans(spans: Sequence[Span]) -> list[Span]:
    """Return the range that each window owns: neighbors meet in the middle of their overlap."""
    borders = [(start + stop + 1) // 2 for (_, stop), (start, _) in pairwise(spans)]
    if not spans:
        return []
    return list(zip([spans[0][0], *borders], [*borders, spans[-1][1]], strict=True))


def owner_windows(spans: Sequence[Span]) -> NDArray[np.int64]:
    """Return [length], the number of the window that owns each token."""
    return np.repeat(np.arange(len(spans)), [stop - start for start, stop in core_spans(spans)])


def merge_windows(spans: Sequence[Span], parts: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
    """Merge [size, …] per window to [length, …]: each token from its owner."""
    if len(spans) != len(parts) or not parts:
        raise ValueError(f"{len(parts)} arrays for {len(spans)} windows")
    cut = []
    for (start, stop), part, (first, last) in zip(spans, parts, core_spans(spans), strict=True):
        if len(part) != stop - start:
            raise ValueError(f"a window of {stop - start} tokens, but {len(part)} values for it")
        cut.append(part[first - start : last - start])
    return np.concatenate(cut)


def windowed_share(lengths: NDArray[np.integer], size: int) -> float:
    """Return the share of inputs that need more than one window."""
    return float((np.asarray(lengths) > size).mean()) if len(lengths) else 0.0
