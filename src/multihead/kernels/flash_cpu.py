"""torch's flash attention, including on the CPU the log-sum-exp that the public function does not return."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from multihead.kernels.dispatch import MATMUL, mkl_fp32_matmul

# torch's own CPU flash kernel, called by name: the public function does not return the log-sum-exp and rejects a causal
# flag together with a mask.
_FLASH = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_BACKWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)
SMALL_TILES = 2**20  # queries times keys


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, add: Tensor | None, scale: float
) -> tuple[Tensor, Tensor | None]:
    """Return softmax(q kᵀ · scale + add) v [B,H,T,W] and, on the CPU, its log-sum-exp [B,H,T], without the weights.

    causal: on top of `add`; q and k of one length.
    """
    if q.device.type == "cpu" and _FLASH is not None:
        flash = _FlashFp32.apply if _prefers_fp32_tiles(q, k, v) else _call_flash
        mixed, lse = flash(q, k, v, causal, add, scale)
        return mixed, lse
    if causal and add is not None:  # the public function takes one or the other
        ahead = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
        causal, add = False, add.masked_fill(ahead, float("-inf"))
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, add, 0.0, causal, scale=scale, enable_gqa=grouped), None


def _call_flash(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, add: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    assert _FLASH is not None
    mixed, lse = _FLASH(q, k, v, 0.0, causal, attn_mask=add, scale=scale)
    return mixed, lse


def _prefers_fp32_tiles(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether to compute in fp32 with MKL, because the kernel would call oneDNN for many small products.

    In half precision its backward pass does, and both passes do where oneDNN is set to multiply fp32 matrices: the
    overhead of a call then exceeds the product itself. Tiles of long sequences are large enough (2,048 tokens: 0.8 of
    the time in bf16).
    """
    if torch.compiler.is_compiling() or q.shape[2] * k.shape[2] > SMALL_TILES:
        return False
    if MATMUL is not None and q.dtype == torch.float32 and MATMUL.fp32_precision == "bf16":
        return True
    return q.dtype.itemsize < 4 and torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))


class _FlashFp32(torch.autograd.Function):
    """Flash attention in fp32 with MKL, forward and backward.

    In a training step of 16 to 384 tokens it takes 0.23 to 0.90 of the time in bf16, and 0.07 to 0.64 where oneDNN
    multiplies fp32.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, add: Tensor | None, scale: float) -> Any:
        with mkl_fp32_matmul():
            mixed, lse = _call_flash(
                q.float(), k.float(), v.float(), causal, None if add is None else add.float(), scale
            )
        ctx.save_for_backward(q, k, v, mixed, lse, add)
        ctx.causal, ctx.scale = causal, scale
        ctx.mark_non_differentiable(lse)
        return mixed.to(q.dtype), lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Any) -> Any:
        q, k, v, mixed, lse, add = ctx.saved_tensors
        assert _BACKWARD is not None
        with mkl_fp32_matmul():
            upcast = [x.float() for x in (gradient, q, k, v)]
            add = None if add is None else add.float()
            gradients = _BACKWARD(*upcast, mixed, lse, 0.0, ctx.causal, attn_mask=add, scale=ctx.scale)
        return *(x.to(q.dtype) for x in gradients), None, None, None
