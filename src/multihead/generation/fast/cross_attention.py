"""Cross-attention on a memory that stays as it is while a text is written.

Scores are (x Wq + b) Kᵀ = x (Wq Kᵀ) + b Kᵀ, and what comes out is weights (V Wo): with the brackets worked out once, a
step multiplies by two tables as wide as the source, with no keys and values between. The weights of a head sum to one,
so the output's bias, shared out among the heads, is added to V Wo.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from multihead.attention import MultiHeadAttention


class PrecomputedCrossAttention(NamedTuple):
    """Of one layer and one source: G key/value heads of R queries each, S tokens."""

    base: Tensor  # [G*R*S]
    looks: Tensor  # [D, G*R*S]
    gives: Tensor  # [G*R*S, D]
    heads: int
    length: int

    def __call__(self, x: Tensor, add: Tensor) -> Tensor:
        """x [N, D] looks at the memory; what it finds and add [N, D]"""
        scores = torch.addmm(self.base, x, self.looks)
        weights = torch.softmax(scores.view(-1, self.heads, self.length), dim=2)
        return torch.addmm(add, weights.view(scores.shape), self.gives)


class CrossAttentionWeights:
    """The weights of L layers for it: what asks, and what is told; laid out when they are first wanted."""

    def __init__(self, attentions: Sequence[MultiHeadAttention]) -> None:
        self.attentions, one = attentions, attentions[0]
        self.L, self.G, self.R, self.K = len(attentions), one.kv_heads, one.heads // one.kv_heads, one.key_dims[0]
        self.width = one.heads * one.out.out_features  # numbers in a table for each token of the source

    @cached_property
    def queries(self) -> Tensor:
        """[L*G, R*(D+1), K]"""
        asks = torch.stack([_with_bias(one) * one.scale for one in self.attentions])  # [L, G*R*K, D+1]
        return asks.view(self.L * self.G, self.R, self.K, -1).transpose(2, 3).flatten(1, 2)

    @cached_property
    def outputs(self) -> Tensor:
        """[L*G, K, R*D]"""
        tells = torch.stack([one.out.weight.t() for one in self.attentions])  # [L, G*R*K, D]
        return tells.reshape(self.L * self.G, self.R, self.K, -1).transpose(1, 2).flatten(2)

    @cached_property
    def share(self) -> Tensor:
        """[L, 1, D]: of the output's bias, for each head"""
        biases: list[Tensor | None] = [one.out.bias for one in self.attentions]
        none = self.outputs.new_zeros(self.width // (self.G * self.R))
        return torch.stack([none if bias is None else bias for bias in biases])[:, None] / (self.G * self.R)

    def for_source(self, keys: Tensor, values: Tensor) -> list[PrecomputedCrossAttention]:
        """keys [L*G, K, S], values [L*G, S, K] of one source"""
        L, G, R, S = self.L, self.G, self.R, keys.shape[2]
        looks = torch.bmm(self.queries, keys).view(L, G, R, -1, S).permute(0, 3, 1, 2, 4).reshape(L, -1, G * R * S)
        gives = torch.bmm(values, self.outputs).view(L, G, S, R, -1).transpose(2, 3).reshape(L, G * R * S, -1)
        gives += self.share
        return [
            PrecomputedCrossAttention(look[-1], look[:-1], give, G * R, S)
            for look, give in zip(looks, gives, strict=True)
        ]


def _with_bias(attention: MultiHeadAttention) -> Tensor:
    """The queries' weights [G*R*K, D], and their bias as one column more."""
    weight, bias = attention.q.weight, attention.q.bias
    return torch.cat((weight, weight.new_zeros(len(weight), 1) if bias is None else bias[:, None]), dim=1)
