"""Pearson's and Spearman's correlation of gold and predicted scores; nan where one side is constant."""

import numpy as np
from numpy.typing import ArrayLike

from multihead.metrics.bootstrap import Bootstrap, percentile
from multihead.metrics.metric import BootstrapSample, Floats, Ints, Score


def pairs_of(gold: ArrayLike, predicted: ArrayLike) -> Floats:
    """Return pairs [2, N], checked."""
    truth, guess = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    if truth.shape != guess.shape or truth.ndim != 1:
        raise ValueError(f"shapes {truth.shape} and {guess.shape}: expected twice [N]")
    pairs = np.stack((truth, guess))
    if not np.isfinite(pairs).all():
        raise ValueError("a score is nan or infinite")
    return pairs


class Pearson:
    """Pearson's correlation by streaming means and co-moments (Chan, Golub, LeVeque 1983), stable where the mean is
    large relative to the spread.

    Merging agrees with a single pass to about 1e-14. The replicates sum squares about the first batch's mean.
    """

    def __init__(self, replicates: int = 1000, seed: int = 0) -> None:
        self.count = 0
        self.mean, self.moments = np.zeros(2), np.zeros((2, 2))  # about the center: the first batch's mean
        self.low, self.high = np.full(2, np.inf), np.full(2, -np.inf)
        self.center: Floats = np.zeros(2)
        self.bootstrap = Bootstrap(6, replicates, seed)  # 1, x, y, xx, yy, xy, also about the center

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return self.bootstrap.bootstrap_sample

    def add(self, gold: ArrayLike, predicted: ArrayLike, index: ArrayLike | None = None) -> None:
        """Add samples: gold [N], predicted [N]."""
        pairs = pairs_of(gold, predicted)
        if not pairs.shape[1]:
            return
        if not self.count:
            self.center = pairs.mean(1)
        near = pairs - self.center[:, None]
        x, y = near
        self.bootstrap.add(np.stack((np.ones_like(x), x, y, x * x, y * y, x * y), axis=1), index)
        mean = near.mean(1)
        apart = near - mean[:, None]
        self._join(pairs.shape[1], mean, apart @ apart.T)
        self._stretch(pairs.min(1), pairs.max(1))

    def _stretch(self, low: Floats, high: Floats) -> None:
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)

    def _join(self, count: int, mean: Floats, moments: Floats) -> None:
        both, step = self.count + count, mean - self.mean
        self.moments = self.moments + moments + np.outer(step, step) * (self.count * count / both)
        self.mean = self.mean + step * (count / both)
        self.count = both

    def merge(self, other: "Pearson") -> None:
        self.bootstrap.check_mergeable(other.bootstrap)
        if not other.count:
            return
        if not self.count:
            self.center = other.center
        moved = Bootstrap(6, len(other.bootstrap.sums), other.bootstrap.seed)
        a, b = other.center - self.center
        n, x, y, xx, yy, xy = other.bootstrap.sums.T
        columns = (n, x + a * n, y + b * n, xx + a * (2 * x + a * n), yy + b * (2 * y + b * n))
        moved.sums = np.stack((*columns, xy + a * y + b * x + a * b * n), axis=1)
        moved.note(other.bootstrap)
        self.bootstrap.merge(moved)
        self._join(other.count, other.mean + (other.center - self.center), other.moments)
        self._stretch(other.low, other.high)

    def result(self) -> dict[str, Score]:
        """Return pearson."""
        interval = percentile(self.replicates()["pearson"]) if self.bootstrap_sample.replicates else None
        (xx, xy), (_, yy) = self.moments
        value = float(_quotient(xy, xx, yy)) if (self.low < self.high).all() else float("nan")
        return {"pearson": Score(value, "correlation", interval=interval)}

    def replicates(self) -> dict[str, Floats]:
        return self.bootstrap.replicates(self._values)

    def _values(self, sums: Floats) -> dict[str, Floats]:
        n, x, y, xx, yy, xy = sums.T
        n = np.maximum(n, 1)
        a, b = xx - x * x / n, yy - y * y / n
        varied = (a > 1e-12 * xx) & (b > 1e-12 * yy)  # else nothing but rounding is left: one value, many times
        return {"pearson": np.where(varied, _quotient(xy - x * y / n, a, b), np.nan)}


def _quotient(xy: ArrayLike, xx: ArrayLike, yy: ArrayLike) -> Floats:
    """Return the co-moment over the root of the moments, within -1..1; nan where one is 0."""
    below = np.sqrt(np.maximum(xx, 0)) * np.sqrt(np.maximum(yy, 0))
    filled = np.full(np.shape(below), np.nan)
    quotient: Floats = np.clip(np.divide(xy, below, out=filled, where=below > 0), -1, 1)
    return quotient


class Spearman:
    """Pearson's correlation of the ranks; ties share their mean rank.

    Ranks need all values: they are stored as float32 (two of them and 8 bytes of index per sample, 16 MB per million),
    the precision of models; values that differ by less than 1 in 10 million become ties. Intervals by ordinary
    resampling, O(R·N) (1 million samples: a minute or two), over the samples in the order of their numbers.
    """

    def __init__(self, replicates: int = 1000, seed: int = 0) -> None:
        self.chunks: list[tuple[Ints, np.ndarray[tuple[int, int], np.dtype[np.float32]]]] = []
        self.numbers = Bootstrap(0, replicates, seed)  # counts samples; nothing is summed

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return self.numbers.bootstrap_sample

    def add(self, gold: ArrayLike, predicted: ArrayLike, index: ArrayLike | None = None) -> None:
        """Add samples: gold [N], predicted [N]."""
        pairs = pairs_of(gold, predicted)
        self.chunks.append((self.numbers.number(pairs.shape[1], index), pairs.astype(np.float32)))

    def merge(self, other: "Spearman") -> None:
        self.numbers.check_mergeable(other.numbers)
        self.numbers.note(other.numbers)
        self.chunks += other.chunks

    def result(self) -> dict[str, Score]:
        """Return spearman."""
        drawn = self.replicates()
        interval = percentile(drawn["spearman"]) if drawn else None
        x, y = self._groups()
        return {"spearman": Score(_of_ranks(x, y, np.ones(len(x))), "correlation", interval=interval)}

    def replicates(self) -> dict[str, Floats]:
        if not self.bootstrap_sample.replicates:
            return {}
        x, y = self._groups()
        values = np.full(self.bootstrap_sample.replicates, np.nan)
        draw = np.random.Generator(np.random.Philox(key=self.bootstrap_sample.seed))
        for r in range(len(values) if len(x) else 0):
            times = np.bincount(draw.integers(0, len(x), len(x)), minlength=len(x))
            values[r] = _of_ranks(x, y, times.astype(np.float64))
        return {"spearman": values}

    def _groups(self) -> tuple[Ints, Ints]:
        """Return for each sample, by ascending number, the index of its value among the sorted distinct values; x, y
        [N].
        """
        if not self.chunks:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        order = np.argsort(np.concatenate([numbers for numbers, _ in self.chunks]), kind="stable")
        x, y = np.concatenate([pairs for _, pairs in self.chunks], axis=1)[:, order]
        return np.unique(x, return_inverse=True)[1], np.unique(y, return_inverse=True)[1]


def _of_ranks(x: Ints, y: Ints, times: Floats) -> float:
    """Return Spearman's correlation of groups x [N], y [N], with multiplicities `times` [N]. No sorting: groups are in
    order.
    """
    ranks = []
    for group in (x, y):
        size = np.bincount(group, times)
        ranks.append((np.cumsum(size) - (size - 1) / 2)[group])
    middle = (times.sum() + 1) / 2  # the mean rank, ties or not
    a, b = ranks[0] - middle, ranks[1] - middle
    return float(_quotient((times * a * b).sum(), (times * a * a).sum(), (times * b * b).sum()))
