"""Search for prunable heads, columns and units: least important first, by gradient, measured again after every step.

Every step is evaluated on the search rows; so the full curve is known, and the budget selects a point on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from multihead.metrics import Difference, Score
from multihead.models import TaskModel
from multihead.pruning.activation_stats import measure_moments
from multihead.pruning.candidates import ROUND, RemainingParts
from multihead.pruning.compensation import MomentsByName
from multihead.pruning.cost import size_of
from multihead.pruning.evaluation import REPLICATES, EncodedRow, add_predictions, make_batches, score_loss, to_points
from multihead.pruning.gradient_importance import HeadGates
from multihead.pruning.surgery import PruningPlan, apply_plan
from multihead.tasks import Scorer, Task

GRADIENT_ROWS = 512  # evenly spaced rows for gradients
MOMENT_ROWS = 2048  # evenly spaced rows for moments
STEP = 0.05  # share of prunable cost removed per step
FAR = 4.0  # the search ends where a step loses more than this many budgets


@dataclass(frozen=True)
class PruningStep:
    """One step of the search: what is off, what remains, and its score on the search rows."""

    off: tuple[str, ...]
    plan: PruningPlan
    heads: float  # share that remains
    flops: float  # share of the full model's that remains
    score: Score
    loss: Difference  # positive: worse

    def upper_bound(self, times: float) -> float:
        """Return the points that other rows may lose. times: multiple of the interval's half-width. If no prediction
        changed, the interval covers all that may have been missed."""
        value, interval = self.loss.value, self.loss.interval
        if value == 0 and interval.low == -interval.high:
            times = 1.0
        return to_points(value + times * (interval.high - value), self.score)


class PruningSearch:
    """Search from the full model downward; `points` yields one step after another."""

    def __init__(
        self,
        model: TaskModel,
        task: Task,
        rows: Sequence[EncodedRow],
        metric: str,
        *,
        ffn: bool = False,
        columns: bool = False,
        fold: bool = True,
    ) -> None:
        """Set up the search. ffn, columns: units, and columns of heads, may be removed too. fold: remaining parts
        compensate."""
        self.model, self.task, self.metric = model, task, metric
        self.by_flops = ffn or columns  # whether `keep` is a share of FLOPs or of heads
        self.asked = rows[:: max(1, len(rows) // GRADIENT_ROWS)]
        sides = _sides(rows)
        self.sides = [make_batches(task, side) for side in sides]
        self.moments: MomentsByName | None = None
        self.others: list[MomentsByName | None] = [None] * len(sides)
        if fold:
            measured = [
                measure_moments(model, task, side[:: max(1, len(rows) // MOMENT_ROWS)], columns) for side in sides
            ]
            self.moments = {name: reduce(add, (moments_[name] for moments_ in measured)) for name in measured[0]}
            self.others = [*reversed(measured)]
        self.length = float(np.mean([len(window["tokens"]) for row in rows for window in row.windows]))
        self.size = size_of(model, self.length)
        self.whole = self._score_models([model] * len(sides))
        self.parts = RemainingParts(model, self.length, ffn, columns)

    def points(self, keep: float = 0.0, step: float = STEP) -> Iterator[PruningStep]:
        """Yield the full model, then smaller ones, until the share `keep` remains, or nothing more can be removed."""
        model, point = self.model, self._point(self.model, self.whole)
        yield point
        total = self.parts.cost()
        while (room := self._room(point, keep)) > 0 and self._remove(model, min(step * total, room)):
            plan = self.parts.plan()
            model, _ = apply_plan(self.model, plan, self.moments)
            point = self._point(
                model, self._score_models([apply_plan(self.model, plan, moments_)[0] for moments_ in self.others])
            )
            yield point

    def _room(self, point: PruningStep, keep: float) -> float:
        """Return the FLOPs that may still be removed: of all, or of the heads by their number."""
        if self.by_flops:
            return (point.flops - keep) * self.size.flops
        heads = round(point.heads * self.size.heads) - round(keep * self.size.heads)
        return heads * min(map(self.parts.head_cost, self.parts.heads))

    def _score_models(self, models: Sequence[TaskModel]) -> Scorer:
        """Evaluate one model for each half of the rows."""
        scorer, number = self.task.scorer(REPLICATES), 0
        for model, batches in zip(models, self.sides, strict=True):
            number = add_predictions(model, self.task, batches, scorer, number)
        return scorer

    def _point(self, model: TaskModel, scorer: Scorer) -> PruningStep:
        now = size_of(model, self.length)
        return PruningStep(
            tuple(self.parts.off()),
            self.parts.plan(),
            now.heads / self.size.heads,
            now.flops / self.size.flops,
            scorer.result()[self.metric],
            score_loss(self.whole, scorer, self.metric),
        )

    def _remove(self, model: TaskModel, cost: float) -> bool:
        """Remove the least important parts per cost until `cost` is reached; False: nothing was left to remove."""
        means = None if self.moments is None else self.parts.means(self.moments)
        gates = HeadGates(model, fine=True, keys=self.parts.columns, units=self.parts.ffn, means=means)
        gates.measure(self.task, self.asked)
        taken = 0.0
        for offer in self.parts.candidates(gates, self.moments):
            if taken >= cost:
                break
            taken += offer.cost if offer.take() else 0.0
        return taken > 0


def _sides(rows: Sequence[EncodedRow]) -> list[Sequence[EncodedRow]]:
    """Split rows in two halves, each evaluated with the moments of the other: with its own, scores would be too good.
    They consist of twenty alternating blocks, because neighbors (of one document, say) are similar."""
    stretch = max(1, len(rows) // 20)
    sides = [[row for i, row in enumerate(rows) if i // stretch % 2 == side] for side in (0, 1)]
    return [side for side in sides if side]


@dataclass(frozen=True)
class PruningBudget:
    """Budget: the loss allowed, or the share to keep."""

    metric: str | None = None
    points: float | None = None  # of 100; a perplexity or a loss is unscaled
    keep: float | None = None  # share

    @staticmethod
    def read(budget: str | None, keep: str | None) -> PruningBudget:
        """Parse "f1 -0.5" and "60%" as typed."""
        if (budget is None) == (keep is None):
            raise ValueError('give --budget "f1 -0.5" or --keep 60%, one of them')
        if budget is not None:
            name, _, number = budget.strip().rpartition(" ")
            try:
                points = abs(float(number.removesuffix("%")))
            except ValueError:
                raise ValueError(f'budget {budget!r} is not of the form "f1 -0.5": a score and points of 100') from None
            return PruningBudget(name.strip() or None, points)
        assert keep is not None
        try:
            share = float(keep.removesuffix("%")) / (100 if keep.endswith("%") else 1)
        except ValueError:
            raise ValueError(f"keep {keep!r} is not a share; write 60%") from None
        if not 0 < share <= 1:
            raise ValueError(f"keep {keep!r} lies outside 0 to 100 %")
        return PruningBudget(keep=share)


def safety_factor(choosing: int, judging: int) -> float:
    """Return how far inside the budget a loss on `choosing` rows must stay, in half-widths of its interval, so that
    `judging` other rows hold the budget by their full interval in nine of ten cases: the width of their interval
    depends on their number, and its center is off by the noise of both."""
    ratio = choosing / judging
    return ratio**0.5 + 1.2816 / 1.96 * (1 + ratio) ** 0.5


def select_step(
    search: PruningSearch, budget: PruningBudget, judging: int, on_step: Callable[[PruningStep], None] | None = None
) -> tuple[PruningStep, list[PruningStep]]:
    """Return the point of the curve that the budget allows, and the curve as far as it was followed. judging: number of
    held-out rows.

    The choice ends at the first step that held-out rows may find too expensive; the curve continues a little.
    """
    times = safety_factor(sum(len(side.rows) for side in search.sides), judging)
    curve: list[PruningStep] = []
    best: PruningStep | None = None
    dear = False
    for point in search.points(budget.keep or 0.0):
        curve.append(point)
        if on_step is not None:
            on_step(point)
        allowed = budget.points or 0.0
        # The full model loses nothing, however few the rows.
        dear = dear or (budget.keep is None and point.plan != PruningPlan() and point.upper_bound(times) > allowed)
        if not dear:
            best = point
        elif to_points(point.loss.value, point.score) > FAR * allowed:
            break
    left = 0.0 if best is None else best.flops if search.by_flops else best.heads
    if budget.keep is not None and left > budget.keep + 0.05:
        raise ValueError(
            f"at least {left:.0%} must remain: every attention keeps a head, "
            f"every head a quarter of its columns, every feed-forward layer {ROUND} units"
        )
    if best is None or best.plan == PruningPlan():
        first = curve[min(1, len(curve) - 1)]
        raise ValueError(
            f"nothing can be removed safely within {budget.points or 0:g} points: the first step may lose "
            f"{first.upper_bound(times):.2f}, measured on the search rows; allow more points, or add rows"
        )
    return best, curve
