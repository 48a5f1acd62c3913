"""Numeric labels of text pairs: similarity scores on a bounded scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from multihead.metrics import Pearson, Score, Spearman
from multihead.metrics.row_buffer import RowBuffer
from multihead.tasks.task import Prediction, Scorer, Values


def share_of(label: Any, low: float, high: float) -> float:
    """Return where a label lies in the training range, 0 to 1. (Only evaluation data can lie outside of it; there, the
    label itself is scored, not its share.)"""
    if low == high:
        raise ValueError(f"every training example has the score {low}; provide examples with different scores")
    with suppress(ValueError, TypeError):
        if math.isfinite(score := float(label)):
            return min(max((score - low) / (high - low), 0.0), 1.0)
    raise ValueError(f"the score {label!r} is not a number")


def number(values: Values) -> float:
    """Return the label of an example as a number."""
    with suppress(ValueError, TypeError):
        if math.isfinite(score := float(values["label"])):
            return score
    raise ValueError(f"{values['file']}:{values['line']}: the score {values['label']!r} is not a number")


class SimilarityScorer(Scorer):
    """Correlation of labels and predicted scores. ends: the range of the labels; scale: converts a score to a label. A
    prediction within a tenth of the range counts as correct."""

    main = "spearman"

    def __init__(self, replicates: int, ends: tuple[float, float], scale: Callable[[float], float] = float) -> None:
        self.parts, self.scale = (Spearman(replicates=replicates), Pearson(replicates=replicates)), scale
        self.near = (ends[1] - ends[0]) / 10
        self.rows = RowBuffer(self._score_buffer)

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        gold, predicted = float(values["label"]), float(prediction["score"])
        self.rows.add(gold, predicted, index)
        return abs(gold - self.scale(predicted)) < self.near

    def result(self) -> dict[str, Score]:
        self.rows.flush()
        return {name: score for part in self.parts for name, score in part.result().items()}

    def _score_buffer(self, gold: list[float], predicted: list[float], index: list[int]) -> None:
        for part in self.parts:
            part.add(gold, predicted, index)
