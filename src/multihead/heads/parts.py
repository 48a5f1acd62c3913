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

from multihead.heads.cut import ByGroup, Cut, configs, cut_of
from multihead.heads.fold import KEYS, Moments, Numbers
from multihead.heads.gates import Gates
from multihead.models import Block, Model
from multihead.watch import attentions, numbers

ROUND = 16  # units: widths stay multiples of it, which the machine's kernels like
Places = NDArray[np.int64]


class Offer(NamedTuple):
    worth: float  # by cost
    cost: float
    take: Callable[[], bool]  # False: it has to stay


class Parts:
    """Of one model: numbers of heads, columns by group of heads that share keys, units; all of them at first."""

    def __init__(self, model: Model, length: float, ffn: bool, columns: bool) -> None:
        """length: tokens of a typical input. ffn, columns: whether units, and columns of heads, may go."""
        self.model, self.ffn, self.columns = model, ffn, columns
        self.attentions, self.every = attentions(model), numbers(model)
        self.blocks = {m.address: m for m in model.modules() if isinstance(m, Block)}
        self.sharing = {}  # heads per group, by attention
        self.heads = {name: list(mine) for name, mine in self.every.items()}
        self.keys: dict[str, dict[int, Places]] = {}
        self.values: dict[str, dict[int, Places]] = {}
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

    def plan(self) -> Cut:
        whole = cut_of(self.model, self.off())
        units = {
            name: tuple(mine.tolist())
            for name, mine in self.units.items()
            if len(mine) < self.blocks[name].feed_forward.up.out_features
        }
        return Cut(whole.heads, units, self._narrowed(self.keys), self._narrowed(self.values))

    def means(self, moments: Moments) -> dict[str, Tensor]:
        """What the parts that are left give on average."""
        found = {name: moments[name].mean.float()[torch.from_numpy(mine)] for name, mine in self.units.items()}
        for name, mine in self.heads.items():
            size, groups = self.sharing[name], self._groups(name)
            every = moments[name].mean.float().view(len(self.every[name]), -1)
            rows = [every[self.every[name].index(n)][self.values[name][n // size]] for n in mine]
            found[name] = torch.stack(rows)
            if self.columns:
                before = sorted({n // size for n in self.every[name]})
                keys = moments[name + KEYS].mean.float().view(len(before), -1)
                found[name + KEYS] = torch.cat([keys[before.index(g)][self.keys[name][g]] for g in groups])
        return found

    def offers(self, gates: Gates) -> list[Offer]:
        """The least worth first. gates: measured on the model as it is left."""
        found = self._heads(gates.heads())
        if self.ffn:
            found += self._chunks(gates.units())
        if self.columns:
            found += self._columns(self.values, self.value_cost, gates.values())
            found += self._columns(self.keys, self.key_cost, gates.keys())
        return sorted(found, key=lambda offer: offer.worth)

    def _groups(self, name: str) -> list[int]:
        return sorted({n // self.sharing[name] for n in self.heads[name]})

    def _narrowed(self, kind: Mapping[str, Mapping[int, Places]]) -> dict[str, ByGroup]:
        found = {}
        for name, a in self.attentions.items():
            whole = a.key_dims[0] if kind is self.keys else a.value_dims[0]
            left: list[Numbers] = [tuple(kind[name][group].tolist()) for group in self._groups(name)]
            if len(left[0]) < whole:
                found[name] = tuple(left)
        return found

    def _heads(self, worth: Mapping[str, float]) -> list[Offer]:
        """Groups of heads that share keys; mostly a group is one head."""
        found = []
        for name, mine in self.heads.items():
            for group in self._groups(name):
                together = [n for n in mine if n // self.sharing[name] == group]
                cost = self.head_cost(name) * len(together)
                value = sum(worth[f"{name}.{n}"] for n in together)
                found.append(Offer(value / cost, cost, self._without(name, together)))
        return found

    def _without(self, name: str, together: list[int]) -> Callable[[], bool]:
        def take() -> bool:
            if len(self.heads[name]) == len(together):  # the last of an attention stays
                return False
            self.heads[name] = [n for n in self.heads[name] if n not in together]
            return True

        return take

    def _columns(
        self, kind: dict[str, dict[int, Places]], cost: Mapping[str, float], worth: Mapping[str, NDArray[np.float64]]
    ) -> list[Offer]:
        """A quarter of the width of an attention's heads, of each the least worth."""
        found = []
        for name, a in self.attentions.items():
            config, groups = configs(self.model)[name.split(".")[0]], self._groups(name)
            if kind is self.keys and (config.positions == "rotary" or config.qk_norm is not None):
                continue  # these want whole keys
            size = max(1, (a.key_dims[0] if kind is self.keys else a.value_dims[0]) // 4)
            if worth[name].shape[1] <= size:
                continue
            order = np.argsort(worth[name], axis=1, kind="stable")  # [groups, columns]
            value = np.take_along_axis(worth[name], order[:, :size], 1).sum()
            price = cost[name] * size * len(self.heads[name])
            stay = {g: np.sort(kind[name][g][order[i, size:]]) for i, g in enumerate(groups)}
            found.append(Offer(value / price, price, self._narrower(kind, name, stay)))
        return found

    def _narrower(self, kind: dict[str, dict[int, Places]], name: str, stay: dict[int, Places]) -> Callable[[], bool]:
        def take() -> bool:
            kind[name] = stay
            return True

        return take

    def _chunks(self, worth: Mapping[str, NDArray[np.float64]]) -> list[Offer]:
        """Units by the sixteen, the least worth of a layer together."""
        found = []
        for name, mine in self.units.items():
            order = np.argsort(worth[name], kind="stable")
            spare = len(mine) % ROUND  # the first chunk brings the width to a multiple
            sizes = [spare] * bool(spare) + [ROUND] * (len(mine) // ROUND)
            start = 0
            for size in sizes:
                chunk = order[start : start + size]
                cost = self.unit_cost[name] * size
                found.append(Offer(worth[name][chunk].sum() / cost, cost, self._thinner(name, mine[chunk])))
                start += size
        return found

    def _thinner(self, name: str, chunk: Places) -> Callable[[], bool]:
        def take() -> bool:
            if len(self.units[name]) <= max(len(chunk), ROUND):
                return False
            self.units[name] = np.setdiff1d(self.units[name], chunk)
            return True

        return take
