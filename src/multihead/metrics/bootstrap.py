"""Streaming confidence intervals by Poisson bootstrap (Chamandy et al. 2012, "Estimating uncertainty for massive data
streams").

In each of R replicates a sample counts Poisson(1) times, and a metric is a function of weighted sums. The weights are a
pure function of (seed, sample index), by a counter-based generator (Philox, Salmon et al. 2011): order, batches, shards
and restarts do not matter, and two systems scored on the same samples get the same weights. Intervals are percentiles.
Where all samples agree (accuracy 1), every replicate agrees too and the interval has no width: overconfident for a
small set.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multihead.metrics.metric import BootstrapSample, ConfidenceInterval, Floats

# Of the 65,536 values of 16 random bits, how many give weight 0, 1, 2, …: Poisson(1), rounded so that mean
# and variance are exactly 1 (third and fourth moment: 5.001 and 15.01 instead of 5 and 15; at most 8).
SHARES = (24107, 24113, 12055, 4017, 1004, 201, 33, 5, 1)
LIMITS = np.cumsum(SHARES)[:-1].astype(np.uint16)
BLOCK = 256  # samples at a time: 1000 weights of each stay in the second-level cache
GAP = 16  # numbers apart within a run: a new generator costs as much as the weights of 15 samples
SMALL = 2**18  # products that OpenBLAS does in one thread: on busy cores its threads wait (measured: 6x slower)
GRAIN = 2.0**30


def round_exact(values: ArrayLike) -> Floats:
    """Round to multiples of 2^-30, so that sums (up to 2^23) are exact and do not depend on the order."""
    return np.round(np.asarray(values, dtype=np.float64) * GRAIN) / GRAIN


def poisson(first: int, stop: int, replicates: int, seed: int) -> NDArray[np.uint8]:
    """Return the weights [stop - first, R] of consecutive samples."""
    stride = -(-replicates // 16)  # the generator's counter steps by 4 words of 64 bits: 16 weights
    bits = np.random.Philox(key=seed, counter=first * stride).random_raw((stop - first) * stride * 4)
    draws = bits.astype("<u8", copy=False).view("<u2").reshape(stop - first, stride * 16)
    weights = np.zeros(draws.shape, dtype=np.uint8)
    for limit in LIMITS:  # as fast as looking up a table
        weights += draws >= limit
    return weights[:, :replicates]


def weights_of(index: NDArray[np.int64], replicates: int, seed: int) -> Floats:
    """Return the weights [N, R] of samples in ascending order."""
    weights = np.empty((len(index), replicates))
    starts = [0, *(np.flatnonzero(np.diff(index) > GAP) + 1).tolist(), len(index)]
    for start, stop in pairwise(starts):
        run = index[start:stop]
        weights[start:stop] = poisson(int(run[0]), int(run[-1]) + 1, replicates, seed)[run - run[0]]
    return weights


def percentile(replicates: Floats, level: float = 0.95) -> ConfidenceInterval:
    """Return the central `level` of replicates [R]; undefined ones (nan) are ignored."""
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, not {level}")
    defined = replicates[np.isfinite(replicates)]
    if not len(defined):
        return ConfidenceInterval(np.nan, np.nan, level)
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return ConfidenceInterval(float(low), float(high), level)


class Bootstrap:
    """Sums of statistics: `total` [n_stats] and, weighted, `sums` [R, n_stats], in constant memory.

    Integers are summed exactly, so merging is exact; other numbers (see `round_exact`) to about 1e-15.
    """

    def __init__(self, width: int, replicates: int = 1000, seed: int = 0) -> None:
        if width < 0 or replicates < 0 or seed < 0:
            raise ValueError(f"{width=}, {replicates=}, {seed=}: none may be negative")
        self.total: Floats = np.zeros(width)
        self.sums: Floats = np.zeros((replicates, width))
        self.drawings: Floats = np.zeros(replicates)  # samples drawn, each as often as it counts
        self.seed, self.samples, self.fingerprint = seed, 0, 0
        self.numbered = True  # by the caller; False: numbered here, in order of arrival

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return BootstrapSample(self.seed, len(self.sums), self.samples, self.fingerprint)

    def widen(self, width: int) -> None:
        """Add statistics, initially 0."""
        more = width - len(self.total)
        if not more:
            return
        self.total = np.pad(self.total, (0, more))
        self.sums = np.pad(self.sums, ((0, 0), (0, more)))

    def add(self, stats: ArrayLike, index: ArrayLike | None = None) -> None:
        """Add stats [N, n_stats]; index [N]: the samples' numbers in the dataset; None: they follow the previous
        ones.
        """
        stats = np.asarray(stats, dtype=np.float64)
        if stats.ndim != 2 or stats.shape[1] != len(self.total):
            raise ValueError(f"statistics of shape {stats.shape}; expected [N, {len(self.total)}]")
        if not np.isfinite(stats).all():
            raise ValueError("a statistic is nan or infinite")
        numbers = self.number(len(stats), index)
        self.total += stats.sum(0)
        if len(self.sums):
            order = np.argsort(numbers, kind="stable")
            for chunk in _blocks(order):
                self._add(stats[chunk], weights_of(numbers[chunk], len(self.sums), self.seed))

    def number(self, count: int, index: ArrayLike | None) -> NDArray[np.int64]:
        """Return the samples' numbers [N], checked and recorded."""
        if index is None:
            numbers = np.arange(self.samples, self.samples + count, dtype=np.int64)
            self.numbered = self.numbered and not count
        else:
            numbers = np.asarray(index)
            if numbers.shape != (count,) or (count and numbers.dtype.kind not in "iu"):
                raise ValueError(f"index of shape {numbers.shape} and type {numbers.dtype} for {count} samples")
            numbers = numbers.astype(np.int64)
            if count and numbers.min() < 0:
                raise ValueError(f"sample number {numbers.min()} is negative")
        self.samples += count
        self.fingerprint = (self.fingerprint + _fingerprint(numbers)) % 2**64
        return numbers

    def _add(self, stats: Floats, weights: Floats) -> None:
        self.drawings += weights.sum(0)
        used = np.flatnonzero(stats.any(0)) if stats.shape[1] > 16 else slice(None)  # few classes in one block
        step = max(32, SMALL // weights.shape[1] // max(1, stats.shape[1]))
        for start in range(0, len(stats), step):
            rows = slice(start, start + step)
            self.sums[:, used] += weights[rows].T @ stats[rows, used]

    def merge(self, other: "Bootstrap", columns: ArrayLike | None = None) -> None:
        """Add the sums of another bootstrap; its statistic j is our statistic columns[j]."""
        self.check_mergeable(other)
        places = np.arange(len(other.total)) if columns is None else np.asarray(columns, dtype=np.int64)
        self.total[places] += other.total
        self.sums[:, places] += other.sums
        self.note(other)

    def check_mergeable(self, other: "Bootstrap") -> None:
        """Raise ValueError unless the two can be merged."""
        if (self.seed, len(self.sums)) != (other.seed, len(other.sums)):
            raise ValueError("only scores with the same seed and number of replicates can be merged")
        if len(self.sums) and self.samples and other.samples and not (self.numbered and other.numbered):
            raise ValueError("to merge with intervals, give `index` to add: else both count their samples from 0")

    def note(self, other: "Bootstrap") -> None:
        """Count the samples of another bootstrap."""
        self.drawings += other.drawings
        self.numbered = self.numbered and other.numbered
        self.samples += other.samples
        self.fingerprint = (self.fingerprint + other.fingerprint) % 2**64

    def replicates(self, stats_fn: Callable[[Floats], dict[str, Floats]]) -> dict[str, Floats]:
        """Return stats_fn(sums), each [R]; nan where a replicate of a tiny set drew no sample; {} without
        replicates.
        """
        if not len(self.sums):
            return {}
        return {name: np.where(self.drawings > 0, value, np.nan) for name, value in stats_fn(self.sums).items()}


def _blocks(order: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(order), BLOCK):
        yield order[start : start + BLOCK]


def _fingerprint(numbers: NDArray[np.int64]) -> int:
    """Return the sum of a hash (splitmix64) of each number, modulo 2^64."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))
