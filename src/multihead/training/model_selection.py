"""Which of a run's evaluations is the best: the one with the best score; of equal scores, the one with the lower
validation loss, where the task has one; of equal ones still, the later, which has learnt more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from multihead.metrics import Score


def mean_score(scores: Sequence[Score]) -> Score:
    """Of numbers from 0 to 1, whatever each is counted in; of losses as they are."""
    values = [score.value / 100 if score.unit == "percent" else score.value for score in scores]
    better = scores[0].better
    return Score(sum(values) / len(values), "share" if better == "higher" else "number", better)


def finite_or_none(value: float) -> float | None:
    """None for a score that is no number: of pairs that are all alike there is no correlation."""
    return None if math.isnan(value) else value


def is_better(score: Score, best: float | None) -> bool:
    """Is a score better than the best so far? Of a loss, the lower one is. Any number is better than none."""
    if best is None:
        return not math.isnan(score.value)
    return score.value > best if score.better == "higher" else score.value < best


def loss_of(scores: Mapping[str, Score]) -> float | None:
    """The validation loss; of several tasks, the sum of those that are known."""
    losses = [score.value for name, score in scores.items() if name.rpartition("/")[2] == "loss"]
    return finite_or_none(sum(losses)) if losses else None


def is_preferred(scores: Mapping[str, Score], main: str, best: Mapping[str, Any]) -> bool:
    """Is this evaluation to be kept instead of the best so far, {score, loss}, or {} if there is none?"""
    if not best or finite_or_none(scores[main].value) != best["score"]:
        return not best or is_better(scores[main], best["score"])
    loss, lowest = loss_of(scores), best.get("loss")
    return loss is None or lowest is None or loss <= lowest
