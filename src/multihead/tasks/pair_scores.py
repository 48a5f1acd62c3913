"""Numeric labels of pairs: how similar two texts are, between two ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from multihead.metrics import Pearson, Score, Spearman
from multihead.metrics.row_buffer import RowBuffer
from multihead.tasks.task import Prediction, Scorer, Values


def share_of(label: Any, low: float, high: float) -> float:
    """Where a label stands between the ends of the training data, 0 to 1. (Outside them it can only be in data that
    nothing is learnt from: there, the label itself is scored, not its share.)"""
    if low == high:
        raise ValueError(f"every row of the training data has the score {low}; nothing can be learnt from that")
    with suppress(ValueError, TypeError):
        if math.isfinite(score := float(label)):
            return min(max((score - low) / (high - low), 0.0), 1.0)
    raise ValueError(f"the score {label!r} is no number")


def number(values: Values) -> float:
    """The label of a row, where it is a score."""
    with suppress(ValueError, TypeError):
        if math.isfinite(score := float(values["label"])):
            return score
    raise ValueError(f"{values['file']}:{values['line']}: the score is {values['label']!r}, which is no number")


class SimilarityScorer(Scorer):
    """Correlations of label and score. ends: of the labels; scale: from a score to a label. A row is right that is less
    than a tenth of the way between the ends off."""

    main = "spearman"

    def __init__(self, replicates: int, ends: tuple[float, float], scale: Callable[[float], float] = float) -> None:
        self.parts, self.scale = (Spearman(replicates=replicates), Pearson(replicates=replicates)), scale
        self.near = (ends[1] - ends[0]) / 10
        self.rows = RowBuffer(self._give)

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        gold, said = float(values["label"]), float(prediction["score"])
        self.rows.add(gold, said, index)
        return abs(gold - self.scale(said)) < self.near

    def result(self) -> dict[str, Score]:
        self.rows.flush()
        return {name: score for part in self.parts for name, score in part.result().items()}

    def _give(self, gold: list[float], said: list[float], index: list[int]) -> None:
        for part in self.parts:
            part.add(gold, said, index)
