"""Remaining parts of a model during pruning, and candidates for the next removal.

The importance of a part is divided by its cost (FLOPs), so that heads, their columns and units compete fairly.
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

ROUND = 16  # units: widths stay multiples of it, which suits the kernels
ColumnNumbers = NDArray[np.int64]


class Candidate(NamedTuple):
    worth: float  # importance per cost
    cost: float
    take: Callable[[], bool]  # False: it must stay


class RemainingParts:
    """Remaining heads, columns by group of heads that share keys, and units of one model; all of them at first."""

    def __init__(self, model: TaskModel, length: float, ffn: bool, columns: bool) -> None:
        """Start with all parts. length: tokens of a typical input. ffn, columns: whether units, and head columns, may
        be removed."""
        self.model, self.ffn, self.columns = model, ffn, columns
        self.attentions, self.every = attentions(model), numbers(model)
        self.blocks = {m.address: m for m in model.modules() if isinstance(m, TransformerBlock)}
        self.sharing = {}  # heads per group, by attention
        self.heads = {name: list(head_numbers) for name, head_numbers in self.every.items()}
        self.keys: dict[str, dict[int, ColumnNumbers]] = {}
        self.values: dict[str, dict[int, ColumnNumbers]] = {}
        self.units = {name: np.arange(b.feed_forward.up.out_features) for name, b in self.blocks.items() if ffn}
        # FLOPs of one column of one head, and of one unit.
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
        """Return the FLOPs of all prunable parts."""
        heads = sum(self.head_cost(name) * len(remaining) for name, remaining in self.heads.items())
        return heads + sum(self.unit_cost[name] * len(remaining) for name, remaining in self.units.items())

    def head_cost(self, name: str) -> float:
        """Return the FLOPs of one head of an attention, at its current width."""
        keys, values = (len(next(iter(kind[name].values()))) for kind in (self.keys, self.values))
        return keys * self.key_cost[name] + values * self.value_cost[name]

    def off(self) -> list[str]:
        return [f"{name}.{n}" for name, original in self.every.items() for n in original if n not in self.heads[name]]

    def plan(self) -> PruningPlan:
        full = make_plan(self.model, self.off())
        units = {
            name: tuple(remaining.tolist())
            for name, remaining in self.units.items()
            if len(remaining) < self.blocks[name].feed_forward.up.out_features
        }
        return PruningPlan(full.heads, units, self._narrowed_columns(self.keys), self._narrowed_columns(self.values))

    def means(self, moments: MomentsByName) -> dict[str, Tensor]:
        """Return the mean outputs of the remaining parts."""
        by_name = {
            name: moments[name].mean.float()[torch.from_numpy(remaining)] for name, remaining in self.units.items()
        }
        for name, remaining in self.heads.items():
            by_name[name] = moments[name].mean.float()[torch.from_numpy(self._lines(name))].view(len(remaining), -1)
            if self.columns:
                lines = np.concatenate(self._key_lines(name))
                by_name[name + KEYS] = moments[name + KEYS].mean.float()[torch.from_numpy(lines)]
        return by_name

    def candidates(self, gates: HeadGates, moments: MomentsByName | None) -> list[Candidate]:
        """Return candidates, least important first. gates: measured on the current model, at the granularity of
        removal."""
        offers, known = [], moments or {}
        for name in self.heads:
            worth = _measure_importance(gates.rows(name), known.get(name), self._lines(name))
            offers += self._heads(name, worth)
            if self.columns:
                offers += self._columns(self.values, name, worth, self.value_cost[name])
                blocks = self._key_lines(name)
                worth = _measure_importance(gates.rows(name + KEYS), known.get(name + KEYS), *blocks)
                offers += self._columns(self.keys, name, worth, self.key_cost[name])
        for name, remaining in self.units.items():
            offers += self._chunks(name, _measure_importance(gates.rows(name), known.get(name), remaining))
        return sorted(offers, key=lambda offer: offer.worth)

    def _lines(self, name: str) -> ColumnNumbers:
        """Return the indices of the remaining heads' columns, among the outputs of all heads."""
        width = self.attentions[name].value_dims[0]
        return np.concatenate(
            [self.every[name].index(n) * width + self.values[name][n // self.sharing[name]] for n in self.heads[name]]
        )

    def _key_lines(self, name: str) -> list[ColumnNumbers]:
        """Return the indices of the remaining key columns, by group."""
        width = self.attentions[name].key_dims[0]
        before = sorted({n // self.sharing[name] for n in self.every[name]})
        return [before.index(group) * width + self.keys[name][group] for group in self._groups(name)]

    def _groups(self, name: str) -> list[int]:
        return sorted({n // self.sharing[name] for n in self.heads[name]})

    def _narrowed_columns(self, kind: Mapping[str, Mapping[int, ColumnNumbers]]) -> dict[str, ColumnsByGroup]:
        narrowed = {}
        for name, a in self.attentions.items():
            full = a.key_dims[0] if kind is self.keys else a.value_dims[0]
            left: list[Numbers] = [tuple(kind[name][group].tolist()) for group in self._groups(name)]
            if len(left[0]) < full:
                narrowed[name] = tuple(left)
        return narrowed

    def _heads(self, name: str, worth: Importance) -> list[Candidate]:
        """Return candidates for groups of heads that share keys; usually a group is one head."""
        offers, remaining = [], self.heads[name]
        width = worth.lines // len(remaining)
        for group in self._groups(name):
            together = [n for n in remaining if n // self.sharing[name] == group]
            first = remaining.index(together[0])
            lines = np.arange(first * width, (first + len(together)) * width)
            cost = self.head_cost(name) * len(together)
            offers.append(Candidate(worth.of(lines) / cost, cost, self._without(name, together)))
        return offers

    def _without(self, name: str, together: list[int]) -> Callable[[], bool]:
        def take() -> bool:
            if len(self.heads[name]) == len(together):  # an attention keeps its last head
                return False
            self.heads[name] = [n for n in self.heads[name] if n not in together]
            return True

        return take

    def _columns(
        self, kind: dict[str, dict[int, ColumnNumbers]], name: str, worth: Importance, cost: float
    ) -> list[Candidate]:
        """Return candidates for a quarter of the width of an attention's heads: the least important columns of each."""
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
        """Return candidates for chunks of sixteen units, the least important of a layer together."""
        offers, remaining = [], self.units[name]
        order = np.argsort(worth.each(), kind="stable")
        spare = len(remaining) % ROUND  # the first chunk brings the width to a multiple
        start = 0
        for size in [spare] * bool(spare) + [ROUND] * (len(remaining) // ROUND):
            chunk = order[start : start + size]
            cost = self.unit_cost[name] * size
            offers.append(Candidate(worth.of(chunk) / cost, cost, self._thinner(name, remaining[chunk])))
            start += size
        return offers

    def _thinner(self, name: str, chunk: ColumnNumbers) -> Callable[[], bool]:
        def take() -> bool:
            if len(self.units[name]) <= max(len(chunk), ROUND):
                return False
            self.units[name] = np.setdiff1d(self.units[name], chunk)
            return True

        return take


class Importance:
    """Importance of lines of a projection's input, also several together: mean |d loss / d gate| of a gate on all of
    them, times the part of their output that is unique (the square root of the share of their variance that the other
    lines do not predict), because the others take over the rest."""

    def __init__(self, gradients: Tensor, spread: Tensor | None) -> None:
        """Take gradients [inputs, lines]; spread: covariance [lines, lines]; None: no compensation by other lines."""
        self.gradients, self.lines, self.inverse = gradients.double(), gradients.shape[1], None
        if spread is not None:
            self.variance = spread.diagonal()
            self.ridge = RIDGE * self.variance.mean() + 1e-12
            self.inverse = torch.linalg.inv(spread + self.ridge * torch.eye(self.lines, dtype=spread.dtype))

    def of(self, lines: ColumnNumbers) -> float:
        indices = torch.from_numpy(lines)
        importance = self.gradients[:, indices].sum(1).abs().mean()
        if self.inverse is not None:
            left = torch.linalg.inv(self.inverse[indices][:, indices]).diagonal() - self.ridge
            importance *= _root(left.sum(), self.variance[indices].sum())
        return float(importance)

    def each(self) -> NDArray[np.float64]:
        """Return the importance of every line alone."""
        importance = self.gradients.abs().mean(0)
        if self.inverse is not None:
            importance *= _root(1 / self.inverse.diagonal() - self.ridge, self.variance)
        return importance.numpy()


def _root(part: Tensor, total: Tensor) -> Tensor:
    return (part / total.clamp(min=1e-12)).clamp(0, 1).sqrt()


def _measure_importance(gradients: Tensor, moment: Moments | None, *places: ColumnNumbers) -> Importance:
    """Measure importance. places: remaining lines of the moments; lines of one array compensate for each other."""
    if moment is None or moment.spread is None:
        return Importance(gradients, None)
    blocks = [moment.spread[torch.from_numpy(indices)][:, torch.from_numpy(indices)].double() for indices in places]
    return Importance(gradients, torch.block_diag(*blocks))
