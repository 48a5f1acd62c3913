"""How long the rows of token caches are, read from their offsets when asked: nothing is held that grows with the rows.

Behaves as an array [N], or of pairs [N, 2], as far as it is asked: len, max, sum, and numbers or slices of rows.
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
    """stores: one after the other. fields: one or two; joined: the lengths of both are added up."""

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
        """Of these rows, in their order; quick and small in memory where they rise."""
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
            mine = owner == number
            at = rows[mine] - self.starts[number]
            for side, field in enumerate(self.fields):
                offsets = self.stores[number].offsets[field]
                sides[mine, side] = offsets[at + 1] - offsets[at]
                release_pages(offsets)
        return sides.sum(1) if self.joined else sides
