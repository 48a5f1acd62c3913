"""Precision, recall and F1 from counts.

precision = correct / predicted, recall = correct / gold, F1 = 2·correct / (predicted + gold). 0/0 is 0, in replicates
undefined. Averages are over the classes that occur in gold or predictions: micro sums the counts, macro is the plain
mean, weighted the mean by support (gold).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from multihead.metrics.bootstrap import Bootstrap, percentile
from multihead.metrics.metric import ConfidenceInterval, Floats, Score, Unit

AVERAGES = ("micro", "macro", "weighted")
KINDS = ("precision", "recall", "f1")


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One row of a table; interval: of F1."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int
    interval: ConfidenceInterval | None = None


@dataclass(frozen=True, slots=True)
class MetricTable:
    """One row per class, then the averages. note: the convention of the counts."""

    title: str
    rows: tuple[MetricRow, ...]
    averages: tuple[MetricRow, ...]
    note: str = ""


def ratio(above: Floats, below: Floats, empty: float = 0.0) -> Floats:
    """Return above / below; `empty` where it is 0/0."""
    return np.divide(above, below, out=np.full(np.broadcast(above, below).shape, empty), where=below != 0)


def by_class(counts: Floats, empty: float = 0.0) -> dict[str, Floats]:
    """Return precision, recall and f1, each [..., C], from counts [..., C, 3] (correct, predicted, gold)."""
    correct, predicted, gold = np.moveaxis(counts, -1, 0)
    return {
        "precision": ratio(correct, predicted, empty),
        "recall": ratio(correct, gold, empty),
        "f1": ratio(2 * correct, predicted + gold, empty),
    }


def average_classes(counts: Floats) -> dict[str, dict[str, Floats]]:
    """Return average -> precision, recall, f1, each [...], from counts [..., C, 3]; nan where there is nothing to
    average.
    """
    each = by_class(counts)
    present = (counts[..., 1] + counts[..., 2] > 0).astype(np.float64)
    weights = {"macro": present, "weighted": counts[..., 2]}
    averages = {
        name: {kind: ratio(_sum(value * weight), weight.sum(-1), np.nan) for kind, value in each.items()}
        for name, weight in weights.items()
    }
    micro = {kind: value[..., 0] for kind, value in by_class(counts.sum(-2, keepdims=True), np.nan).items()}
    return {"micro": micro, **averages}


def _sum(values: Floats) -> Floats:
    """Return the sum over the last axis, bit-identical for any order of classes."""
    total: Floats = np.sort(values, axis=-1).sum(-1)
    return total


class ClassCounts:
    """Correct, predicted and gold counts of named classes, for a dataset and its replicates.

    New names may occur at any time. Memory: R x 3C.
    """

    def __init__(self, names: Sequence[str] = (), replicates: int = 1000, seed: int = 0) -> None:
        self.places = {name: place for place, name in enumerate(names)}
        if len(self.places) != len(names):
            raise ValueError("two classes have the same name")
        self.bootstrap = Bootstrap(3 * len(names), replicates, seed)

    @property
    def names(self) -> list[str]:
        return list(self.places)

    @property
    def counts(self) -> Floats:
        """Counts [C, 3]."""
        return self._counts(self.bootstrap.total)

    def replicates(self, values: Callable[[Floats], dict[str, Floats]]) -> dict[str, Floats]:
        """Return values(counts [R, C, 3]), each [R]."""
        return self.bootstrap.replicates(lambda sums: values(self._counts(sums)))

    def _counts(self, sums: Floats) -> Floats:
        return sums.reshape(*sums.shape[:-1], len(self.places), 3)

    def add(self, samples: Sequence[Sequence[Iterable[str]]], index: ArrayLike | None = None) -> None:
        """Add three lists of names per sample: correct, predicted, gold; a name counts as often as it occurs."""
        events = [
            (row, 3 * self.place(name) + kind)
            for row, lists in enumerate(samples)
            for kind, names in enumerate(lists)
            for name in names
        ]
        stats = np.zeros((len(samples), 3 * len(self.places)))
        if events:
            np.add.at(stats, tuple(np.array(events).T), 1)
        self.bootstrap.widen(stats.shape[1])
        self.bootstrap.add(stats, index)

    def place(self, name: str) -> int:
        return self.places.setdefault(name, len(self.places))

    def merge(self, other: "ClassCounts") -> None:
        self.bootstrap.check_mergeable(other.bootstrap)
        places = [self.place(name) for name in other.places]
        self.bootstrap.widen(3 * len(self.places))
        self.bootstrap.merge(other.bootstrap, [3 * place + kind for place in places for kind in range(3)])

    def table(self, title: str, order: Sequence[str] | None = None, note: str = "") -> MetricTable:
        """Return the classes that occur, in the given order (else by name), and the averages."""
        counts, names = self.counts, sorted(self.places) if order is None else order
        each, drawn = by_class(counts), self._counts(self.bootstrap.sums)
        f1s = np.where(drawn[..., 1:].any(-1), by_class(drawn)["f1"], np.nan)  # nan: the replicate lacks the class
        rows = []
        for name in names:
            c = self.places[name]
            if counts[c].any():
                interval = percentile(f1s[:, c]) if len(f1s) else None
                values = [float(each[kind][c]) for kind in KINDS]
                rows.append(MetricRow(name, values[0], values[1], values[2], int(counts[c, 2]), interval))
        return MetricTable(title, tuple(rows), self._averages(), note)

    def _averages(self) -> tuple[MetricRow, ...]:
        values = average_classes(self.counts)
        drawn = self.replicates(
            lambda counts: {name: average["f1"] for name, average in average_classes(counts).items()}
        )
        support = int(self.counts[:, 2].sum())
        f1s, rows = with_intervals({name: values[name]["f1"] for name in AVERAGES}, drawn), []
        for name in AVERAGES:
            p, r, f = (float(np.nan_to_num(values[name][kind])) for kind in KINDS)
            rows.append(MetricRow(name, p, r, f, support, f1s[name].interval))
        return tuple(rows)


def with_intervals(values: dict[str, Floats], replicates: dict[str, Floats], unit: Unit = "share") -> dict[str, Score]:
    """Return scores with the confidence intervals of their replicates.

    An undefined score, 0/0, is 0. A replicate in which it is undefined, since it drew none of the few relevant samples,
    is ignored, unless it is undefined in the full dataset too.
    """
    scores = {}
    for name, value in values.items():
        drawn = replicates.get(name)
        if drawn is not None and not np.isfinite(value):
            drawn = np.nan_to_num(drawn)
        interval = None if drawn is None else percentile(drawn)
        scores[name] = Score(float(np.nan_to_num(value)), unit, interval=interval)
    return scores
