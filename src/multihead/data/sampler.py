"""Which rows an epoch shows, block by block: a plan of batches takes about 80 bytes a row, so that of many millions of
rows only some are planned at a time.

Up to BLOCK rows, an epoch is one block. Of more, a block holds runs of neighbours (RUN rows) from all over the data,
other ones in every epoch; which, is worked out and not stored.
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
    """counts: the rows of each source; weights: how often an epoch shows them (2.3: all of them twice, and three tenths
    once more, drawn anew). Whole epochs without weights show every row once."""

    def __init__(self, counts: Sequence[int], weights: Sequence[float] | None, seed: int) -> None:
        self.counts, self.weights, self.seed = list(counts), weights, seed
        shares = [1.0] * len(self.counts) if weights is None else list(weights)
        self.whole = [int(share) for share in shares]
        more = [round((share - int(share)) * count) for share, count in zip(shares, self.counts, strict=True)]
        self.shown = [w * count + m for w, count, m in zip(self.whole, self.counts, more, strict=True)]
        self.runs = -(-sum(self.shown) // RUN)
        self.blocks = 1 if sum(self.shown) <= BLOCK else -(-self.runs * RUN // BLOCK)

    def rows(self, epoch: int, block: int) -> Indices:
        """The rows of a block, in rising order within each source's turn."""
        if self.blocks > 1:
            return self._to_rows(self._draw_numbers(epoch, block), epoch)
        every = np.arange(sum(self.counts))
        if self.weights is None:
            return every
        weights = np.repeat(np.asarray(self.weights, dtype=np.float64), self.counts)
        draws = np.random.Generator(np.random.PCG64([self.seed, epoch, 1])).random(len(weights))
        return np.repeat(every, (weights + draws).astype(np.int64))

    def _draw_numbers(self, epoch: int, block: int) -> Indices:
        """Numbers among all that an epoch shows."""
        first, stop = (self.runs * number // self.blocks for number in (block, block + 1))
        runs = np.sort(permute(np.arange(first, stop), self.runs, (self.seed, epoch)))
        chosen: Indices = (runs[:, None] * RUN + np.arange(RUN)).reshape(-1)
        return chosen[chosen < sum(self.shown)]

    def _to_rows(self, chosen: Indices, epoch: int) -> Indices:
        """Their rows: whole turns through a source, and then some of it that are drawn."""
        found = np.empty_like(chosen)
        starts, shown = np.cumsum([0, *self.counts]), np.cumsum([0, *self.shown])
        for source, count in enumerate(self.counts):
            mine = (chosen >= shown[source]) & (chosen < shown[source + 1])
            at = chosen[mine] - shown[source]
            drawn = at >= self.whole[source] * count
            at[drawn] = permute(at[drawn] - self.whole[source] * count, count, (self.seed + 1 + source, epoch))
            found[mine] = starts[source] + at % max(count, 1)
        return found
