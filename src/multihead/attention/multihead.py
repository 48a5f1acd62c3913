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
    """What one call of attention saw and gave: enough to rebuild any weight, exp(q·k·scale + add - lse)."""

    q: Tensor  # [B, H, T, K]
    k: Tensor  # [B, G, S, K]
    v: Tensor  # [B, G, S, W]
    mixed: Tensor  # [B, H, T, W]
    lse: Tensor | None  # [B, H, T]
    bias: AttentionBias
    scale: float

    def upcast(self) -> AttentionRecord:
        """The same with q and k in fp32 at least, as the lse is: weights from halves of them would not sum to 1."""
        if self.q.dtype.itemsize >= 4:
            return self
        return self._replace(q=self.q.float(), k=self.k.float())


class MultiHeadAttention(nn.Module):
    """Every head looks with its own q and k (width `key_dim`) and carries its own v (width `value_dim`).

    kv_heads: fewer heads for k and v, each shared by a group of query heads (1 = multi-query).
    key_dim, value_dim: one width, or one per head (ragged heads, as pruning leaves them).
    bias: which projections have one: True, False, or letters of "qkvo".
    scale: a number (default key_dim ** -0.5), or "learned", one per head.
    qk_norm: "rms" or "layer", over each head's q and k.  dropout: on the weights; on CPU it leaves the fused kernel.
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
        self.head_scale: Tensor | None  # on top of scale: learned, or what the width of each ragged head asks for
        register_head_scale(self, scale)
        self.taps: list[
            Callable[[AttentionRecord], Tensor]
        ] = []  # the seam: `watch` reads here, `ablate` changes `mixed`

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | AttentionBias | None = None,
        position: PositionEncoding | None = None,
        cache: LayerKVCache | None = None,
    ) -> Tensor:
        """Attend from x [B, T, D] to itself, or to memory [B, S, D]; return [B, T, D]."""
        check_inputs(x, self.dim, memory, self.memory_dim, position)
        q = self.q_norm(split(self.q(x), self.key_dims))  # [B, H, T, K]
        if memory is None:
            k, v = self._keys_values(x)  # [B, G, T, K], [B, G, T, W]
            q, k = rotate(position, q, k, cache)
            k, v = extend(cache, k, v)  # [B, G, S, K], [B, G, S, W]
        else:
            k, v = self._keys_values(memory) if cache is None else cache.project_once(lambda: self._keys_values(memory))
        q = q if self.head_scale is None else q * self.head_scale
        sight = AttentionBias.lower(mask, q, k, position, crossing=memory is not None)
        dropout = self.dropout * self.training
        mixed, lse = attend(q, k, v, sight, scale=self.scale, dropout=dropout, need_lse=bool(self.taps))  # [B, H, T, W]
        for tap in self.taps:
            mixed = tap(AttentionRecord(q, k, v, mixed, lse, sight, self.scale))
        return self.out(merge(mixed, self.value_dims))

    def _keys_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        k, v = self.k(source), self.v(source)
        return self.k_norm(split(k, self.key_dims[: self.kv_heads])), split(v, self.value_dims[: self.kv_heads])


def check_inputs(
    x: Tensor, dim: int, memory: Tensor | None, memory_dim: int, position: PositionEncoding | None
) -> None:
    """Raise ValueError for inputs whose shapes do not fit."""
    for name, given, width in (("x", x, dim), ("memory", memory, memory_dim)):
        if given is not None and (given.dim() != 3 or given.shape[-1] != width):
            raise ValueError(f"{name} is {list(given.shape)}, this attention wants [batch, length, {width}]")
    if memory is not None and position is not None:
        raise ValueError("position applies to self-attention only; leave it out when memory is given")
    if memory is not None and len(memory) != len(x):
        raise ValueError(f"memory has {len(memory)} rows, x has {len(x)}: one for each; expand a single one")


def rotate(
    position: PositionEncoding | None, q: Tensor, k: Tensor, cache: LayerKVCache | None
) -> tuple[Tensor, Tensor]:
    """Apply the position encoding to q and k, which follow what the cache holds."""
    if position is None:
        return q, k
    offset = 0 if cache is None else cache.length
    return position.rotate(q, offset), position.rotate(k, offset)


def extend(cache: LayerKVCache | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Append to the cache, if there is one, and return all its keys and values."""
    return (k, v) if cache is None else cache.append(k, v)


def bias_letters(bias: bool | str) -> str:
    """Return which of the projections q, k, v and o (out) have a bias."""
    letters = bias if isinstance(bias, str) else "qkvo" * bias
    if {*letters} - {*"qkvo"}:
        raise ValueError(f"bias={bias!r}: True, False, or letters of 'qkvo'")
    return letters


def init_projections(*layers: nn.Linear) -> None:
    """Xavier weights and zero biases, as in the paper's code."""
    for linear in layers:
        nn.init.xavier_uniform_(linear.weight)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)


def head_norm(kind: Literal["rms", "layer"] | None, widths: Sequence[int]) -> nn.Module:
    """Return a normalization over each head's q or k; one serves all heads."""
    if kind is not None and min(widths) != max(widths):
        raise ValueError(f"qk_norm={kind!r} wants heads of one key width, not {list(widths)}")
    return {None: nn.Identity, "rms": nn.RMSNorm, "layer": nn.LayerNorm}[kind](widths[0])


def register_head_scale(attention: MultiHeadAttention, scale: float | Literal["learned"] | None) -> None:
    """Give an attention its `head_scale` [H, 1, 1]: a parameter, a constant of ragged heads, or None."""
    widths = attention.key_dims
    relative = (torch.tensor(widths).view(-1, 1, 1) / widths[0]) ** -0.5
    ragged = scale is None and min(widths) != max(widths)
    attention.register_buffer("head_scale", relative if ragged else None, persistent=False)
    if scale == "learned":
        attention.head_scale = nn.Parameter(relative)


def split(x: Tensor, widths: Sequence[int]) -> Tensor:
    """[B, T, sum of widths] -> [B, H, T, widest]; narrower heads are filled up with zeros."""
    if min(widths) == max(widths):
        return x.unflatten(-1, (len(widths), widths[0])).transpose(1, 2)
    parts = x.split(tuple(widths), dim=-1)
    return torch.stack([F.pad(part, (0, max(widths) - part.shape[-1])) for part in parts], dim=1)


def merge(mixed: Tensor, widths: Sequence[int]) -> Tensor:
    """[B, H, T, widest] -> [B, T, sum of widths]; undoes `split`."""
    if min(widths) == max(widths):
        return mixed.transpose(1, 2).flatten(2)
    return torch.cat([mixed[:, head, :, :width] for head, width in enumerate(widths)], dim=-1)


def head_widths(name: str, given: int | Sequence[int] | None, dim: int, heads: int, kv_heads: int) -> tuple[int, ...]:
    """One width per head, or an error that names the way out."""
    if heads < 1 or heads % kv_heads:
        raise ValueError(f"heads={heads} is not a multiple of kv_heads={kv_heads}; every group needs the same count")
    if given is None and dim % heads:
        raise ValueError(f"dim={dim} is not a multiple of heads={heads}; change one of them, or give {name}=")
    if given is None or isinstance(given, int):
        return (given or dim // heads,) * heads
    if len(given) != heads or min(given) < 1:
        raise ValueError(f"{name}={list(given)} wants one width of at least 1 for each of the {heads} heads")
    if kv_heads != heads and min(given) != max(given):
        raise ValueError(f"{name}={list(given)}: heads that share keys (kv_heads={kv_heads}) share one width")
    return tuple(given)
