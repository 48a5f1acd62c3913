"""Transformer blocks and stacks of blocks: attention and feed-forward, each with a residual connection and a norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from multihead.attention import (
    Alibi,
    AttentionBias,
    KVCache,
    Mask,
    MultiHeadAttention,
    PositionEncoding,
    RelativeBias,
    Rotary,
)
from multihead.kernels.dropout import add_dropout
from multihead.models.config import ModelConfig
from multihead.models.feed_forward import FeedForward
from multihead.models.norm import make_norm


def layer_scale_of(config: ModelConfig) -> nn.Parameter | None:
    """LayerScale (Touvron et al. 2021): a factor per column [D] of what a part of a block adds."""
    if config.layer_scale is None:
        return None
    return nn.Parameter(torch.full((config.dim,), float(config.layer_scale)))


def make_attention(
    config: ModelConfig,
    memory_dim: int | None = None,
    kept_heads: tuple[int, ...] | None = None,
    head_widths: tuple[int, int] | None = None,
) -> MultiHeadAttention:
    """Return an attention layer of a config.

    kept_heads: the heads that pruning left; heads that share keys stay together.
    head_widths: the widths of their keys and values.
    """
    heads, kv_heads = config.heads, config.kv_heads
    if kept_heads is not None:
        heads, kv_heads = len(kept_heads), None if kv_heads is None else len(kept_heads) * kv_heads // heads
    key_dim, value_dim = head_widths or (config.head_width, config.value_width)
    attention = MultiHeadAttention(
        config.dim,
        heads,
        kv_heads=kv_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        memory_dim=memory_dim,
        bias=config.attention_bias,
        scale=config.scale,
        qk_norm=config.qk_norm,
        dropout=config.attention_dropout,
    )
    if not isinstance(config.scale, float | int):
        attention.scale = config.head_width**-0.5  # from the width of the unpruned head
    return attention


def make_position_encoding(config: ModelConfig, causal: bool) -> PositionEncoding | None:
    """Return the position encoding inside attention; absolute positions belong to the stem."""
    if config.positions == "rotary":
        length = min(config.max_length, 4096)  # of the table; angles beyond it are computed when needed
        return Rotary(config.head_width, config.rotary_theta, config.rotary_scaling, length)
    if config.positions == "alibi":
        return Alibi(config.heads)
    if config.positions == "relative":
        return RelativeBias(config.heads, config.relative_buckets, config.relative_farthest, both_sides=not causal)
    return None


class TransformerBlock(nn.Module):
    """x + f(norm(x)) with norm_first, norm(x + f(x)) otherwise; f = attention, cross-attention, feed-forward."""

    address = ""  # stack and layer, as in `encoder.2`: the name of its heads and of its KV cache

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        super().__init__()
        self.norm_first, self.dropout = config.norm_first, config.dropout
        self.kept_heads, self.kept_cross_heads = (
            None if k is None else k[layer] for k in (config.kept_heads, config.kept_cross_heads)
        )
        self_widths, cross_widths = (
            None if w is None else w[layer] for w in (config.head_widths, config.cross_head_widths)
        )
        self.attention, self.attention_norm = (
            make_attention(config, None, self.kept_heads, self_widths),
            make_norm(config),
        )
        self.cross = (
            make_attention(config, config.memory_dim, self.kept_cross_heads, cross_widths)
            if config.memory_dim
            else None
        )
        self.cross_norm = make_norm(config) if config.memory_dim else None
        inner = None if config.ffn_widths is None else config.ffn_widths[layer]
        self.feed_forward, self.feed_forward_norm = FeedForward(config, inner), make_norm(config)
        self.attention_scale, self.feed_forward_scale = (layer_scale_of(config) for _ in range(2))
        if config.norm_first:  # every block adds to one stream: small outputs at the start, so depth does not grow it
            outputs = [self.attention.out, self.feed_forward.down, *([] if self.cross is None else [self.cross.out])]
            for linear in outputs:
                linear.weight.data.mul_((2 * config.layers) ** -0.5)

    def forward(
        self,
        x: Tensor,
        bias: AttentionBias,
        position: PositionEncoding | None = None,
        memory: Tensor | None = None,
        memory_bias: AttentionBias | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Apply the block to x [B, T, D] and return [B, T, D]."""
        self_cache, cross_cache = (
            (None, None) if cache is None else (cache[self.address], cache[self.address + ".cross"])
        )
        if self.kept_heads is not None:
            bias = bias.select_heads(self.kept_heads)
        y = self.attention(self._pre_norm(self.attention_norm, x), mask=bias, position=position, cache=self_cache)
        x = self._post_norm(self.attention_norm, x, y, self.attention_scale)
        if self.cross is not None and self.cross_norm is not None:
            if memory is None:
                raise ValueError(
                    "this decoder has cross-attention and needs an encoder's output; pass memory=encoder(source)"
                )
            y = self.cross(self._pre_norm(self.cross_norm, x), memory, mask=memory_bias, cache=cross_cache)
            x = self._post_norm(self.cross_norm, x, y)
        y = self.feed_forward(self._pre_norm(self.feed_forward_norm, x))
        return self._post_norm(self.feed_forward_norm, x, y, self.feed_forward_scale)

    def _pre_norm(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x) if self.norm_first else x

    def _post_norm(self, norm: nn.Module, x: Tensor, y: Tensor, scale: Tensor | None = None) -> Tensor:
        if scale is not None:
            y = y * scale
        x = add_dropout(x, y, self.dropout, self.training)
        return x if self.norm_first else norm(x)


class TransformerStack(nn.Module):
    """A sequence of blocks; what all layers share (mask, position bias) is computed once per pass."""

    checkpointing = False  # True: gradient checkpointing; activations inside blocks are recomputed in the backward pass

    def __init__(self, config: ModelConfig, name: str, causal: bool) -> None:
        super().__init__()
        self.causal, self.window = causal, config.window
        blocks = [TransformerBlock(config, layer) for layer in range(config.layers)]
        for layer, block in enumerate(blocks):
            block.address = f"{name}.{layer}"
        self.blocks = nn.ModuleList(blocks)
        self.position = make_position_encoding(config, causal)
        final = config.norm_first if config.final_norm is None else config.final_norm
        self.norm = make_norm(config) if final else nn.Identity()

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Apply all blocks to x [B, T, D] and return [B, T, D]; `mask` covers x and the cached tokens, `memory_mask`
        the memory.
        """
        mask = Mask() if mask is None else mask
        if self.causal:
            mask = Mask.causal() & mask
        if self.window is not None:
            mask = mask & Mask.window(self.window)
        T = x.shape[1]
        bias = AttentionBias(mask, T, T + (cache.length if cache else 0), x, self.position)
        memory_bias = None if memory is None else AttentionBias(memory_mask, T, memory.shape[1], x, crossing=True)
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block, x, bias, self.position, memory, memory_bias, cache, use_reentrant=False)
            else:
                x = block(x, bias, self.position, memory, memory_bias, cache)
        return self.norm(x)
