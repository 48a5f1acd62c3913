"""Retrieval metrics: recall at k, and the mean reciprocal rank of the first relevant item."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from multihead.metrics.bootstrap import Bootstrap, round_exact
from multihead.metrics.metric import BootstrapSample, Floats, Score
from multihead.metrics.precision_recall import ratio, with_intervals


def ranks_of(scores: ArrayLike, relevant: ArrayLike) -> list[list[int]]:
    """Return the ranks, from 1, of each query's relevant items by descending score; scores [N, M], relevant [N, M]
    (True).

    An irrelevant item with the same score ranks first, so that constant scores gain nothing.
    """
    values, right = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    if values.shape != right.shape or values.ndim != 2:
        raise ValueError(f"scores {values.shape} and relevant {right.shape}: expected twice [N, M]")
    if np.isnan(values).any():
        raise ValueError("a score is nan")
    order = np.lexsort((right, -values), axis=1)
    return [(np.flatnonzero(row) + 1).tolist() for row in np.take_along_axis(right, order, axis=1)]


class RetrievalMetric:
    """Recall at k (the share of relevant items among the first k) and mean reciprocal rank; a sample is a query."""

    def __init__(self, ks: Sequence[int] = (1, 5, 10), replicates: int = 1000, seed: int = 0) -> None:
        if min(ks, default=1) < 1:
            raise ValueError(f"k counts from 1, not {min(ks)}")
        self.ks = tuple(ks)
        self.bootstrap = Bootstrap(2 + len(self.ks), replicates, seed)  # queries, 1/rank, recall at each k

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return self.bootstrap.bootstrap_sample

    def add(self, ranks: Sequence[Sequence[int]], index: ArrayLike | None = None) -> None:
        """Add the ranks, from 1, of all relevant items of each query (`ranks_of`)."""
        stats = np.ones((len(ranks), 2 + len(self.ks)))
        for row, places in enumerate(ranks):
            if not len(places) or min(places) < 1:
                raise ValueError(f"query {row}: ranks are {list(places)}; use at least one, counted from 1")
            recalls = [sum(place <= k for place in places) / len(places) for k in self.ks]
            stats[row, 1:] = round_exact([1 / min(places), *recalls])
        self.bootstrap.add(stats, index)

    def merge(self, other: "RetrievalMetric") -> None:
        if self.ks != other.ks:
            raise ValueError(f"different k: {self.ks} and {other.ks}")
        self.bootstrap.merge(other.bootstrap)

    def result(self) -> dict[str, Score]:
        """Return mrr and recall@k."""
        return with_intervals(self._values(self.bootstrap.total), self.replicates())

    def replicates(self) -> dict[str, Floats]:
        return self.bootstrap.replicates(self._values)

    def _values(self, sums: Floats) -> dict[str, Floats]:
        names = ("mrr", *(f"recall@{k}" for k in self.ks))
        return {name: ratio(sums[..., 1 + i], sums[..., 0]) for i, name in enumerate(names)}
