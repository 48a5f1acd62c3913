"""The rows of an epoch, block by block: a plan of batches takes about 80 bytes per row, so that only some of many
millions of rows are planned at a time.

Up to BLOCK rows, an epoch is one block. Beyond, a block holds runs of neighbors (RUN rows) from all over the data,
different ones in every epoch; which ones is computed and not stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multihead.data.token_blocks import permute

BLOCK = 1 << 19  # rows
RUN = 1 << 6

Indices = NDArray[np.int64]


class EpochSampler:
    """The rows that an epoch shows.

    counts: the rows of each source.
    weights: how often an epoch shows them (2.3: all of them twice, and three tenths once more, drawn anew); None: once.
    """

    def __init__(self, counts: Sequence[int], weights: Sequence[float] | None, seed: int) -> None:
        self.counts, self.weights, self.seed = list(counts), weights, seed
        shares = [1.0] * len(self.counts) if weights is None else list(weights)
        self.whole = [int(share) for share in shares]
        more = [round((share - int(share)) * count) for share, count in zip(shares, self.counts, strict=True)]
        self.shown = [w * count + m for w, count, m in zip(self.whole, self.counts, more, strict=True)]
        self.runs = -(-sum(self.shown) // RUN)
        self.blocks = 1 if sum(self.shown) <= BLOCK else -(-self.runs * RUN // BLOCK)

    def rows(self, epoch: int, block: int) -> Indices:
        """Return the rows of a block, ascending within each source's pass."""
        if self.blocks > 1:
            return self._to_rows(self._draw_numbers(epoch, block), epoch)
        every = np.arange(sum(self.counts))
        if self.weights is None:
            return every
        weights = np.repeat(np.asarray(self.weights, dtype=np.float64), self.counts)
        draws = np.random.Generator(np.random.PCG64([self.seed, epoch, 1])).random(len(weights))
        return np.repeat(every, (weights + draws).astype(np.int64))

    def _draw_numbers(self, epoch: int, block: int) -> Indices:
        """Return numbers among all that an epoch shows."""
        first, stop = (self.runs * number // self.blocks for number in (block, block + 1))
        runs = np.sort(permute(np.arange(first, stop), self.runs, (self.seed, epoch)))
        chosen: Indices = (runs[:, None] * RUN + np.arange(RUN)).reshape(-1)
        return chosen[chosen < sum(self.shown)]

    def _to_rows(self, chosen: Indices, epoch: int) -> Indices:
        """Return the rows of these numbers: full passes over a source, then a random part of it."""
        rows = np.empty_like(chosen)
        starts, shown = np.cumsum([0, *self.counts]), np.cumsum([0, *self.shown])
        for source, count in enumerate(self.counts):
            selected = (chosen >= shown[source]) & (chosen < shown[source + 1])
            at = chosen[selected] - shown[source]
            drawn = at >= self.whole[source] * count
            at[drawn] = permute(at[drawn] - self.whole[source] * count, count, (self.seed + 1 + source, epoch))
            rows[selected] = starts[source] + at % max(count, 1)
        return rows
