"""Which heads and units can go: the least needed first, by gradient, asked again after every step.

What a part is worth is divided by what it costs (its arithmetic), so that heads and units compete fairly. Every step
is scored on the rows that choose; so the whole curve is known, and the budget picks a point on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.heads.bill import size_of
from multihead.heads.cut import Cut, Numbers, configs, cut, cut_of
from multihead.heads.gates import Gates
from multihead.heads.judge import Example, Work, evaluated, loss_of, points
from multihead.heads.moments import moments
from multihead.models import Block, Model
from multihead.scores import Difference, Score
from multihead.tasks import Task
from multihead.watch import attentions, numbers

ASKED = 512  # rows, evenly spread, that gradients are taken on
SEEN = 2048  # rows, likewise, that say how parts go together
STEP = 0.05  # of what may go, per step
ROUND = 16  # units: widths stay multiples of it, which the machine's kernels like
FAR = 4.0  # budgets: where a step loses more than this many, the search ends


@dataclass(frozen=True)
class Point:
    """One step of the search: what is off, and how it scores on the rows that choose."""

    off: tuple[str, ...]
    units: dict[str, Numbers]  # that stay, by block; {}: all
    heads: float  # share that is left
    flops: float  # share of the whole model's that is left
    score: Score
    loss: Difference  # positive: worse


class Search:
    """From the whole model down; `points` yields one step after another."""

    def __init__(
        self, model: Model, task: Task, rows: Sequence[Example], done: Work, metric: str, ffn: bool, fold: bool = True
    ) -> None:
        """fold: what is left takes over what it can of what goes."""
        self.model, self.task, self.done, self.metric, self.ffn = model, task, done, metric, ffn
        self.asked = rows[:: max(1, len(rows) // ASKED)]
        self.moments = moments(model, task, rows[:: max(1, len(rows) // SEEN)]) if fold else None
        lengths = [len(window["tokens"]) for row in rows for window in row.windows]
        self.length = float(np.mean(lengths))
        self.size = size_of(model, self.length)
        self.whole = evaluated(model, task, done)
        self.left = {name: list(mine) for name, mine in numbers(model).items()}
        blocks = {m.address: m for m in model.modules() if isinstance(m, Block)}
        self.units = {name: np.arange(b.feed_forward.up.out_features) for name, b in blocks.items()} if ffn else {}
        # Arithmetic of one head (of each attention) and of one unit.
        self.head_cost = {
            name: sum(2 * p.weight.numel() for p in (a.q, a.k, a.v, a.out)) / a.heads
            + 2 * self.length * (a.key_dims[0] + a.value_dims[0])
            for name, a in attentions(model).items()
        }
        self.unit_cost = {
            name: 2.0 * sum(p.numel() for n, p in b.feed_forward.named_parameters() if n.endswith("weight"))
            / b.feed_forward.up.out_features
            for name, b in blocks.items()
        }  # fmt: skip

    def points(self, keep: float = 0.0, step: float = STEP) -> Iterator[Point]:
        """The whole model, then always a little less of it, until this share is kept, or nothing more can go."""
        model, point = self.model, self._point(self.model)
        yield point
        total = sum(self.head_cost[name] * len(mine) for name, mine in self.left.items())
        total += sum(self.unit_cost[name] * len(mine) for name, mine in self.units.items())
        while (room := self._room(point, keep)) > 0 and self._remove(model, min(step * total, room)):
            model, _ = cut(self.model, self.plan(), self.moments)
            point = self._point(model)
            yield point

    def _room(self, point: Point, keep: float) -> float:
        """Arithmetic that may still go: of all of it with units, else of the heads by their number."""
        if self.ffn:
            return (point.flops - keep) * self.size.flops
        return (round(point.heads * self.size.heads) - round(keep * self.size.heads)) * min(self.head_cost.values())

    def plan(self) -> Cut:
        return cut_of(self.model, self.off(), self._units())

    def off(self) -> list[str]:
        every = numbers(self.model)
        return [f"{name}.{n}" for name, mine in every.items() for n in mine if n not in self.left[name]]

    def _units(self) -> dict[str, Numbers]:
        blocks = {m.address: m.feed_forward.up.out_features for m in self.model.modules() if isinstance(m, Block)}
        return {name: tuple(mine.tolist()) for name, mine in self.units.items() if len(mine) < blocks[name]}

    def _point(self, model: Model) -> Point:
        scorer = self.whole if model is self.model else evaluated(model, self.task, self.done)
        now = size_of(model, self.length)
        return Point(
            tuple(self.off()),
            self._units(),
            now.heads / self.size.heads,
            now.flops / self.size.flops,
            scorer.result()[self.metric],
            loss_of(self.whole, scorer, self.metric),
        )

    def _remove(self, model: Model, cost: float) -> bool:
        """Takes out what is worth least for its cost, until `cost` is reached; False: nothing was left to take."""
        gates = Gates(model, self.ffn, self._means())
        gates.measure(self.task, self.asked)
        parts = self._heads(gates.heads()) + (self._chunks(gates.units()) if self.ffn else [])
        taken = 0.0
        for _, price, take in sorted(parts, key=lambda part: part[0]):
            if taken >= cost:
                break
            taken += price if take() else 0.0
        return taken > 0

    def _means(self) -> dict[str, Tensor]:
        """Of the parts that are left."""
        if self.moments is None:
            return {}
        before, found = numbers(self.model), {}
        for name, mine in self.left.items():
            every = self.moments[name].mean.float().view(len(before[name]), -1)
            found[name] = every[[before[name].index(n) for n in mine]]
        return found | {n: self.moments[n].mean.float()[torch.from_numpy(mine)] for n, mine in self.units.items()}

    def _heads(self, worth: Mapping[str, float]) -> list[tuple[float, float, Callable[[], bool]]]:
        """(worth by cost, cost, take) of every group of heads that share keys; mostly a group is one head."""
        parts = []
        for name, mine in self.left.items():
            config = configs(self.model)[name.split(".")[0]]
            size = config.heads // (config.kv_heads or config.heads)
            for first in sorted({n // size for n in mine}):
                together = [n for n in mine if n // size == first]
                price = self.head_cost[name] * len(together)
                value = sum(worth[f"{name}.{n}"] for n in together)
                parts.append((value / price, price, self._taker(name, together)))
        return parts

    def _taker(self, name: str, together: list[int]) -> Callable[[], bool]:
        def take() -> bool:
            if len(self.left[name]) == len(together):  # the last of an attention stays
                return False
            self.left[name] = [n for n in self.left[name] if n not in together]
            return True

        return take

    def _chunks(self, worth: Mapping[str, NDArray[np.float64]]) -> list[tuple[float, float, Callable[[], bool]]]:
        """Units by the sixteen, the least worth of a layer together."""
        parts = []
        for name, mine in self.units.items():
            order = np.argsort(worth[name], kind="stable")
            spare = len(mine) % ROUND  # the first chunk brings the width to a multiple
            sizes = [spare] * bool(spare) + [ROUND] * (len(mine) // ROUND)
            start = 0
            for size in sizes:
                chunk = order[start : start + size]
                price = self.unit_cost[name] * size
                parts.append((worth[name][chunk].sum() / price, price, self._thinner(name, mine[chunk])))
                start += size
        return parts

    def _thinner(self, name: str, chunk: NDArray[np.int64]) -> Callable[[], bool]:
        def take() -> bool:
            if len(self.units[name]) <= max(len(chunk), ROUND):
                return False
            self.units[name] = np.setdiff1d(self.units[name], chunk)
            return True

        return take


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
    if budget.keep is not None and best is not None and (best.flops if search.ffn else best.heads) > budget.keep + 0.05:
        raise ValueError(
            f"no less than {best.flops if search.ffn else best.heads:.0%} can stay: every attention keeps a head, "
            f"every feed-forward layer {ROUND} units"
        )
    if best is None or (not best.off and not best.units):
        first = curve[min(1, len(curve) - 1)]
        high = points(first.loss.interval.high, first.score)
        raise ValueError(
            f"nothing can go within {budget.points or 0:g} points for certain: the first step may lose {high:.2f} "
            "on the rows that choose; allow more, or give more rows"
        )
    return best, curve
