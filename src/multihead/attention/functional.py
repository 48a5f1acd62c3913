"""Scaled dot-product attention, softmax(q kᵀ · scale + bias) v: `attend_fused` for speed, `attend_reference` for any
dtype and every gradient.

Both take q [B,H,T,K], k [B,G,S,K], v [B,G,S,W] and return (mixed [B,H,T,W], lse [B,H,T]). `lse` is the log-sum-exp of
each row of scores, from which any attention weight is exp(score - lse). A query that may attend to no key returns
zeros, with lse 0.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from multihead.attention.bias import AttentionBias
from multihead.attention.mask import Mask
from multihead.kernels.dispatch import LARGEST_TABLE, in_functorch
from multihead.kernels.dropout import dropout as dropped
from multihead.kernels.flash_cpu import flash_attention
from multihead.kernels.short_attention import attend_short, short_path_applies


def choose_kernel(bias: AttentionBias, dropout: float = 0.0) -> str:
    """Return the kernel that `attend` uses: "fused" or "explicit".

    The fused kernel supports neither dropout, nor the gradient of a learned bias, nor torch.func transforms.
    """
    learned = bias.position is not None and any(p.requires_grad for p in bias.position.parameters())
    return "explicit" if dropout > 0 or (learned and torch.is_grad_enabled()) or in_functorch() else "fused"


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: AttentionBias | Mask | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    need_lse: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Attend from each query to the keys, and return the weighted sums of the values.

    Arguments:
        q: queries [B, H, T, K].
        k: keys [B, G, S, K]; H is a multiple of G (grouped-query attention).
        v: values [B, G, S, W].
        bias: a `Mask`, or a mask and position bias already lowered to an `AttentionBias`; None = attend to all keys.
        scale: factor on the scores; None = K ** -0.5.
        dropout: probability of dropping an attention weight.
        need_lse: False allows a faster path that does not compute the log-sum-exp.

    Returns:
        mixed [B, H, T, W], and the log-sum-exp of the scores [B, H, T], or None where the kernel does not return it.

    Raises:
        ValueError: the shapes do not fit together.

    Example:
        >>> q, k, v = torch.randn(3, 2, 8, 10, 64).unbind(0)
        >>> mixed, lse = attend(q, k, v, Mask.causal())
        >>> mixed.shape, lse.shape
        (torch.Size([2, 8, 10, 64]), torch.Size([2, 8, 10]))
    """
    _check(q, k, v)
    if not isinstance(bias, AttentionBias):
        bias = AttentionBias(bias, q.shape[2], k.shape[2], q)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if choose_kernel(bias, dropout) == "explicit":
        return attend_reference(q, k, v, bias, scale=scale, dropout=dropout)
    if not need_lse and short_path_applies(q, q.shape[0] * q.shape[1], bias):
        return attend_short(q, k, v, bias.dense, scale), None
    return attend_fused(q, k, v, bias, scale=scale)


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise ValueError where shapes do not fit: torch's kernel does not check them and reads out of bounds."""
    (B, H, _, K), (rows, G, _, width) = q.shape, k.shape
    if rows != B or v.shape[:3] != k.shape[:3] or width != K or not G or H % G:
        raise ValueError(
            f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit: use [B, H, T, K], [B, G, S, K] "
            "and [B, G, S, W] with H a multiple of G; repeat a batch of 1 with expand"
        )


def attend_reference(
    q: Tensor, k: Tensor, v: Tensor, bias: AttentionBias, *, scale: float, dropout: float = 0.0
) -> tuple[Tensor, Tensor | None]:
    """Compute attention as the formula is written, with all scores [B, H, T, S] in memory.

    Arguments and results are those of `attend`; the log-sum-exp is None with dropout.
    """
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) if group > 1 else x for x in (k, v))
    scores = (q * scale) @ k.transpose(-1, -2)  # [B, H, T, S]
    add, empty = bias.table(), None
    if add is not None:
        empty = (add == float("-inf")).all(-1, keepdim=True)  # rows without any key: their softmax would be NaN
        scores = scores + add.masked_fill(empty, 0.0)
    mixed = dropped(torch.softmax(scores, dim=-1), dropout) @ v
    lse = None if dropout > 0 else torch.logsumexp(scores.detach(), dim=-1)
    if empty is not None:
        mixed = mixed.masked_fill(empty, 0.0)
        lse = lse if lse is None else lse.masked_fill(empty.squeeze(-1), 0.0)
    return mixed, lse


def attend_fused(q: Tensor, k: Tensor, v: Tensor, bias: AttentionBias, *, scale: float) -> tuple[Tensor, Tensor | None]:
    """Compute attention with the flash kernel, which never stores the weights; see the module for shapes."""
    key_width, value_width = q.shape[-1], v.shape[-1]
    if not q.shape[2] or not k.shape[2]:  # no queries or no keys: the kernel would divide by zero
        return q.new_zeros(*q.shape[:3], value_width), q.new_zeros(q.shape[:3])
    # torch does not use the flash kernel when key and value widths differ. Padding with zeros changes no score and no
    # output column, and is several times cheaper.
    if key_width < value_width:
        q, k = F.pad(q, (0, value_width - key_width)), F.pad(k, (0, value_width - key_width))
    elif value_width < key_width:
        v = F.pad(v, (0, key_width - value_width))
    if not bias.by_rows:
        mixed, lse = flash_attention(q, k, v, bias.causal, bias.add, scale)
        return mixed[..., :value_width], lse
    mixes, lses = [], []
    step = _rows_at_a_time(q, bias)
    for start in range(0, bias.queries, step):
        stop = min(start + step, bias.queries)
        low, high = bias.span(start, stop)
        add = bias.rows(start, stop, low, high)
        mixed, lse = flash_attention(q[:, :, start:stop], k[:, :, low:high], v[:, :, low:high], False, add, scale)
        mixes.append(mixed)
        lses.append(lse)
    lse = None if lses[0] is None else torch.cat([part for part in lses if part is not None], dim=2)
    return torch.cat(mixes, dim=2)[..., :value_width], lse


def _rows_at_a_time(q: Tensor, bias: AttentionBias) -> int:
    """Return how many query rows to process at once, so that their scores stay small; with a window, its width."""
    if bias.width is not None:
        return max(64, bias.width)
    heads = q.shape[1] if bias.position is not None else 1
    return max(64, LARGEST_TABLE // (heads * bias.keys) // 64 * 64)
