"""Which heads, columns and units can go: the least needed first, by gradient, asked again after every step.

Every step is scored on the rows that choose; so the whole curve is known, and the budget picks a point on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from multihead.heads.bill import size_of
from multihead.heads.cut import Cut, cut
from multihead.heads.gates import Gates
from multihead.heads.judge import Example, Work, evaluated, loss_of, points
from multihead.heads.moments import moments
from multihead.heads.parts import ROUND, Parts
from multihead.models import Model
from multihead.scores import Difference, Score
from multihead.tasks import Task

ASKED = 512  # rows, evenly spread, that gradients are taken on
SEEN = 2048  # rows, likewise, that say how parts go together
STEP = 0.05  # of what may go, per step
FAR = 4.0  # budgets: where a step loses more than this many, the search ends


@dataclass(frozen=True)
class Point:
    """One step of the search: what is off, what stays, and how it scores on the rows that choose."""

    off: tuple[str, ...]
    plan: Cut
    heads: float  # share that is left
    flops: float  # share of the whole model's that is left
    score: Score
    loss: Difference  # positive: worse


class Search:
    """From the whole model down; `points` yields one step after another."""

    def __init__(
        self,
        model: Model,
        task: Task,
        rows: Sequence[Example],
        done: Work,
        metric: str,
        *,
        ffn: bool = False,
        columns: bool = False,
        fold: bool = True,
    ) -> None:
        """ffn, columns: units, and columns of heads, may go too. fold: what is left takes over what it can."""
        self.model, self.task, self.done, self.metric = model, task, done, metric
        self.by_flops = ffn or columns  # what a share that is kept speaks of: the arithmetic, or heads
        self.asked = rows[:: max(1, len(rows) // ASKED)]
        self.moments = moments(model, task, rows[:: max(1, len(rows) // SEEN)], columns) if fold else None
        self.length = float(np.mean([len(window["tokens"]) for row in rows for window in row.windows]))
        self.size = size_of(model, self.length)
        self.whole = evaluated(model, task, done)
        self.parts = Parts(model, self.length, ffn, columns)

    def points(self, keep: float = 0.0, step: float = STEP) -> Iterator[Point]:
        """The whole model, then always a little less of it, until this share is kept, or nothing more can go."""
        model, point = self.model, self._point(self.model)
        yield point
        total = self.parts.cost()
        while (room := self._room(point, keep)) > 0 and self._remove(model, min(step * total, room)):
            model, _ = cut(self.model, self.parts.plan(), self.moments)
            point = self._point(model)
            yield point

    def _room(self, point: Point, keep: float) -> float:
        """Arithmetic that may still go: of all of it, or of the heads by their number."""
        if self.by_flops:
            return (point.flops - keep) * self.size.flops
        heads = round(point.heads * self.size.heads) - round(keep * self.size.heads)
        return heads * min(map(self.parts.head_cost, self.parts.heads))

    def _point(self, model: Model) -> Point:
        scorer = self.whole if model is self.model else evaluated(model, self.task, self.done)
        now = size_of(model, self.length)
        return Point(
            tuple(self.parts.off()),
            self.parts.plan(),
            now.heads / self.size.heads,
            now.flops / self.size.flops,
            scorer.result()[self.metric],
            loss_of(self.whole, scorer, self.metric),
        )

    def _remove(self, model: Model, cost: float) -> bool:
        """Takes out what is worth least for its cost, until `cost` is reached; False: nothing was left to take."""
        means = None if self.moments is None else self.parts.means(self.moments)
        gates = Gates(model, fine=True, keys=self.parts.columns, units=self.parts.ffn, means=means)
        gates.measure(self.task, self.asked)
        taken = 0.0
        for offer in self.parts.offers(gates, self.moments):
            if taken >= cost:
                break
            taken += offer.cost if offer.take() else 0.0
        return taken > 0


@dataclass(frozen=True)
class Budget:
    """What may be lost, or how much shall stay."""

    metric: str | None = None
    points: float | None = None  # of 100; of a perplexity or a loss, as it is
    keep: float | None = None  # share

    @staticmethod
    def read(budget: str | None, keep: str | None) -> Budget:
        """ "f1 -0.5" and "60%", as they are typed."""
        if (budget is None) == (keep is None):
            raise ValueError('give --budget "f1 -0.5" or --keep 60%, one of them')
        if budget is not None:
            name, _, number = budget.strip().rpartition(" ")
            try:
                points = abs(float(number.removesuffix("%")))
            except ValueError:
                raise ValueError(f'budget {budget!r} is not of the form "f1 -0.5": a score and points of 100') from None
            return Budget(name.strip() or None, points)
        assert keep is not None
        try:
            share = float(keep.removesuffix("%")) / (100 if keep.endswith("%") else 1)
        except ValueError:
            raise ValueError(f"keep {keep!r} is no share; write 60%") from None
        if not 0 < share <= 1:
            raise ValueError(f"keep {keep!r} lies outside 0 to 100 %")
        return Budget(keep=share)


def chosen(search: Search, budget: Budget, told: Callable[[Point], None] | None = None) -> tuple[Point, list[Point]]:
    """The point of the curve that the budget allows, and the curve as far as it was followed.

    A loss counts as within the budget if the whole of its interval is.
    """
    curve: list[Point] = []
    best: Point | None = None
    for point in search.points(budget.keep or 0.0):
        curve.append(point)
        if told is not None:
            told(point)
        allowed = budget.points or 0.0
        if budget.keep is not None or points(point.loss.interval.high, point.score) <= allowed:
            best = point
        elif points(point.loss.value, point.score) > FAR * allowed:
            break
    left = 0.0 if best is None else best.flops if search.by_flops else best.heads
    if budget.keep is not None and left > budget.keep + 0.05:
        raise ValueError(
            f"no less than {left:.0%} can stay: every attention keeps a head, "
            f"every head a quarter of its columns, every feed-forward layer {ROUND} units"
        )
    if best is None or best.plan == Cut():
        first = curve[min(1, len(curve) - 1)]
        high = points(first.loss.interval.high, first.score)
        raise ValueError(
            f"nothing can go within {budget.points or 0:g} points for certain: the first step may lose {high:.2f} "
            "on the rows that choose; allow more, or give more rows"
        )
    return best, curve
