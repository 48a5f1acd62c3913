"""Running text for next-token prediction: documents in memory-mapped token files, cut into windows of equal size.

Nothing here grows with the corpus: the order of windows is computed, not stored, and pages of the files that were read
are released.
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
    """Token files as windows of size + 1 tokens, of which all but the first are predicted.

    weights: how many passes an epoch makes over each file. Each pass begins at a different offset, so that windows are
    cut differently each time; the first one begins at 0.
    """

    def __init__(self, files: Sequence[NDArray[Any]], size: int, weights: Sequence[float] | None = None) -> None:
        self.files, self.size = list(files), size
        if not self.files or any(len(file) < 2 for file in self.files):
            raise ValueError("nothing to train on: a file has fewer than two tokens; add text")
        self.counts = [max(1, (len(file) - 1) // size) for file in self.files]  # windows of one pass
        shares = [1.0] * len(self.files) if weights is None else list(weights)
        self.shown = [max(1, round(share * count)) for share, count in zip(shares, self.counts, strict=True)]
        self.starts = np.cumsum([0, *(len(file) for file in self.files)])  # of each file among all tokens
        self.reads = 0

    def __len__(self) -> int:
        """Return the number of windows of an epoch."""
        return sum(self.shown)

    @property
    def sizes(self) -> RowNumbers:
        """Number of predicted tokens of each window; takes no memory."""
        longest = max(min(self.size, len(file) - 1) for file in self.files)
        return np.broadcast_to(np.int64(longest), (len(self),))

    def __getitem__(self, row: int) -> dict[str, NDArray[Any]]:
        """Return a window; row: its start among all tokens."""
        file = int(np.searchsorted(self.starts, row, side="right")) - 1
        at = row - int(self.starts[file])
        tokens = np.array(self.files[file][at : at + self.size + 1], dtype=np.int32)
        self.reads += 1
        if self.reads % GIVE_BACK == 0:
            release_pages(*self.files)
        return {"tokens": tokens}

    def rows(self, epoch: int, first: int, stop: int, seed: int) -> RowNumbers:
        """Return the starts of windows number first to stop of an epoch."""
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
        last = np.array([max(0, len(tokens) - 1 - self.size) for tokens in self.files])[file]
        at = np.minimum(number % counts * self.size + shift, last)
        rows: RowNumbers = self.starts[file] + at
        return rows


def permute(index: RowNumbers, count: int, key: tuple[int, int]) -> RowNumbers:
    """Return the images of these numbers under a permutation of 0 … count − 1, without storing it.

    A Feistel network on the next power of four, repeated for numbers that fall outside (Black and Rogaway 2002).
    """
    half = max(1, (int(count - 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << half) - 1)
    secrets = np.random.SeedSequence(key).generate_state(ROUNDS, np.uint64)
    images = index.astype(np.uint64)
    outside = np.ones(len(images), dtype=bool)
    while outside.any():
        left, right = images[outside] >> np.uint64(half), images[outside] & mask
        for secret in secrets:
            left, right = right, left ^ (_splitmix64(right, int(secret)) & mask)
        images[outside] = (left << np.uint64(half)) | right
        outside = images >= count
    return images.astype(np.int64)


def _splitmix64(numbers: NDArray[np.uint64], key: Any) -> NDArray[np.uint64]:
    """Return splitmix64 of number and key."""
    with np.errstate(over="ignore"):
        z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.asarray(key).astype(np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
