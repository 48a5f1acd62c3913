"""Low-rank adaptation (LoRA, Hu et al. 2021): W + 2·up·down, where W is frozen.

As in the paper, query and value projections are adapted; keys, outputs, feed-forward, norms and biases are frozen, and
the readout is fully trained. An update is a parametrization of the weight: reading `attention.q.weight` gives the sum,
so that other code needs no changes.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from multihead.attention import MultiHeadAttention

SCALE = 2.0  # the paper's alpha / rank, at any rank, so that one learning rate fits all ranks


class LoRAWeight(nn.Module):
    """The weight [out, in] plus up [out, rank] · down [rank, in]; initially no change, since up is zero."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(weight.new_empty(rank, weight.shape[1]))
        self.up = nn.Parameter(weight.new_zeros(weight.shape[0], rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        return torch.addmm(weight, self.up, self.down, alpha=SCALE)


def add_updates(body: nn.Module, rank: int, old: AbstractSet[int]) -> None:
    """Adapt q and v of every attention with pretrained weights (`old`, by id); new ones are fully trained."""
    for linear in _projections(body):
        if id(linear.weight) not in old:
            continue
        if rank > min(linear.weight.shape):
            raise ValueError(
                f"train.lora is {rank}; it must not exceed the rank of a weight of {list(linear.weight.shape)}"
            )
        parametrize.register_parametrization(linear, "weight", LoRAWeight(linear.weight, rank))


def merge_updates(body: nn.Module) -> None:
    """Merge every update into its weight; without updates, nothing changes."""
    for linear in _projections(body):
        if parametrize.is_parametrized(linear, "weight"):
            parametrize.remove_parametrizations(linear, "weight", leave_parametrized=True)


def _projections(body: nn.Module) -> list[nn.Linear]:
    attentions = [module for module in body.modules() if isinstance(module, MultiHeadAttention)]
    return [linear for attention in attentions for linear in (attention.q, attention.v)]
