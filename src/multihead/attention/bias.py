"""The mask and position bias of one forward pass, lowered to what the attention kernels take.

A body makes one `AttentionBias` per forward pass and passes it to all its layers. Its cost is decided here, from shapes
and rule types alone (never from values, so compiled graphs do not break): nothing, a causal flag, one row of keys, or a
full [T, S] table. A table that is too large is built in blocks of rows when a kernel asks for them.
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
    """The additive attention bias of T queries over S keys.

    In self-attention the queries are the last T of S positions; in cross-attention (`crossing`) their positions are
    independent of the keys.

    causal: the kernel's own causal flag applies, on top of `add`.
    add: the bias added to the scores, [B|1, H|1, T|1, S]; 0 or -inf for a mask; None = no bias.
    by_rows: `add` would be too large or mostly -inf; kernels call `rows` instead.
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
        # dtype and device only: an AttentionBias outlives the pass when attention is recorded
        self.reference = reference.new_empty(())
        heads = {"H": reference.shape[1]} if reference.dim() == 4 else {}  # reference: x [B, T, D] or q [B, H, T, K]
        sizes = {"B": reference.shape[0], "T": queries, "S": keys, **heads}
        self.rules = [_at_offset(rule, self.first) for rule in _check_mask(mask).rules]
        for rule in self.rules:
            check_shape(rule, sizes)
        if queries == 1 and not crossing:  # one decoding step: every key is at or before the query
            self.rules = [rule for rule in self.rules if not isinstance(rule, CausalRule)]
        others = [rule for rule in self.rules if not isinstance(rule, CausalRule)]
        windows = [rule.width for rule in others if isinstance(rule, WindowRule)]
        self.width = min(windows) if windows else None
        # If all rules other than causal depend on the key alone, no T x S table is needed.
        by_key = self.position is None and all(rule.keys_only for rule in others)
        self.causal = by_key and len(others) < len(self.rules) and queries == keys and not crossing
        by_key = by_key and (self.causal or len(others) == len(self.rules))
        tables = (self.position.heads if self.position else 1) * (reference.shape[0] if others else 1)
        # Blocks of rows pay off once the window covers few of the keys: measured at 4; 2 to 8 differ little.
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
        """Lower a mask and a position bias for q [B,H,T,K] and k [B,G,S,K]; return an `AttentionBias` as it is."""
        return mask if isinstance(mask, AttentionBias) else cls(mask, q.shape[2], k.shape[2], q, position, crossing)

    def select_heads(self, heads: tuple[int, ...]) -> AttentionBias:
        """Return the bias of some heads; itself where no rule or position bias differs by head."""
        if self.position is None and not any(_by_head(rule) for rule in self.rules):
            return self
        subset, chosen = copy(self), list(heads)
        subset.position = None if self.position is None else HeadSubset(self.position, heads)
        subset.rules = [KeepRule(r.table[:, chosen], r.first) if _by_head(r) else r for r in self.rules]
        subset.add = None if self.add is None else self.add[:, chosen]
        for cached in ("dense", "has_empty_rows"):
            subset.__dict__.pop(cached, None)
        return subset

    def table(self) -> Tensor | None:
        """Return everything that is added to the scores, [B|1, H|1, T|1, S], or None."""
        return self.rows(0, self.queries) if self.causal or self.by_rows else self.add

    @cached_property
    def dense(self) -> Tensor | None:
        """The result of `table`, cached because every layer of a pass uses it."""
        return self.table()

    @cached_property
    def has_empty_rows(self) -> bool:
        """Whether some query may attend to no key at all."""
        return self.dense is not None and bool((self.dense.amax(-1) == float("-inf")).any())

    def key_padding(self) -> Tensor | None:
        """Return which keys of each example are real tokens [B, S], from the rules that depend on the key alone; None =
        all.
        """
        allowed = None
        for rule in self.rules:
            if rule.keys_only:
                by_rule = rule.allows(
                    torch.zeros(1, dtype=torch.long), torch.arange(self.keys, device=self.reference.device)
                )[:, 0]
                allowed = by_rule if allowed is None else allowed & by_rule
        return allowed

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of keys (low, high) that queries start..stop can attend to."""
        low, high = 0, self.keys
        if self.width is not None:
            low = max(0, self.first + start - self.width + 1)
            high = min(high, self.first + stop + self.width - 1)
        if CausalRule() in self.rules:
            high = min(high, self.first + stop)
        return low, high

    def rows(self, start: int, stop: int, low: int = 0, high: int | None = None) -> Tensor | None:
        """Return the bias of queries start..stop over keys low..high: all rules and the position bias."""
        device = self.reference.device
        t = torch.arange(self.first + start, self.first + stop, device=device)[:, None]
        return self.pairs(t, torch.arange(low, self.keys if high is None else high, device=device)[None])

    def pairs(self, t: Tensor, s: Tensor) -> Tensor | None:
        """Return the bias of queries at positions t and keys at positions s; t and s may have any shapes that
        broadcast.
        """
        return _add_rules(self.rules, self.position, t, s, self.reference)


def _add_rules(
    rules: Sequence[Rule], position: PositionEncoding | None, t: Tensor, s: Tensor, reference: Tensor
) -> Tensor | None:
    bias = None if position is None else position.bias(t, s).to(reference.dtype)
    if not rules:
        return bias
    allowed = rules[0].allows(t, s)
    for rule in rules[1:]:
        allowed = allowed & rule.allows(t, s)
    return torch.where(allowed, torch.zeros_like(reference) if bias is None else bias, float("-inf"))


def _by_head(rule: Rule) -> TypeGuard[KeepRule]:
    return isinstance(rule, KeepRule) and rule.table.dim() == 4 and rule.table.shape[1] > 1


def _at_offset(rule: Rule, first: int) -> Rule:
    return KeepRule(rule.table, first) if isinstance(rule, KeepRule) else rule


def _check_mask(mask: Mask | None) -> Mask:
    if mask is None:
        return Mask()
    if not isinstance(mask, Mask):
        raise ValueError(
            f"mask is a {type(mask).__name__}, where True could mean attend or ignore; wrap it: "
            "Mask.keep(tensor) with True = may attend, or use Mask.causal(), Mask.lengths(n), Mask.window(w), "
            "Mask.segments(ids), Mask.prefix(n)"
        )
    return mask
