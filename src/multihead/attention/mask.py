"""Attention masks: which keys each query may attend to. True always means *may attend*.

A `Mask` is a conjunction of rules. Each rule is a function of positions: `allows(t, s)` takes positions of queries and
keys, of shapes that broadcast to X, and returns [B|1, H|1, *X]. The same few lines therefore give the full mask, some
of its rows, or single pairs, and nothing of size T x S exists before it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

SHOWN = 8  # lengths that a mask prints in full


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
    """s <= t, or s inside the prefix."""

    count: Tensor  # [B]
    keys_only = False

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return (s <= t) | (s < _by_row(self.count, s))


@dataclass(frozen=True)
class LengthsRule:
    """s < length of the example."""

    count: Tensor  # [B]
    longest: int = 0  # the largest count; 0: not computed
    keys_only = True

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return s < _by_row(self.count, s)


@dataclass(frozen=True)
class SegmentsRule:
    """The same segment id at t and at s: texts packed into one row do not attend to each other."""

    ids: Tensor  # [B, S]
    keys_only = False

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return (self.ids[:, t] == self.ids[:, s])[:, None]


@dataclass(frozen=True)
class KeepRule:
    """An explicit table: [B, S] by key, [B, T, S], or [B, H, T, S]."""

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
    """Reshape [B] to [B, 1, 1...], to broadcast against positions of any shape, for all heads."""
    return count.view(-1, 1, *(1,) * s.dim())


Rule = CausalRule | WindowRule | PrefixRule | LengthsRule | SegmentsRule | KeepRule
AXES = {1: "B", 2: "BS", 3: "BTS", 4: "BHTS"}
WORDS = {"B": "examples", "H": "heads", "T": "queries", "S": "keys"}


class Mask:
    """Which keys each query may attend to: rules made by the constructors below, joined with `&`.

    A query that may attend to no key gets zeros and zero gradient. With fewer queries than keys, the queries are the
    last positions (as in decoding with a KV cache).

    Example:
        >>> Mask.causal() & Mask.lengths([3, 7])
        Mask.causal() & Mask.lengths([3, 7])
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
        """Allow this position and earlier ones."""
        return Mask(CausalRule())

    @staticmethod
    def window(width: int) -> Mask:
        """Allow positions nearer than `width`; with `causal`, the last `width` positions."""
        if width < 1:
            raise ValueError(f"Mask.window({width}): the width must be at least 1 (1 = only itself)")
        return Mask(WindowRule(width))

    @staticmethod
    def lengths(count: Tensor | list[int]) -> Mask:
        """Allow the first `count[b]` keys of example b (right padding); count [B]."""
        count = _whole_numbers("lengths", count)
        # Reading a value breaks the compiled graph, and synchronizes a GPU.
        readable = len(count) and count.is_cpu and not torch.compiler.is_compiling()
        return Mask(LengthsRule(count, int(count.max()) if readable else 0))

    @staticmethod
    def prefix(count: Tensor | list[int]) -> Mask:
        """Prefix language model: causal, but the first `count[b]` keys are visible to every query; count [B]."""
        return Mask(PrefixRule(_whole_numbers("prefix", count)))

    @staticmethod
    def segments(ids: Tensor) -> Mask:
        """Allow keys with the same segment id; ids [B, S]."""
        if ids.dim() != 2 or ids.is_floating_point():
            raise ValueError(f"Mask.segments takes integers [B, S], got {ids.dtype} {tuple(ids.shape)}")
        return Mask(SegmentsRule(ids))

    @staticmethod
    def keep(table: Tensor) -> Mask:
        """Allow pairs where `table` is True: [B, S] by key, [B, T, S], or [B, H, T, S]."""
        if table.dtype != torch.bool:
            raise ValueError(f"Mask.keep takes booleans (True = may attend), got {table.dtype}; use table.bool()")
        if table.dim() not in (2, 3, 4):
            raise ValueError(f"Mask.keep takes [B, S], [B, T, S] or [B, H, T, S], got {tuple(table.shape)}")
        return Mask(KeepRule(table))


def check_shape(rule: Rule, sizes: Mapping[str, int]) -> None:
    """Raise ValueError where a rule's tensor does not fit the sizes of the batch: `sizes` maps B, T, S (and H) to
    numbers.

    A size of 1 for B or H broadcasts. A prefix may be longer than the keys: with a KV cache, the rest is still to come.
    """
    if isinstance(rule, CausalRule | WindowRule):
        return
    tensor = rule.table if isinstance(rule, KeepRule) else rule.ids if isinstance(rule, SegmentsRule) else rule.count
    axes = AXES[tensor.dim()]
    for axis, size in zip(axes, tensor.shape, strict=True):
        if size != sizes.get(axis, size) and not (size == 1 and axis in "BH"):
            expected = f"[{', '.join(axes)}] = {[sizes.get(name, name) for name in axes]}"
            raise ValueError(
                f"{_rule_name(rule)} of shape {list(tensor.shape)} has {size} {WORDS[axis]}, "
                f"the input has {sizes[axis]}; use {expected}"
            )
    if isinstance(rule, LengthsRule) and not torch.compiler.is_compiling() and rule.longest > sizes["S"]:
        raise ValueError(
            f"Mask.lengths has a length of {rule.longest}, the input has {sizes['S']} keys; use lengths up to that"
        )


def _unique_rules(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules that can be compared (those without tensors), so that causal & causal is causal."""
    return tuple(rule for rule in rules if isinstance(rule, CausalRule | WindowRule))


def _whole_numbers(name: str, count: Tensor | list[int]) -> Tensor:
    count = torch.as_tensor(count)
    if count.dim() != 1 or count.is_floating_point() or count.dtype == torch.bool:
        raise ValueError(f"Mask.{name} takes one integer per example [B], got {count.dtype} {tuple(count.shape)}")
    return count


def _describe_rule(rule: Rule) -> str:
    """Format a rule: Mask.window(5), Mask.lengths([3, 7]), Mask.keep([2, 9]); large tensors by their shape."""
    values = [getattr(rule, field.name) for field in fields(rule)][:1]
    shown = [_describe_tensor(value) if isinstance(value, Tensor) else str(value) for value in values]
    return f"{_rule_name(rule)}({', '.join(shown)})"


def _rule_name(rule: Rule) -> str:
    return f"Mask.{type(rule).__name__.removesuffix('Rule').lower()}"


def _describe_tensor(values: Tensor) -> str:
    return str(values.tolist()) if values.ndim == 1 and len(values) <= SHOWN else f"shape {list(values.shape)}"
