"""Attention of short texts by plain products, where several threads work.

The fused kernel takes each head of each row by itself, and for short texts a second thread gains it nothing. One
product for all of them gains what it should: in training steps of 1,024 tokens on two threads 2.4 times (16 tokens a
row), 1.9 (24), 1.5 (48), 1.3 (64) and 1.2 (96), in bf16 up to 2.6. From 128 on, and on one thread, the kernel is as
fast. The weights are built and kept for the backward pass: of such texts, less than a fifth of what a layer keeps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from multihead.attention.sight import LARGEST_TABLE, Sight

LONGEST = 2**13  # queries times keys


def suits(q: Tensor, k: Tensor, sight: Sight) -> bool:
    if torch.compiler.is_compiling():  # whose graph would break at the number of threads
        return False
    pairs = q.shape[2] * k.shape[2]
    return (
        q.device.type == "cpu"
        and 0 < pairs <= LONGEST
        and q.shape[0] * q.shape[1] * pairs <= LARGEST_TABLE
        and torch.get_num_threads() > 1
        and not sight.by_rows
        and not sight.blind
    )


def short(q: Tensor, k: Tensor, v: Tensor, add: Tensor | None, scale: float) -> Tensor:
    """q [B,H,T,K], k [B,G,S,K], v [B,G,S,W], add [B|1,H|1,T|1,S] -> mixed [B,H,T,W]; in fp32 at least."""
    mixed: Tensor = _Short.apply(q, k, v, add, scale)  # type: ignore[no-untyped-call]
    return mixed


class _Short(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, add: Tensor | None, scale: float) -> Tensor:
        B, H, T, _ = q.shape
        with torch.autocast("cpu", enabled=False):
            flat = [_flat(x, k.shape[1]) for x in (q, k, v)]  # of G heads; the queries that share one are its rows
            scores = _product(flat[0], flat[1].mT, scale)
            if add is not None:
                scores.view(B, H, T, -1).add_(add)
            weights = torch.softmax(scores, dim=-1)
            mixed = torch.bmm(weights, flat[2])
        ctx.save_for_backward(*flat, weights)
        ctx.shapes, ctx.scale = (q.shape, k.shape, v.shape), scale
        return mixed.view(B, H, T, -1).to(q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        q, k, v, weights = ctx.saved_tensors
        flat = _flat(gradient, ctx.shapes[1][1])
        by_weight = torch.bmm(flat, v.mT)
        by_score = torch._softmax_backward_data(by_weight, weights, -1, weights.dtype)
        found = (_product(by_score, k, ctx.scale), _product(by_score.mT, q, ctx.scale), torch.bmm(weights.mT, flat))
        return *(x.view(shape).to(gradient.dtype) for x, shape in zip(found, ctx.shapes, strict=True)), None, None


def _flat(x: Tensor, heads: int) -> Tensor:
    """[B, H, T, W] -> [B * heads, H / heads * T, W]"""
    whole = x.reshape(x.shape[0] * heads, -1, x.shape[3])
    return whole.float() if whole.dtype.itemsize < 4 else whole


def _product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    return torch.baddbmm(a.new_empty(()), a, b, beta=0, alpha=scale)
