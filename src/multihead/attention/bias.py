"""A mask and a score bias, fitted to T queries and S keys: what the kernels take.

A body makes one `AttentionBias` per forward pass and hands it to all its layers. What it costs is decided here, from
shapes and kinds of rules alone (never from values, so compiled graphs do not break): nothing at all, a flag, a row of
keys, or a full table; a table too large to keep is built by rows when a kernel asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import TypeGuard

import torch
from torch import Tensor

from multihead.attention.mask import CausalRule, KeepRule, Mask, Rule, WindowRule, check_shape
from multihead.attention.position import HeadSubset, PositionEncoding
from multihead.kernels.dispatch import LARGEST_TABLE


class AttentionBias:
    """What T queries, the last of S positions (or any, in cross-attention), see of S keys.

    causal: the kernel's own causal flag holds, on top of `add`.
    add: what is added to the scores, [B|1, H|1, T|1, S], 0 or -inf for a mask; None = nothing.
    by_rows: `add` would be too large or mostly -inf; kernels go through `rows`.
    """

    def __init__(
        self,
        mask: Mask | None,
        queries: int,
        keys: int,
        reference: Tensor,
        position: PositionEncoding | None = None,
        crossing: bool = False,
    ) -> None:
        self.queries, self.keys, self.crossing = queries, keys, crossing
        self.first = 0 if crossing else keys - queries  # position of the first query
        self.position = position if position is not None and position.heads else None
        self.reference = reference.new_empty(
            ()
        )  # dtype and device only: an AttentionBias outlives the pass when it is watched
        heads = {"H": reference.shape[1]} if reference.dim() == 4 else {}  # reference: x [B, T, D] or q [B, H, T, K]
        sizes = {"B": reference.shape[0], "T": queries, "S": keys, **heads}
        self.rules = [_at_offset(rule, self.first) for rule in _check_mask(mask).rules]
        for rule in self.rules:
            check_shape(rule, sizes)
        if queries == 1 and not crossing:  # one step of decoding: all keys lie behind it
            self.rules = [rule for rule in self.rules if not isinstance(rule, CausalRule)]
        others = [rule for rule in self.rules if not isinstance(rule, CausalRule)]
        windows = [rule.width for rule in others if isinstance(rule, WindowRule)]
        self.width = min(windows) if windows else None
        # Besides causal, everything may speak of keys alone: then no T x S table is needed.
        by_key = self.position is None and all(rule.keys_only for rule in others)
        self.causal = by_key and len(others) < len(self.rules) and queries == keys and not crossing
        by_key = by_key and (self.causal or len(others) == len(self.rules))
        tables = (self.position.heads if self.position else 1) * (reference.shape[0] if others else 1)
        # Rows pay once a window sees little of the keys: 4 was measured; between 2 and 8 it hardly matters.
        narrow = self.width is not None and not crossing and keys > 4 * self.width
        self.by_rows = narrow or (not by_key and tables * queries * keys > LARGEST_TABLE)
        if by_key:
            here = torch.zeros(1, 1, dtype=torch.long, device=reference.device)
            self.add = _add_rules(others, None, here, torch.arange(keys, device=reference.device)[None], self.reference)
        else:
            self.add = None if self.by_rows else self.rows(0, queries)

    @classmethod
    def lower(
        cls,
        mask: Mask | AttentionBias | None,
        q: Tensor,
        k: Tensor,
        position: PositionEncoding | None,
        *,
        crossing: bool,
    ) -> AttentionBias:
        """Fit a mask and a position bias to q [B,H,T,K] and k [B,G,S,K], unless the body has, for all its layers."""
        return mask if isinstance(mask, AttentionBias) else cls(mask, q.shape[2], k.shape[2], q, position, crossing)

    def select_heads(self, heads: tuple[int, ...]) -> AttentionBias:
        """What some of the heads see: the same, where no head has a bias or a mask of its own."""
        if self.position is None and not any(_by_head(rule) for rule in self.rules):
            return self
        some, chosen = copy(self), list(heads)
        some.position = None if self.position is None else HeadSubset(self.position, heads)
        some.rules = [KeepRule(r.table[:, chosen], r.first) if _by_head(r) else r for r in self.rules]
        some.add = None if self.add is None else self.add[:, chosen]
        for kept in ("dense", "has_empty_rows"):
            some.__dict__.pop(kept, None)
        return some

    def table(self) -> Tensor | None:
        """Everything that is added to the scores, [B|1, H|1, T|1, S]."""
        return self.rows(0, self.queries) if self.causal or self.by_rows else self.add

    @cached_property
    def dense(self) -> Tensor | None:
        """The table, kept: all layers of a pass ask for it."""
        return self.table()

    @cached_property
    def has_empty_rows(self) -> bool:
        """Does a query see nothing at all?"""
        return self.dense is not None and bool((self.dense.amax(-1) == float("-inf")).any())

    def key_padding(self) -> Tensor | None:
        """Which keys of each row are real, [B, S], as far as the mask says it by key; None: all."""
        look = None
        for rule in self.rules:
            if rule.keys_only:
                seen = rule.allows(
                    torch.zeros(1, dtype=torch.long), torch.arange(self.keys, device=self.reference.device)
                )[:, 0]
                look = seen if look is None else look & seen
        return look

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """The keys that queries start..stop can see at most."""
        low, high = 0, self.keys
        if self.width is not None:
            low = max(0, self.first + start - self.width + 1)
            high = min(high, self.first + stop + self.width - 1)
        if CausalRule() in self.rules:
            high = min(high, self.first + stop)
        return low, high

    def rows(self, start: int, stop: int, low: int = 0, high: int | None = None) -> Tensor | None:
        """What is added to the scores of queries start..stop over keys low..high, all rules and the bias counted."""
        device = self.reference.device
        t = torch.arange(self.first + start, self.first + stop, device=device)[:, None]
        return self.pairs(t, torch.arange(low, self.keys if high is None else high, device=device)[None])

    def pairs(self, t: Tensor, s: Tensor) -> Tensor | None:
        """What is added to the score of a query at position t and a key at s, for any t and s that broadcast."""
        return _add_rules(self.rules, self.position, t, s, self.reference)


def _add_rules(
    rules: Sequence[Rule], position: PositionEncoding | None, t: Tensor, s: Tensor, reference: Tensor
) -> Tensor | None:
    bias = None if position is None else position.bias(t, s).to(reference.dtype)
    if not rules:
        return bias
    look = rules[0].allows(t, s)
    for rule in rules[1:]:
        look = look & rule.allows(t, s)
    return torch.where(look, torch.zeros_like(reference) if bias is None else bias, float("-inf"))


def _by_head(rule: Rule) -> TypeGuard[KeepRule]:
    return isinstance(rule, KeepRule) and rule.table.dim() == 4 and rule.table.shape[1] > 1


def _at_offset(rule: Rule, first: int) -> Rule:
    return KeepRule(rule.table, first) if isinstance(rule, KeepRule) else rule


def _check_mask(mask: Mask | None) -> Mask:
    if mask is None:
        return Mask()
    if not isinstance(mask, Mask):
        raise ValueError(
            f"mask is a {type(mask).__name__}, which does not say whether True means look or hide; wrap it: "
            "Mask.keep(tensor) with True = may look, or use Mask.causal(), Mask.lengths(n), Mask.window(w), "
            "Mask.segments(ids), Mask.prefix(n)"
        )
    return mask
