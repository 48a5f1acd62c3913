"""What is left of a model while parts of it go, and which part could go next.

What a part is worth is divided by what it costs (its arithmetic), so that heads, their columns and units compete
fairly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.inspection import attentions, numbers
from multihead.models import TaskModel, TransformerBlock
from multihead.pruning.compensation import KEYS, RIDGE, Moments, MomentsByName, Numbers
from multihead.pruning.gradient_importance import HeadGates
from multihead.pruning.surgery import ColumnsByGroup, PruningPlan, configs, make_plan

ROUND = 16  # units: widths stay multiples of it, which the machine's kernels like
ColumnNumbers = NDArray[np.int64]


class Candidate(NamedTuple):
    worth: float  # by cost
    cost: float
    take: Callable[[], bool]  # False: it has to stay


class RemainingParts:
    """Of one model: numbers of heads, columns by group of heads that share keys, units; all of them at first."""

    def __init__(self, model: TaskModel, length: float, ffn: bool, columns: bool) -> None:
        """length: tokens of a typical input. ffn, columns: whether units, and columns of heads, may go."""
        self.model, self.ffn, self.columns = model, ffn, columns
        self.attentions, self.every = attentions(model), numbers(model)
        self.blocks = {m.address: m for m in model.modules() if isinstance(m, TransformerBlock)}
        self.sharing = {}  # heads per group, by attention
        self.heads = {name: list(mine) for name, mine in self.every.items()}
        self.keys: dict[str, dict[int, ColumnNumbers]] = {}
        self.values: dict[str, dict[int, ColumnNumbers]] = {}
        self.units = {name: np.arange(b.feed_forward.up.out_features) for name, b in self.blocks.items() if ffn}
        # Arithmetic of one column of one head, and of one unit.
        self.key_cost, self.value_cost = {}, {}
        for name, a in self.attentions.items():
            config = configs(model)[name.split(".")[0]]
            self.sharing[name] = config.heads // (config.kv_heads or config.heads)
            groups = self._groups(name)
            self.keys[name] = {group: np.arange(a.key_dims[0]) for group in groups}
            self.values[name] = {group: np.arange(a.value_dims[0]) for group in groups}
            share = a.kv_heads / a.heads
            self.key_cost[name] = 2 * (a.q.in_features + share * a.k.in_features + length)
            self.value_cost[name] = 2 * (a.out.out_features + share * a.v.in_features + length)
        self.unit_cost = {
            name: 2.0 * sum(p.numel() for n, p in b.feed_forward.named_parameters() if n.endswith("weight"))
            / b.feed_forward.up.out_features
            for name, b in self.blocks.items()
        }  # fmt: skip

    def cost(self) -> float:
        """Arithmetic of all that could go."""
        heads = sum(self.head_cost(name) * len(mine) for name, mine in self.heads.items())
        return heads + sum(self.unit_cost[name] * len(mine) for name, mine in self.units.items())

    def head_cost(self, name: str) -> float:
        """Of one head of an attention, as wide as it is now."""
        keys, values = (len(next(iter(kind[name].values()))) for kind in (self.keys, self.values))
        return keys * self.key_cost[name] + values * self.value_cost[name]

    def off(self) -> list[str]:
        return [f"{name}.{n}" for name, mine in self.every.items() for n in mine if n not in self.heads[name]]

    def plan(self) -> PruningPlan:
        whole = make_plan(self.model, self.off())
        units = {
            name: tuple(mine.tolist())
            for name, mine in self.units.items()
            if len(mine) < self.blocks[name].feed_forward.up.out_features
        }
        return PruningPlan(whole.heads, units, self._narrowed_columns(self.keys), self._narrowed_columns(self.values))

    def means(self, moments: MomentsByName) -> dict[str, Tensor]:
        """What the parts that are left give on average."""
        found = {name: moments[name].mean.float()[torch.from_numpy(mine)] for name, mine in self.units.items()}
        for name, mine in self.heads.items():
            found[name] = moments[name].mean.float()[torch.from_numpy(self._lines(name))].view(len(mine), -1)
            if self.columns:
                lines = np.concatenate(self._key_lines(name))
                found[name + KEYS] = moments[name + KEYS].mean.float()[torch.from_numpy(lines)]
        return found

    def candidates(self, gates: HeadGates, moments: MomentsByName | None) -> list[Candidate]:
        """The least worth first. gates: measured on the model as it is left, as finely as parts may go."""
        found, known = [], moments or {}
        for name in self.heads:
            worth = _measure_importance(gates.rows(name), known.get(name), self._lines(name))
            found += self._heads(name, worth)
            if self.columns:
                found += self._columns(self.values, name, worth, self.value_cost[name])
                blocks = self._key_lines(name)
                worth = _measure_importance(gates.rows(name + KEYS), known.get(name + KEYS), *blocks)
                found += self._columns(self.keys, name, worth, self.key_cost[name])
        for name, mine in self.units.items():
            found += self._chunks(name, _measure_importance(gates.rows(name), known.get(name), mine))
        return sorted(found, key=lambda offer: offer.worth)

    def _lines(self, name: str) -> ColumnNumbers:
        """Places of what its heads that are left carry, among the outputs of all heads."""
        width = self.attentions[name].value_dims[0]
        return np.concatenate(
            [self.every[name].index(n) * width + self.values[name][n // self.sharing[name]] for n in self.heads[name]]
        )

    def _key_lines(self, name: str) -> list[ColumnNumbers]:
        """Places of the key columns that are left, by group."""
        width = self.attentions[name].key_dims[0]
        before = sorted({n // self.sharing[name] for n in self.every[name]})
        return [before.index(group) * width + self.keys[name][group] for group in self._groups(name)]

    def _groups(self, name: str) -> list[int]:
        return sorted({n // self.sharing[name] for n in self.heads[name]})

    def _narrowed_columns(self, kind: Mapping[str, Mapping[int, ColumnNumbers]]) -> dict[str, ColumnsByGroup]:
        found = {}
        for name, a in self.attentions.items():
            whole = a.key_dims[0] if kind is self.keys else a.value_dims[0]
            left: list[Numbers] = [tuple(kind[name][group].tolist()) for group in self._groups(name)]
            if len(left[0]) < whole:
                found[name] = tuple(left)
        return found

    def _heads(self, name: str, worth: Importance) -> list[Candidate]:
        """Groups of heads that share keys; mostly a group is one head."""
        found, mine = [], self.heads[name]
        width = worth.lines // len(mine)
        for group in self._groups(name):
            together = [n for n in mine if n // self.sharing[name] == group]
            first = mine.index(together[0])
            lines = np.arange(first * width, (first + len(together)) * width)
            cost = self.head_cost(name) * len(together)
            found.append(Candidate(worth.of(lines) / cost, cost, self._without(name, together)))
        return found

    def _without(self, name: str, together: list[int]) -> Callable[[], bool]:
        def take() -> bool:
            if len(self.heads[name]) == len(together):  # the last of an attention stays
                return False
            self.heads[name] = [n for n in self.heads[name] if n not in together]
            return True

        return take

    def _columns(
        self, kind: dict[str, dict[int, ColumnNumbers]], name: str, worth: Importance, cost: float
    ) -> list[Candidate]:
        """A quarter of the width of an attention's heads, of each the least worth."""
        config, attention = configs(self.model)[name.split(".")[0]], self.attentions[name]
        if kind is self.keys and config.whole_keys:
            return []
        size = max(1, (attention.key_dims[0] if kind is self.keys else attention.value_dims[0]) // 4)
        groups = self._groups(name)
        width = len(kind[name][groups[0]])
        if width <= size:
            return []
        places = np.arange(worth.lines).reshape(len(groups), -1, width)  # [groups, heads of a group, columns]
        order = np.argsort(worth.each()[places].sum(1), axis=1, kind="stable")  # [groups, columns]
        gone = np.take_along_axis(places, order[:, None, :size], 2)
        price = cost * size * len(self.heads[name])
        stay = {group: np.sort(kind[name][group][order[i, size:]]) for i, group in enumerate(groups)}
        return [Candidate(worth.of(gone.ravel()) / price, price, self._narrower(kind, name, stay))]

    def _narrower(
        self, kind: dict[str, dict[int, ColumnNumbers]], name: str, stay: dict[int, ColumnNumbers]
    ) -> Callable[[], bool]:
        def take() -> bool:
            kind[name] = stay
            return True

        return take

    def _chunks(self, name: str, worth: Importance) -> list[Candidate]:
        """Units by the sixteen, the least worth of a layer together."""
        found, mine = [], self.units[name]
        order = np.argsort(worth.each(), kind="stable")
        spare = len(mine) % ROUND  # the first chunk brings the width to a multiple
        start = 0
        for size in [spare] * bool(spare) + [ROUND] * (len(mine) // ROUND):
            chunk = order[start : start + size]
            cost = self.unit_cost[name] * size
            found.append(Candidate(worth.of(chunk) / cost, cost, self._thinner(name, mine[chunk])))
            start += size
        return found

    def _thinner(self, name: str, chunk: ColumnNumbers) -> Callable[[], bool]:
        def take() -> bool:
            if len(self.units[name]) <= max(len(chunk), ROUND):
                return False
            self.units[name] = np.setdiff1d(self.units[name], chunk)
            return True

        return take


class Importance:
    """What lines of a projection's input are worth, also several together: mean |d loss / d gate| of a gate on all of
    them, times how much of what they give is their own (the square root of the share of their variance that the other
    lines do not foretell), because the others take over the rest."""

    def __init__(self, gradients: Tensor, spread: Tensor | None) -> None:
        """gradients [inputs, lines]; spread: covariance [lines, lines]; None: nobody takes over anything."""
        self.gradients, self.lines, self.inverse = gradients.double(), gradients.shape[1], None
        if spread is not None:
            self.variance = spread.diagonal()
            self.ridge = RIDGE * self.variance.mean() + 1e-12
            self.inverse = torch.linalg.inv(spread + self.ridge * torch.eye(self.lines, dtype=spread.dtype))

    def of(self, lines: ColumnNumbers) -> float:
        mine = torch.from_numpy(lines)
        found = self.gradients[:, mine].sum(1).abs().mean()
        if self.inverse is not None:
            left = torch.linalg.inv(self.inverse[mine][:, mine]).diagonal() - self.ridge
            found *= _root(left.sum(), self.variance[mine].sum())
        return float(found)

    def each(self) -> NDArray[np.float64]:
        """Of every line alone."""
        found = self.gradients.abs().mean(0)
        if self.inverse is not None:
            found *= _root(1 / self.inverse.diagonal() - self.ridge, self.variance)
        return found.numpy()


def _root(part: Tensor, whole: Tensor) -> Tensor:
    return (part / whole.clamp(min=1e-12)).clamp(0, 1).sqrt()


def _measure_importance(gradients: Tensor, moment: Moments | None, *places: ColumnNumbers) -> Importance:
    """places: lines of the moment that are left; those of one array take over from each other."""
    if moment is None or moment.spread is None:
        return Importance(gradients, None)
    blocks = [moment.spread[torch.from_numpy(mine)][:, torch.from_numpy(mine)].double() for mine in places]
    return Importance(gradients, torch.block_diag(*blocks))
