"""Model selection: the best score wins; ties go to the lower validation loss, where the task has one, and then to the
later evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from multihead.metrics import Score


def mean_score(scores: Sequence[Score]) -> Score:
    """Return the mean of scores, each scaled to 0 to 1; of losses, unscaled."""
    values = [score.value / 100 if score.unit == "percent" else score.value for score in scores]
    better = scores[0].better
    return Score(sum(values) / len(values), "share" if better == "higher" else "number", better)


def finite_or_none(value: float) -> float | None:
    """Return None for an undefined score: constant pairs have no correlation."""
    return None if math.isnan(value) else value


def is_better(score: Score, best: float | None) -> bool:
    """Whether a score is better than the best so far; for a loss, lower is better. Any number is better than None."""
    if best is None:
        return not math.isnan(score.value)
    return score.value > best if score.better == "higher" else score.value < best


def loss_of(scores: Mapping[str, Score]) -> float | None:
    """Return the validation loss; for several tasks, the sum of the known ones."""
    losses = [score.value for name, score in scores.items() if name.rpartition("/")[2] == "loss"]
    return finite_or_none(sum(losses)) if losses else None


def is_preferred(scores: Mapping[str, Score], main: str, best: Mapping[str, Any]) -> bool:
    """Whether this evaluation replaces the best so far, {score, loss}, or {} if none."""
    if not best or finite_or_none(scores[main].value) != best["score"]:
        return not best or is_better(scores[main], best["score"])
    loss, lowest = loss_of(scores), best.get("loss")
    return loss is None or lowest is None or loss <= lowest
