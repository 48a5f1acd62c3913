"""softmax(q kᵀ · scale + bias) v, twice: `attend_fused` for speed, `attend_reference` as the reference (any dtype,
every gradient).

Both take and return the same: q [B,H,T,K], k [B,G,S,K], v [B,G,S,W] -> mixed [B,H,T,W] and the log-sum-exp of every
row of scores [B,H,T], from which any weight is exp(score - lse). A row that sees nothing gives zeros, lse 0.
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
    """Which kernel `attend` takes: "fused", or "explicit" where fused has no dropout, no gradient of the bias, and none
    of torch.func's transforms."""
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
    """Mix the values that each query looks at; see the module for shapes. The lse is None where torch hides it, and may
    be where nobody wants to be told."""
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
    """torch's kernel believes the shapes that it is given, and reads past their ends."""
    (B, H, _, K), (rows, G, _, width) = q.shape, k.shape
    if rows != B or v.shape[:3] != k.shape[:3] or width != K or not G or H % G:
        raise ValueError(
            f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit: [B, H, T, K], [B, G, S, K] and "
            "[B, G, S, W] are wanted, H a multiple of G; a batch of 1 is spread with expand"
        )


def attend_reference(
    q: Tensor, k: Tensor, v: Tensor, bias: AttentionBias, *, scale: float, dropout: float = 0.0
) -> tuple[Tensor, Tensor | None]:
    """The formula, written out: every score exists. With dropout nobody is told the lse: it is worked out if asked."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) if group > 1 else x for x in (k, v))
    scores = (q * scale) @ k.transpose(-1, -2)  # [B, H, T, S]
    add, blind = bias.table(), None
    if add is not None:
        blind = (add == float("-inf")).all(-1, keepdim=True)  # rows that see nothing: their softmax would be NaN
        scores = scores + add.masked_fill(blind, 0.0)
    mixed = dropped(torch.softmax(scores, dim=-1), dropout) @ v
    lse = None if dropout > 0 else torch.logsumexp(scores.detach(), dim=-1)
    if blind is not None:
        mixed = mixed.masked_fill(blind, 0.0)
        lse = lse if lse is None else lse.masked_fill(blind.squeeze(-1), 0.0)
    return mixed, lse


def attend_fused(q: Tensor, k: Tensor, v: Tensor, bias: AttentionBias, *, scale: float) -> tuple[Tensor, Tensor | None]:
    """The flash kernel, which never builds the weights."""
    key_width, value_width = q.shape[-1], v.shape[-1]
    if not q.shape[2] or not k.shape[2]:  # nobody looks, or at nothing: the kernel would divide by that
        return q.new_zeros(*q.shape[:3], value_width), q.new_zeros(q.shape[:3])
    # torch leaves the flash kernel when the widths differ; zeros change no score and no mixed column, and are
    # several times cheaper.
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
    """Rows whose table of scores stays small; with a window, as many as it is wide."""
    if bias.width is not None:
        return max(64, bias.width)
    heads = q.shape[1] if bias.position is not None else 1
    return max(64, LARGEST_TABLE // (heads * bias.keys) // 64 * 64)
