"""Masks: which key each query may look at. True always means *may look*.

A `Mask` is a conjunction of rules. Every rule is a function of positions: `allows(t, s)` takes positions of queries
and keys, of shapes that broadcast to X, and gives [B|1, H|1, *X]. So the same few lines give the whole mask, some of
its rows, or single pairs, and nothing of size T x S exists before it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

SHOWN = 8  # lengths that a mask prints one by one


@dataclass(frozen=True)
class CausalRule:
    """s <= t"""

    keys_only = False

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return (s <= t)[None, None]


@dataclass(frozen=True)
class WindowRule:
    """|t - s| < width"""

    width: int
    keys_only = False

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return ((t - s).abs() < self.width)[None, None]


@dataclass(frozen=True)
class PrefixRule:
    """s <= t, or s inside the prefix"""

    count: Tensor  # [B]
    keys_only = False

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return (s <= t) | (s < _by_row(self.count, s))


@dataclass(frozen=True)
class LengthsRule:
    """s < length of the row"""

    count: Tensor  # [B]
    longest: int = 0  # of them; 0: nobody asked
    keys_only = True

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return s < _by_row(self.count, s)


@dataclass(frozen=True)
class SegmentsRule:
    """The same id at t and at s: several texts packed into one row do not see each other."""

    ids: Tensor  # [B, S]
    keys_only = False

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return (self.ids[:, t] == self.ids[:, s])[:, None]


@dataclass(frozen=True)
class KeepRule:
    """A tensor says it: [B, S] by key, [B, T, S], or [B, H, T, S]."""

    table: Tensor
    first: int = 0  # position of the table's first query row

    @property
    def keys_only(self) -> bool:
        return self.table.dim() == 2

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        if self.table.dim() == 2:
            return self.table[:, s][:, None]
        picked = self.table[..., t - self.first, s]
        return picked if self.table.dim() == 4 else picked[:, None]


def _by_row(count: Tensor, s: Tensor) -> Tensor:
    """[B] -> [B, 1, 1...] to stand against positions of any shape, for all heads."""
    return count.view(-1, 1, *(1,) * s.dim())


Rule = CausalRule | WindowRule | PrefixRule | LengthsRule | SegmentsRule | KeepRule
AXES = {1: "B", 2: "BS", 3: "BTS", 4: "BHTS"}
WORDS = {"B": "rows", "H": "heads", "T": "queries", "S": "keys"}


class Mask:
    """Made by the constructors below and joined with `&`; a query may look where every part says yes.

    A query that may look at nothing gets zeros and zero gradient. With fewer queries than keys, the queries are
    the last ones (as when decoding with a cache).
    """

    __slots__ = ("rules",)

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules

    def __and__(self, other: Mask | None) -> Mask:
        return (
            self
            if other is None
            else Mask(*self.rules, *(r for r in other.rules if r not in _unique_rules(self.rules)))
        )

    __rand__ = __and__

    def __repr__(self) -> str:
        return " & ".join(map(_describe_rule, self.rules)) or "Mask()"

    def _repr_html_(self) -> str:
        return f"<code>{self!r}</code>"  # numbers and our own names: nothing to escape

    @staticmethod
    def causal() -> Mask:
        """Only this position and the ones before it."""
        return Mask(CausalRule())

    @staticmethod
    def window(width: int) -> Mask:
        """Only positions nearer than `width`; with `causal`, the last `width` positions."""
        if width < 1:
            raise ValueError(f"Mask.window({width}): the width must be at least 1 (1 = only itself)")
        return Mask(WindowRule(width))

    @staticmethod
    def lengths(count: Tensor | list[int]) -> Mask:
        """Only the first `count[b]` keys of row b (right padding)."""
        count = _whole_numbers("lengths", count)
        # To ask breaks the graph of a compiler, and makes a GPU wait.
        asked = len(count) and count.is_cpu and not torch.compiler.is_compiling()
        return Mask(LengthsRule(count, int(count.max()) if asked else 0))

    @staticmethod
    def prefix(count: Tensor | list[int]) -> Mask:
        """The whole mask of a prefix language model: causal, but the first `count[b]` keys are seen by all."""
        return Mask(PrefixRule(_whole_numbers("prefix", count)))

    @staticmethod
    def segments(ids: Tensor) -> Mask:
        """Only keys with the same id; ids [B, S]."""
        if ids.dim() != 2 or ids.is_floating_point():
            raise ValueError(f"Mask.segments wants whole numbers [B, S], got {ids.dtype} {tuple(ids.shape)}")
        return Mask(SegmentsRule(ids))

    @staticmethod
    def keep(table: Tensor) -> Mask:
        """Only where `table` is True: [B, S] by key, [B, T, S], or [B, H, T, S]."""
        if table.dtype != torch.bool:
            raise ValueError(f"Mask.keep wants booleans (True = may look), got {table.dtype}; use table.bool()")
        if table.dim() not in (2, 3, 4):
            raise ValueError(f"Mask.keep wants [B, S], [B, T, S] or [B, H, T, S], got {tuple(table.shape)}")
        return Mask(KeepRule(table))


def check_shape(rule: Rule, sizes: Mapping[str, int]) -> None:
    """Does the rule's tensor speak of these rows, queries and keys (and heads, where they are known), or of others?

    One row or one head stands for all. A prefix may reach further than the keys: with a cache, they are still to come.
    """
    if isinstance(rule, CausalRule | WindowRule):
        return
    given = rule.table if isinstance(rule, KeepRule) else rule.ids if isinstance(rule, SegmentsRule) else rule.count
    axes = AXES[given.dim()]
    for axis, has in zip(axes, given.shape, strict=True):
        if has != sizes.get(axis, has) and not (has == 1 and axis in "BH"):
            wanted = f"[{', '.join(axes)}] = {[sizes.get(other, other) for other in axes]}"
            raise ValueError(
                f"{Mask(rule)} of shape {list(given.shape)} speaks of {has} {WORDS[axis]}, there are {sizes[axis]}; "
                f"{wanted} is wanted"
            )
    if isinstance(rule, LengthsRule) and not torch.compiler.is_compiling() and rule.longest > sizes["S"]:
        raise ValueError(f"Mask.lengths says {rule.longest}, there are {sizes['S']} keys; count those that are there")


def _unique_rules(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules that can be compared (those without tensors), so that causal & causal is causal."""
    return tuple(rule for rule in rules if isinstance(rule, CausalRule | WindowRule))


def _whole_numbers(name: str, count: Tensor | list[int]) -> Tensor:
    count = torch.as_tensor(count)
    if count.dim() != 1 or count.is_floating_point() or count.dtype == torch.bool:
        raise ValueError(f"Mask.{name} wants one whole number per row [B], got {count.dtype} {tuple(count.shape)}")
    return count


def _describe_rule(rule: Rule) -> str:
    """Mask.window(5), Mask.lengths([3, 7]), Mask.keep([2, 9]): small numbers in full, tensors by their shape."""
    name = f"Mask.{type(rule).__name__.removesuffix('Rule').lower()}"
    values = [getattr(rule, field.name) for field in fields(rule)][:1]
    shown = [_describe_tensor(value) if isinstance(value, Tensor) else str(value) for value in values]
    return f"{name}({', '.join(shown)})"


def _describe_tensor(values: Tensor) -> str:
    return str(values.tolist()) if values.ndim == 1 and len(values) <= SHOWN else f"shape {list(values.shape)}"
