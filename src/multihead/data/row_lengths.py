"""Lengths of the rows of token caches, read from their offsets on demand, in constant memory.

Behaves like an array [N], or [N, 2] for pairs, as far as it is used: len, max, sum, and indexing by numbers or slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multihead.data.token_cache import TokenCache, release_pages

Indices = NDArray[np.int64]
AT_ONCE = 1 << 16  # rows


class RowLengths:
    """Lengths of the rows of several caches in sequence. fields: one or two; joined: the sum of both lengths."""

    def __init__(self, stores: Sequence[TokenCache], fields: Sequence[str], joined: bool = False) -> None:
        self.stores, self.fields = list(stores), list(fields)
        self.joined = joined or len(self.fields) == 1
        self.starts = np.cumsum([0, *map(len, self.stores)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def ndim(self) -> int:
        return 1 if self.joined else 2

    def __getitem__(self, rows: Any) -> Any:
        """Return the lengths of these rows, in their order; fast and small in memory where they ascend."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        if np.ndim(rows) == 0:
            return self[np.array([rows])][0]
        parts = [self._some(rows[i : i + AT_ONCE]) for i in range(0, max(len(rows), 1), AT_ONCE)]
        return np.concatenate(parts)

    def max(self) -> int:
        return max((int(part.max()) for part in self._blocks()), default=0)

    def sum(self) -> int:
        return sum(int(part.sum()) for part in self._blocks())

    def _blocks(self) -> Iterator[Indices]:
        for start in range(0, len(self), AT_ONCE):
            yield self._some(np.arange(start, min(start + AT_ONCE, len(self))))

    def _some(self, rows: Indices) -> Indices:
        sides = np.empty((len(rows), len(self.fields)), dtype=np.int64)
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        for number in np.unique(owner):
            selected = owner == number
            at = rows[selected] - self.starts[number]
            for side, field in enumerate(self.fields):
                offsets = self.stores[number].offsets[field]
                sides[selected, side] = offsets[at + 1] - offsets[at]
                release_pages(offsets)
        return sides.sum(1) if self.joined else sides
