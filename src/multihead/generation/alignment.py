"""Alignment of target tokens with source tokens by cross-attention weights over a finished text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from multihead.attention import AttentionRecord
from multihead.models import EncoderDecoder, TaskModel


@torch.no_grad()
def align_tokens(
    model: TaskModel,
    tokens: Tensor,
    memory: Tensor,
    memory_keep: Tensor | None = None,
    *,
    layers: Sequence[int] | None = None,
) -> Tensor:
    """Map tokens [B, T] (start token and text) to weights [B, T - 1, S]: rows with sum 1, one per generated token.

    Row t is the attention when tokens[:, t + 1] was predicted: the mean over all heads of `layers`, by default the last
    but one, whose heads align words best (Garg et al. 2019). Padding of tokens is on the right.
    """
    if not isinstance(model.body, EncoderDecoder):
        raise ValueError(f"a {type(model.body).__name__} has no source; alignment needs an EncoderDecoder")
    blocks: list[Any] = list(model.body.decoder.stack.blocks)
    chosen = [max(0, len(blocks) - 2)] if layers is None else [range(len(blocks))[layer] for layer in layers]
    layer_weights: list[Tensor] = []

    def tap(attended: AttentionRecord) -> Tensor:
        layer_weights.append(_mean(attended))
        return attended.mixed

    for layer in chosen:
        blocks[layer].cross.taps.append(tap)
    try:
        model.body.decoder(tokens[:, :-1], memory=memory, memory_keep=memory_keep)
    finally:
        for layer in chosen:
            blocks[layer].cross.taps.remove(tap)
    return torch.stack(layer_weights).mean(dim=0)


def _mean(attended: AttentionRecord) -> Tensor:
    """Return the mean of the weights over heads, [B, T, S]."""
    q, k = attended.q, attended.k
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = q @ k.transpose(-1, -2) * attended.scale
    add = attended.bias.table()
    weights = torch.softmax(scores if add is None else scores + add, dim=-1)
    return weights.nan_to_num(0.0).mean(dim=1)  # a source with only padding
