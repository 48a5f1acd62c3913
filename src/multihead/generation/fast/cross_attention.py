"""Cross-attention to a memory that is constant during decoding.

Scores are (x Wq + b) Kᵀ = x (Wq Kᵀ) + b Kᵀ, and the output is weights (V Wo): with the products precomputed, a step
multiplies by two matrices as wide as the source, without keys and values. The weights of a head sum to one, so the
output bias, divided among the heads, is added to V Wo.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from multihead.attention import MultiHeadAttention


class PrecomputedCrossAttention(NamedTuple):
    """Precomputed products of one layer and one source: G key/value heads of R queries each, S tokens."""

    base: Tensor  # [G*R*S]
    looks: Tensor  # [D, G*R*S]
    gives: Tensor  # [G*R*S, D]
    heads: int
    length: int

    def __call__(self, x: Tensor, add: Tensor) -> Tensor:
        """Attend from x [N, D] to the memory and add the result to add [N, D]."""
        scores = torch.addmm(self.base, x, self.looks)
        weights = torch.softmax(scores.view(-1, self.heads, self.length), dim=2)
        return torch.addmm(add, weights.view(scores.shape), self.gives)


class CrossAttentionWeights:
    """Query and output weights of L layers for the precomputation, arranged on first use."""

    def __init__(self, attentions: Sequence[MultiHeadAttention]) -> None:
        self.attentions, first = attentions, attentions[0]
        self.L, self.G, self.R, self.K = (
            len(attentions),
            first.kv_heads,
            first.heads // first.kv_heads,
            first.key_dims[0],
        )
        self.width = first.heads * first.out.out_features  # matrix entries per source token

    @cached_property
    def queries(self) -> Tensor:
        """Query weights [L*G, R*(D+1), K]."""
        asks = torch.stack(
            [_with_bias(attention) * attention.scale for attention in self.attentions]
        )  # [L, G*R*K, D+1]
        return asks.view(self.L * self.G, self.R, self.K, -1).transpose(2, 3).flatten(1, 2)

    @cached_property
    def outputs(self) -> Tensor:
        """Output weights [L*G, K, R*D]."""
        tells = torch.stack([attention.out.weight.t() for attention in self.attentions])  # [L, G*R*K, D]
        return tells.reshape(self.L * self.G, self.R, self.K, -1).transpose(1, 2).flatten(2)

    @cached_property
    def share(self) -> Tensor:
        """Each head's share of the output bias [L, 1, D]."""
        biases: list[Tensor | None] = [attention.out.bias for attention in self.attentions]
        none = self.outputs.new_zeros(self.width // (self.G * self.R))
        return torch.stack([none if bias is None else bias for bias in biases])[:, None] / (self.G * self.R)

    def for_source(self, keys: Tensor, values: Tensor) -> list[PrecomputedCrossAttention]:
        """Precompute for the keys [L*G, K, S] and values [L*G, S, K] of one source."""
        L, G, R, S = self.L, self.G, self.R, keys.shape[2]
        looks = torch.bmm(self.queries, keys).view(L, G, R, -1, S).permute(0, 3, 1, 2, 4).reshape(L, -1, G * R * S)
        gives = torch.bmm(values, self.outputs).view(L, G, S, R, -1).transpose(2, 3).reshape(L, G * R * S, -1)
        gives += self.share
        return [
            PrecomputedCrossAttention(look[-1], look[:-1], give, G * R, S)
            for look, give in zip(looks, gives, strict=True)
        ]


def _with_bias(attention: MultiHeadAttention) -> Tensor:
    """Return the query weights [G*R*K, D] with the bias as an extra column."""
    weight, bias = attention.q.weight, attention.q.bias
    return torch.cat((weight, weight.new_zeros(len(weight), 1) if bias is None else bias[:, None]), dim=1)
