"""Multi-head attention (Vaswani et al. 2017, section 3.2.2): project, split, position, attend, merge, project."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.attention.bias import AttentionBias
from multihead.attention.functional import attend
from multihead.attention.kv_cache import LayerKVCache
from multihead.attention.mask import Mask
from multihead.attention.position import PositionEncoding


class AttentionRecord(NamedTuple):
    """Inputs and outputs of one attention call: enough to rebuild any weight, exp(q·k·scale + add - lse)."""

    q: Tensor  # [B, H, T, K]
    k: Tensor  # [B, G, S, K]
    v: Tensor  # [B, G, S, W]
    mixed: Tensor  # [B, H, T, W]
    lse: Tensor | None  # [B, H, T]
    bias: AttentionBias
    scale: float

    def upcast(self) -> AttentionRecord:
        """Return the record with q and k in at least fp32, like the lse: weights from 16-bit q and k would not sum to
        1.
        """
        if self.q.dtype.itemsize >= 4:
            return self
        return self._replace(q=self.q.float(), k=self.k.float())


class MultiHeadAttention(nn.Module):
    """Multi-head self- or cross-attention with grouped, ragged, normalized or biased heads.

    Arguments:
        dim: width D of the input.
        heads: number of query heads H.
        kv_heads: number of key/value heads G, each shared by H / G query heads (1 = multi-query); None = H.
        key_dim, value_dim: one width, or one per head (ragged heads, as pruning leaves them); None = D / H.
        memory_dim: width of `memory` in cross-attention; None = D.
        out_dim: width of the output; None = D.
        bias: which projections have a bias: True, False, or letters of "qkvo".
        scale: factor on the scores (default key_dim ** -0.5), or "learned", one per head.
        qk_norm: "rms" or "layer" normalization of each head's q and k.
        dropout: probability of dropping an attention weight; above 0, training on the CPU leaves the fused kernel.

    Example:
        >>> attention = MultiHeadAttention(512, 8, kv_heads=2)
        >>> attention(torch.randn(4, 10, 512), mask=Mask.causal()).shape
        torch.Size([4, 10, 512])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        key_dim: int | Sequence[int] | None = None,
        value_dim: int | Sequence[int] | None = None,
        memory_dim: int | None = None,
        out_dim: int | None = None,
        bias: bool | str = True,
        scale: float | Literal["learned"] | None = None,
        qk_norm: Literal["rms", "layer"] | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.dim, self.memory_dim, self.dropout = dim, memory_dim or dim, dropout
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.key_dims = head_widths("key_dim", key_dim, dim, heads, self.kv_heads)
        self.value_dims = head_widths("value_dim", value_dim or key_dim, dim, heads, self.kv_heads)
        biased = bias_letters(bias)
        self.q = nn.Linear(dim, sum(self.key_dims), "q" in biased)
        self.k = nn.Linear(self.memory_dim, sum(self.key_dims[: self.kv_heads]), "k" in biased)
        self.v = nn.Linear(self.memory_dim, sum(self.value_dims[: self.kv_heads]), "v" in biased)
        self.out = nn.Linear(sum(self.value_dims), out_dim or dim, "o" in biased)
        init_projections(self.q, self.k, self.v, self.out)
        self.q_norm, self.k_norm = head_norm(qk_norm, self.key_dims), head_norm(qk_norm, self.key_dims)
        self.scale = scale if isinstance(scale, float | int) else self.key_dims[0] ** -0.5
        self.head_scale: Tensor | None  # on top of scale: learned, or from the width of each ragged head
        register_head_scale(self, scale)
        # Hooks: each receives the record and returns `mixed`; `watch` reads here, `ablate` changes `mixed`.
        self.taps: list[Callable[[AttentionRecord], Tensor]] = []

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | AttentionBias | None = None,
        position: PositionEncoding | None = None,
        cache: LayerKVCache | None = None,
    ) -> Tensor:
        """Attend from x to itself, or to a memory.

        Arguments:
            x: input [B, T, D].
            memory: input of keys and values in cross-attention [B, S, memory_dim]; None = self-attention.
            mask: a `Mask`, or a mask and position bias already lowered for all layers (`AttentionBias`).
            position: a position encoding, in self-attention only.
            cache: the layer's KV cache in decoding.

        Returns:
            The output [B, T, out_dim].
        """
        check_inputs(x, self.dim, memory, self.memory_dim, position)
        q = self.q_norm(split(self.q(x), self.key_dims))  # [B, H, T, K]
        if memory is None:
            k, v = self._keys_values(x)  # [B, G, T, K], [B, G, T, W]
            q, k = rotate(position, q, k, cache)
            k, v = extend(cache, k, v)  # [B, G, S, K], [B, G, S, W]
        else:
            k, v = self._keys_values(memory) if cache is None else cache.project_once(lambda: self._keys_values(memory))
        q = q if self.head_scale is None else q * self.head_scale
        lowered = AttentionBias.lower(mask, q, k, position, crossing=memory is not None)
        dropout = self.dropout * self.training
        mixed, lse = attend(
            q, k, v, lowered, scale=self.scale, dropout=dropout, need_lse=bool(self.taps)
        )  # [B, H, T, W]
        for tap in self.taps:
            mixed = tap(AttentionRecord(q, k, v, mixed, lse, lowered, self.scale))
        return self.out(merge(mixed, self.value_dims))

    def _keys_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        k, v = self.k(source), self.v(source)
        return self.k_norm(split(k, self.key_dims[: self.kv_heads])), split(v, self.value_dims[: self.kv_heads])


def check_inputs(
    x: Tensor, dim: int, memory: Tensor | None, memory_dim: int, position: PositionEncoding | None
) -> None:
    """Raise ValueError for inputs whose shapes do not fit."""
    for name, tensor, width in (("x", x, dim), ("memory", memory, memory_dim)):
        if tensor is not None and (tensor.dim() != 3 or tensor.shape[-1] != width):
            raise ValueError(f"{name} is {list(tensor.shape)}, this attention takes [batch, length, {width}]")
    if memory is not None and position is not None:
        raise ValueError("position applies to self-attention only; leave it out when memory is given")
    if memory is not None and len(memory) != len(x):
        raise ValueError(
            f"memory has {len(memory)} examples, x has {len(x)}; use as many, with expand for a single one"
        )


def rotate(
    position: PositionEncoding | None, q: Tensor, k: Tensor, cache: LayerKVCache | None
) -> tuple[Tensor, Tensor]:
    """Apply the position encoding to q and k, whose positions follow the tokens in the cache."""
    if position is None:
        return q, k
    offset = 0 if cache is None else cache.length
    return position.rotate(q, offset), position.rotate(k, offset)


def extend(cache: LayerKVCache | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Append to the cache, if there is one, and return all keys and values."""
    return (k, v) if cache is None else cache.append(k, v)


def bias_letters(bias: bool | str) -> str:
    """Return which of the projections q, k, v and o (out) have a bias."""
    letters = bias if isinstance(bias, str) else "qkvo" * bias
    if {*letters} - {*"qkvo"}:
        raise ValueError(f"bias={bias!r}: True, False, or letters of 'qkvo'")
    return letters


def init_projections(*layers: nn.Linear) -> None:
    """Initialize with Xavier weights and zero biases, as in the paper's code."""
    for linear in layers:
        nn.init.xavier_uniform_(linear.weight)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)


def head_norm(kind: Literal["rms", "layer"] | None, widths: Sequence[int]) -> nn.Module:
    """Return the normalization of each head's q or k; all heads share its parameters."""
    if kind is not None and min(widths) != max(widths):
        raise ValueError(f"qk_norm={kind!r} needs the same key width in all heads, not {list(widths)}")
    return {None: nn.Identity, "rms": nn.RMSNorm, "layer": nn.LayerNorm}[kind](widths[0])


def register_head_scale(attention: MultiHeadAttention, scale: float | Literal["learned"] | None) -> None:
    """Register `head_scale` [H, 1, 1]: a parameter, a constant of ragged heads, or None."""
    widths = attention.key_dims
    relative = (torch.tensor(widths).view(-1, 1, 1) / widths[0]) ** -0.5
    ragged = scale is None and min(widths) != max(widths)
    attention.register_buffer("head_scale", relative if ragged else None, persistent=False)
    if scale == "learned":
        attention.head_scale = nn.Parameter(relative)


def split(x: Tensor, widths: Sequence[int]) -> Tensor:
    """Split [B, T, sum of widths] into heads [B, H, T, widest]; narrower heads are padded with zeros."""
    if min(widths) == max(widths):
        return x.unflatten(-1, (len(widths), widths[0])).transpose(1, 2)
    parts = x.split(tuple(widths), dim=-1)
    return torch.stack([F.pad(part, (0, max(widths) - part.shape[-1])) for part in parts], dim=1)


def merge(mixed: Tensor, widths: Sequence[int]) -> Tensor:
    """Merge heads [B, H, T, widest] into [B, T, sum of widths]; the inverse of `split`."""
    if min(widths) == max(widths):
        return mixed.transpose(1, 2).flatten(2)
    return torch.cat([mixed[:, head, :, :width] for head, width in enumerate(widths)], dim=-1)


def head_widths(name: str, widths: int | Sequence[int] | None, dim: int, heads: int, kv_heads: int) -> tuple[int, ...]:
    """Return one width per head; raise ValueError for widths that do not fit the heads."""
    if heads < 1 or heads % kv_heads:
        raise ValueError(f"heads={heads} is not a multiple of kv_heads={kv_heads}; every group needs the same count")
    if widths is None and dim % heads:
        raise ValueError(f"dim={dim} is not a multiple of heads={heads}; change one of them, or give {name}=")
    if widths is None or isinstance(widths, int):
        return (widths or dim // heads,) * heads
    if len(widths) != heads or min(widths) < 1:
        raise ValueError(f"{name}={list(widths)} needs one width of at least 1 for each of the {heads} heads")
    if kv_heads != heads and min(widths) != max(widths):
        raise ValueError(f"{name}={list(widths)}: heads that share keys (kv_heads={kv_heads}) share one width")
    return tuple(widths)
