"""Metrics of classifiers: one class per sample, or several (multi-label)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multihead.metrics.calibration import CalibrationBin, Reliability, RocAuc
from multihead.metrics.metric import BootstrapSample, Floats, Ints, Score
from multihead.metrics.precision_recall import ClassCounts, MetricTable, average_classes, ratio, with_intervals


def matthews(counts: Floats) -> Floats:
    """Return Matthews' correlation of any number of classes (Gorodkin 2004) from counts [..., C, 3]; nan where either
    side has one class only.
    """
    correct, predicted, gold = np.moveaxis(counts, -1, 0)
    n = gold.sum(-1)
    above = correct.sum(-1) * n - (predicted * gold).sum(-1)
    below = (n**2 - (predicted**2).sum(-1)) * (n**2 - (gold**2).sum(-1))
    return ratio(above, np.sqrt(below), np.nan)


def class_numbers(values: ArrayLike, classes: int, what: str) -> Ints:
    """Return class numbers [N], checked."""
    numbers = np.asarray(values)
    if numbers.size == 0:
        return np.zeros(0, dtype=np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ValueError(f"{what}: {numbers.dtype} of shape {numbers.shape}; expected class numbers [N]")
    wrong = numbers[(numbers < 0) | (numbers >= classes)]
    if len(wrong):
        raise ValueError(f"{what}: class {wrong[0]} is not among the {classes} classes; use 0 to {classes - 1}")
    return numbers.astype(np.int64)


class ClassificationMetric:
    """One class per sample: accuracy (= micro F1), macro and weighted F1, Matthews' correlation, confusion matrix; with
    probabilities also calibration and, for two classes, the area under the ROC curve.

    Memory: R x 3C for the intervals, C x C for the confusion matrix, 8 MB for the curve.
    """

    def __init__(self, labels: Sequence[str], replicates: int = 1000, seed: int = 0) -> None:
        self.tally = ClassCounts(labels, replicates, seed)
        self.confused = np.zeros((len(labels), len(labels)), dtype=np.int64)
        self.reliability = Reliability()
        self.curve: RocAuc | None = None
        self.positive: int | None = None  # of two classes, the one that f1 refers to and names; None: the second

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return self.tally.bootstrap.bootstrap_sample

    def add(
        self,
        gold: ArrayLike,
        predicted: ArrayLike,
        probabilities: ArrayLike | None = None,
        index: ArrayLike | None = None,
    ) -> None:
        """Add samples: gold [N], predicted [N], probabilities [N, C]."""
        C = len(self.tally.names)
        truth, guess = class_numbers(gold, C, "gold"), class_numbers(predicted, C, "predicted")
        if len(truth) != len(guess):
            raise ValueError(f"{len(truth)} gold classes, {len(guess)} predicted")
        class_probabilities = None if probabilities is None else _probabilities(probabilities, len(truth), C)
        rows = np.arange(len(truth))
        stats = np.zeros((len(truth), C, 3))
        stats[rows, guess, 1] = 1
        stats[rows, truth, 2] = 1
        stats[rows, truth, 0] = truth == guess
        self.tally.bootstrap.add(stats.reshape(len(truth), 3 * C), index)
        np.add.at(self.confused, (truth, guess), 1)
        if class_probabilities is not None:
            self.reliability.add(truth == guess, class_probabilities[rows, guess])
            if C == 2:
                self.curve = self.curve or RocAuc()
                self.curve.add(truth, class_probabilities[:, 1])

    def merge(self, other: "ClassificationMetric") -> None:
        if (self.tally.names, self.positive) != (other.tally.names, other.positive):
            raise ValueError("only scores of the same classes can be merged")
        self.tally.merge(other.tally)
        self.confused += other.confused
        self.reliability.merge(other.reliability)
        if other.curve is not None:
            self.curve = self.curve or RocAuc()
            self.curve.merge(other.curve)

    def result(self) -> dict[str, Score]:
        """Return accuracy, micro_f1, macro_f1, weighted_f1, mcc; ece (no interval: resampling biases it) and auc with
        probabilities; f1 of one class if there are two.
        """
        results = with_intervals(self._values(self.tally.counts), self.replicates())
        if "f1" in results:
            results["f1"] = replace(results["f1"], signature=f"of {self.tally.names[self._positive_class]}")
        results["mcc"] = Score(results["mcc"].value, "correlation", interval=results["mcc"].interval)
        if self.reliability.counts.any():
            results["ece"] = Score(self.reliability.error(), better="lower")
            if self.curve is not None:
                results["auc"] = self.curve.score()
        return results

    @property
    def _positive_class(self) -> int:
        """The class that f1 refers to, of two classes."""
        return 1 if self.positive is None else self.positive

    def replicates(self) -> dict[str, Floats]:
        return self.tally.replicates(self._values)

    def _values(self, counts: Floats) -> dict[str, Floats]:
        f1s = _f1s(counts)
        values = {"accuracy": f1s["micro_f1"], **f1s, "mcc": matthews(counts)}
        if counts.shape[-2] == 2:  # what MRPC and its kind report
            correct, predicted, gold = np.moveaxis(counts[..., self._positive_class, :], -1, 0)
            values["f1"] = ratio(2 * correct, predicted + gold, np.nan)
        return values

    def table(self) -> MetricTable:
        """Return one row per class, in the order of the labels."""
        return self.tally.table("classes", self.tally.names)

    def confusion(self) -> list[list[int]]:
        """Return counts [gold][predicted], in the order of the labels."""
        return [[int(count) for count in row] for row in self.confused]

    def bins(self) -> tuple[CalibrationBin, ...]:
        """Return the reliability table."""
        return self.reliability.bins()


def _probabilities(values: ArrayLike, samples: int, classes: int) -> Floats:
    class_probabilities = (
        np.asarray(values, dtype=np.float64).reshape(-1, classes) if samples == 0 else np.asarray(values)
    )
    if class_probabilities.shape != (samples, classes):
        raise ValueError(f"probabilities of shape {class_probabilities.shape}; expected {(samples, classes)}")
    if not ((class_probabilities >= 0) & (class_probabilities <= 1 + 1e-3)).all():
        raise ValueError("a probability is not between 0 and 1: are these logits?")
    return np.minimum(class_probabilities.astype(np.float64), 1.0)


def _f1s(counts: Floats) -> dict[str, Floats]:
    return {f"{name}_f1": average["f1"] for name, average in average_classes(counts).items()}


def _subset(counts: Floats) -> dict[str, Floats]:
    return {"subset_accuracy": ratio(counts[..., 0, 0], counts[..., 0, 2])}


def _flags(values: ArrayLike, classes: int, what: str) -> NDArray[np.bool_]:
    """Return flags [N, C], checked to be True or False."""
    flags = np.asarray(values) if np.size(values) else np.zeros((0, classes))
    if flags.shape != (len(flags), classes):
        raise ValueError(f"{what} of shape {flags.shape}; expected [N, {classes}]")
    if not np.isin(flags, (0, 1)).all():
        raise ValueError(f"{what} must be True or False for every label: apply the threshold first")
    return flags.astype(np.bool_)


class MultiLabelMetric:
    """Any number of labels per sample: micro, macro, weighted F1 and subset accuracy (all labels right)."""

    def __init__(self, labels: Sequence[str], replicates: int = 1000, seed: int = 0) -> None:
        self.tally = ClassCounts(labels, replicates, seed)
        self.whole = ClassCounts(["sample"], replicates, seed)  # correct: samples with all labels right

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return self.tally.bootstrap.bootstrap_sample

    def add(self, gold: ArrayLike, predicted: ArrayLike, index: ArrayLike | None = None) -> None:
        """Add samples: gold [N, C], predicted [N, C]; True where the label applies."""
        C = len(self.tally.names)
        truth, guess = _flags(gold, C, "gold"), _flags(predicted, C, "predicted")
        if len(truth) != len(guess):
            raise ValueError(f"{len(truth)} gold samples, {len(guess)} predicted")
        stats = np.stack((truth & guess, guess, truth), axis=-1)
        self.tally.bootstrap.add(stats.reshape(len(truth), 3 * C), index)
        right = (truth == guess).all(-1)
        self.whole.bootstrap.add(np.stack((right, np.ones_like(right), np.ones_like(right)), axis=-1), index)

    def merge(self, other: "MultiLabelMetric") -> None:
        if self.tally.names != other.tally.names:
            raise ValueError("only scores of the same labels can be merged")
        self.tally.merge(other.tally)
        self.whole.merge(other.whole)

    def result(self) -> dict[str, Score]:
        """Return micro_f1, macro_f1, weighted_f1, subset_accuracy."""
        return with_intervals(_f1s(self.tally.counts) | _subset(self.whole.counts), self.replicates())

    def replicates(self) -> dict[str, Floats]:
        return self.tally.replicates(_f1s) | self.whole.replicates(_subset)

    def table(self) -> MetricTable:
        """Return one row per label, in their order."""
        return self.tally.table("labels", self.tally.names)
