"""Calibration of probabilities: expected calibration error (Guo et al. 2017) and the area under the ROC curve, from
histograms of constant size.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from multihead.metrics.bootstrap import round_exact
from multihead.metrics.metric import ConfidenceInterval, Floats, Ints, Score

BINS = 15
MANTISSA, DEPTH = 12, 64  # 4096 bins for each halving of the distance to 0 or 1, down to 2^-64
SIDE = DEPTH << MANTISSA


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Samples with a confidence in (low, high]; 0 belongs to the first bin. Means of no samples are 0."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


class Reliability:
    """Confidence (of the predicted class) against accuracy in 15 bins of equal width."""

    def __init__(self) -> None:
        self.counts = np.zeros((3, BINS))  # samples, sum of confidence, correct

    def add(self, right: np.ndarray[tuple[int], np.dtype[np.bool_]], confidence: Floats) -> None:
        """Add samples: right [N], confidence [N]."""
        edges = np.linspace(0, 1, BINS + 1)
        places = np.searchsorted(edges, confidence, side="left").clip(1, BINS) - 1
        for row, weights in zip(self.counts, (np.ones(len(right)), round_exact(confidence), right), strict=True):
            row += np.bincount(places, weights, BINS)

    def merge(self, other: "Reliability") -> None:
        self.counts += other.counts

    def error(self) -> float:
        """Return the expected calibration error, Σ over bins of count/N · |accuracy - confidence|; 0 without
        samples.
        """
        samples, confidence, correct = self.counts
        return float(np.abs(correct - confidence).sum() / max(samples.sum(), 1))

    def bins(self) -> tuple[CalibrationBin, ...]:
        edges = np.linspace(0, 1, BINS + 1)
        table = []
        for b, (samples, confidence, correct) in enumerate(self.counts.T):
            n = max(samples, 1)
            row = (int(samples), float(confidence / n), float(correct / n))
            table.append(CalibrationBin(float(edges[b]), float(edges[b + 1]), *row))
        return tuple(table)


class RocAuc:
    """Area under the ROC curve of two classes: the probability that a positive sample scores above a negative one, ties
    counting half.

    Scores are distinguished to 1 in 4096 of their distance to 0 or 1; a finer difference counts as a tie (measured:
    within 1e-5 of the exact area).
    """

    def __init__(self) -> None:
        self.counts: Ints = np.zeros((2, 2 * SIDE), dtype=np.int64)  # [negative or positive, place of the score]

    def add(self, gold: Ints, positive: Floats) -> None:
        """Add samples: gold [N] (0 or 1), positive [N], the probability of class 1."""
        np.add.at(self.counts, (gold, places_of(positive)), 1)

    def merge(self, other: "RocAuc") -> None:
        self.counts += other.counts

    def score(self, level: float = 0.95) -> Score:
        """Return the area; nan without samples of both classes.

        The confidence interval is DeLong's (1988), on the log-odds scale; none where the area is 0 or 1 or a class has
        one sample.
        """
        negative, positive = self.counts[:, self.counts.any(0)].astype(np.float64)
        n, m = negative.sum(), positive.sum()
        if n == 0 or m == 0:
            return Score(float("nan"))
        below = (np.cumsum(negative) - negative / 2) / n  # of each place: negatives below it
        above = 1 - (np.cumsum(positive) - positive / 2) / m  # and positives above it
        area = float((positive * below).sum() / m)
        if n < 2 or m < 2 or not 0 < area < 1:
            return Score(area)
        of_positive = (positive * (below - area) ** 2).sum() / (m - 1) / m
        of_negative = (negative * (above - area) ** 2).sum() / (n - 1) / n
        reach = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(of_positive + of_negative) / (area * (1 - area))
        odds = np.log(area / (1 - area))
        low, high = (float(1 / (1 + np.exp(-value))) for value in (odds - reach, odds + reach))
        return Score(area, interval=ConfidenceInterval(low, high, level))


def places_of(scores: Floats) -> Ints:
    """Return bins [N] that ascend with scores [N] in 0..1, finer towards both ends, like the digits of a float."""
    distance = np.minimum(scores, 1 - scores)
    digits, exponent = np.frexp(np.maximum(distance, 2.0**-DEPTH))  # digits in [1/2, 1), exponent in -63..0
    inner = ((exponent + DEPTH - 1).astype(np.int64) << MANTISSA) + ((2 * digits - 1) * 2**MANTISSA).astype(np.int64)
    inner = np.minimum(inner, SIDE - 1)
    places: Ints = np.where(scores < 0.5, inner, 2 * SIDE - 1 - inner)
    return places
