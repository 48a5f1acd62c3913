"""Running text: documents one after the other in memory-mapped files of tokens, cut into windows of equal size.

Nothing here grows with the corpus: which window comes when is worked out, not stored, and pages of the files that
were read are given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multihead.data.token_cache import GIVE_BACK, release_pages

ROUNDS = 4  # of the permutation

RowNumbers = NDArray[np.int64]


class TokenBlocks:
    """Files of tokens as windows of size + 1 tokens, of which all but the first are to be foretold.

    weights: how often an epoch goes through each file. A pass through a file begins at its own place, so that windows
    are cut elsewhere each time; the first one begins at 0.
    """

    def __init__(self, files: Sequence[NDArray[Any]], size: int, weights: Sequence[float] | None = None) -> None:
        self.files, self.size = list(files), size
        if not self.files or any(len(file) < 2 for file in self.files):
            raise ValueError("there is nothing to train on: a file has fewer than two tokens")
        self.counts = [max(1, (len(file) - 1) // size) for file in self.files]  # windows of one pass
        shares = [1.0] * len(self.files) if weights is None else list(weights)
        self.shown = [max(1, round(share * count)) for share, count in zip(shares, self.counts, strict=True)]
        self.starts = np.cumsum([0, *(len(file) for file in self.files)])  # of each file among all tokens
        self.reads = 0

    def __len__(self) -> int:
        """Windows of an epoch."""
        return sum(self.shown)

    @property
    def sizes(self) -> RowNumbers:
        """How many tokens each window foretells; takes no memory."""
        longest = max(min(self.size, len(file) - 1) for file in self.files)
        return np.broadcast_to(np.int64(longest), (len(self),))

    def __getitem__(self, row: int) -> dict[str, NDArray[Any]]:
        """row: where the window begins, among all tokens."""
        file = int(np.searchsorted(self.starts, row, side="right")) - 1
        at = row - int(self.starts[file])
        tokens = np.array(self.files[file][at : at + self.size + 1], dtype=np.int32)
        self.reads += 1
        if self.reads % GIVE_BACK == 0:
            release_pages(*self.files)
        return {"tokens": tokens}

    def rows(self, epoch: int, first: int, stop: int, seed: int) -> RowNumbers:
        """Where the windows number first to stop of an epoch begin."""
        shuffled = permute(np.arange(first, min(stop, len(self)), dtype=np.int64), len(self), (seed, epoch))
        bounds = np.cumsum([0, *self.shown])
        file = np.searchsorted(bounds, shuffled, side="right") - 1
        window = shuffled - bounds[file]
        counts = np.array(self.counts)[file]
        # Epochs show a file `shown` windows each: the passes through it follow each other without a gap.
        number = epoch * np.array(self.shown)[file] + window
        turn = number // counts
        shift = np.where(
            turn == 0, 0, _splitmix64(turn.astype(np.uint64), seed + 7919 * file).astype(np.int64) % self.size
        )
        last = np.array([max(0, len(one) - 1 - self.size) for one in self.files])[file]
        at = np.minimum(number % counts * self.size + shift, last)
        found: RowNumbers = self.starts[file] + at
        return found


def permute(index: RowNumbers, count: int, key: tuple[int, int]) -> RowNumbers:
    """Where a permutation of 0 … count − 1 puts these numbers, without a table of it: a Feistel network on the next
    power of four, walked on from numbers that lie outside (Black and Rogaway 2002)."""
    half = max(1, (int(count - 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << half) - 1)
    secrets = np.random.SeedSequence(key).generate_state(ROUNDS, np.uint64)
    found = index.astype(np.uint64)
    outside = np.ones(len(found), dtype=bool)
    while outside.any():
        left, right = found[outside] >> np.uint64(half), found[outside] & mask
        for secret in secrets:
            left, right = right, left ^ (_splitmix64(right, int(secret)) & mask)
        found[outside] = (left << np.uint64(half)) | right
        outside = found >= count
    return found.astype(np.int64)


def _splitmix64(numbers: NDArray[np.uint64], key: Any) -> NDArray[np.uint64]:
    """splitmix64 of number and key."""
    with np.errstate(over="ignore"):
        z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.asarray(key).astype(np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
