"""Which heads, columns and units can go: the least needed first, by gradient, asked again after every step.

Every step is scored on the rows that choose; so the whole curve is known, and the budget picks a point on it.
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

ASKED = 512  # rows, evenly spread, that gradients are taken on
SEEN = 2048  # rows, likewise, that say how parts go together
STEP = 0.05  # of what may go, per step
FAR = 4.0  # budgets: where a step loses more than this many, the search ends


@dataclass(frozen=True)
class PruningStep:
    """One step of the search: what is off, what stays, and how it scores on the rows that choose."""

    off: tuple[str, ...]
    plan: PruningPlan
    heads: float  # share that is left
    flops: float  # share of the whole model's that is left
    score: Score
    loss: Difference  # positive: worse

    def upper_bound(self, times: float) -> float:
        """Points that other rows may lose; times: how many times as far as the end of the interval. Where no answer
        changed, the interval is all that may have been missed."""
        value, interval = self.loss.value, self.loss.interval
        if value == 0 and interval.low == -interval.high:
            times = 1.0
        return to_points(value + times * (interval.high - value), self.score)


class PruningSearch:
    """From the whole model down; `points` yields one step after another."""

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
        """ffn, columns: units, and columns of heads, may go too. fold: what is left takes over what it can."""
        self.model, self.task, self.metric = model, task, metric
        self.by_flops = ffn or columns  # what a share that is kept speaks of: the arithmetic, or heads
        self.asked = rows[:: max(1, len(rows) // ASKED)]
        sides = _sides(rows)
        self.sides = [make_batches(task, side) for side in sides]
        self.moments: MomentsByName | None = None
        self.others: list[MomentsByName | None] = [None] * len(sides)
        if fold:
            said = [measure_moments(model, task, side[:: max(1, len(rows) // SEEN)], columns) for side in sides]
            self.moments = {name: reduce(add, (one[name] for one in said)) for name in said[0]}
            self.others = [*reversed(said)]
        self.length = float(np.mean([len(window["tokens"]) for row in rows for window in row.windows]))
        self.size = size_of(model, self.length)
        self.whole = self._score_models([model] * len(sides))
        self.parts = RemainingParts(model, self.length, ffn, columns)

    def points(self, keep: float = 0.0, step: float = STEP) -> Iterator[PruningStep]:
        """The whole model, then always a little less of it, until this share is kept, or nothing more can go."""
        model, point = self.model, self._point(self.model, self.whole)
        yield point
        total = self.parts.cost()
        while (room := self._room(point, keep)) > 0 and self._remove(model, min(step * total, room)):
            plan = self.parts.plan()
            model, _ = apply_plan(self.model, plan, self.moments)
            point = self._point(
                model, self._score_models([apply_plan(self.model, plan, other)[0] for other in self.others])
            )
            yield point

    def _room(self, point: PruningStep, keep: float) -> float:
        """Arithmetic that may still go: of all of it, or of the heads by their number."""
        if self.by_flops:
            return (point.flops - keep) * self.size.flops
        heads = round(point.heads * self.size.heads) - round(keep * self.size.heads)
        return heads * min(map(self.parts.head_cost, self.parts.heads))

    def _score_models(self, models: Sequence[TaskModel]) -> Scorer:
        """A model for each side of the rows."""
        scorer, number = self.task.scorer(REPLICATES), 0
        for model, done in zip(models, self.sides, strict=True):
            number = add_predictions(model, self.task, done, scorer, number)
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
        """Takes out what is worth least for its cost, until `cost` is reached; False: nothing was left to take."""
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
    """Two halves, each to be scored with what the other says of taking over: with its own it would flatter. They are
    made of twenty stretches in turns, because neighbours (of one document, say) are alike."""
    stretch = max(1, len(rows) // 20)
    sides = [[row for i, row in enumerate(rows) if i // stretch % 2 == side] for side in (0, 1)]
    return [side for side in sides if side]


@dataclass(frozen=True)
class PruningBudget:
    """What may be lost, or how much shall stay."""

    metric: str | None = None
    points: float | None = None  # of 100; of a perplexity or a loss, as it is
    keep: float | None = None  # share

    @staticmethod
    def read(budget: str | None, keep: str | None) -> PruningBudget:
        """ "f1 -0.5" and "60%", as they are typed."""
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
            raise ValueError(f"keep {keep!r} is no share; write 60%") from None
        if not 0 < share <= 1:
            raise ValueError(f"keep {keep!r} lies outside 0 to 100 %")
        return PruningBudget(keep=share)


def safety_factor(choosing: int, judging: int) -> float:
    """How far a loss must stay within a budget on so many rows, in half-widths of its interval, that so many others
    hold the budget by the whole of theirs in nine of ten cases: theirs is as wide as their number makes it, and its
    middle lies off by the noise of both."""
    ratio = choosing / judging
    return ratio**0.5 + 1.2816 / 1.96 * (1 + ratio) ** 0.5


def select_step(
    search: PruningSearch, budget: PruningBudget, judging: int, on_step: Callable[[PruningStep], None] | None = None
) -> tuple[PruningStep, list[PruningStep]]:
    """The point of the curve that the budget allows, and the curve as far as it was followed. judging: how many other
    rows will judge it.

    The choice ends with the first step that those may find too dear; the curve goes on a little.
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
        # The whole model loses nothing, however few the rows.
        dear = dear or (budget.keep is None and point.plan != PruningPlan() and point.upper_bound(times) > allowed)
        if not dear:
            best = point
        elif to_points(point.loss.value, point.score) > FAR * allowed:
            break
    left = 0.0 if best is None else best.flops if search.by_flops else best.heads
    if budget.keep is not None and left > budget.keep + 0.05:
        raise ValueError(
            f"no less than {left:.0%} can stay: every attention keeps a head, "
            f"every head a quarter of its columns, every feed-forward layer {ROUND} units"
        )
    if best is None or best.plan == PruningPlan():
        first = curve[min(1, len(curve) - 1)]
        raise ValueError(
            f"nothing can go within {budget.points or 0:g} points for certain: the first step may lose "
            f"{first.upper_bound(times):.2f}, judged by the rows that choose; allow more, or give more rows"
        )
    return best, curve
