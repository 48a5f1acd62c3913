"""Attention of short texts by plain products, where several threads work.

The fused kernel takes each head of each row by itself, and for short texts a second thread gains it nothing. One
product for all of them gains what it should: in training steps of 1,024 tokens on two threads 2.4 times (16 tokens a
row), 1.9 (24), 1.5 (48), 1.3 (64) and 1.2 (96), in bf16 up to 2.6. From 128 on, and on one thread, the kernel is as
fast. The weights are built and kept for the backward pass: of such texts, less than a fifth of what a layer keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from multihead.attention.position import Position
from multihead.attention.products import by_hand, learnt, lowered, usual_products, way_back
from multihead.attention.sight import LARGEST_TABLE, Sight

LONGEST = 2**13  # queries times keys


def suits(like: Tensor, tables: int, sight: Sight) -> bool:
    """tables: of scores, one for each head of each row."""
    if not by_hand():
        return False
    pairs = sight.queries * sight.keys
    return (
        like.is_cpu
        and 0 < pairs <= LONGEST
        and tables * pairs <= LARGEST_TABLE
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
        mixed, kept = _mix(q, k, v, add, scale)
        ctx.save_for_backward(*kept)
        ctx.shapes, ctx.scale = (q.shape, k.shape, v.shape), scale
        return mixed.to(q.dtype)

    @staticmethod
    @way_back
    def backward(ctx: Any, gradient: Tensor) -> Any:
        found = _back(gradient, ctx.saved_tensors, ctx.scale, ctx.shapes)
        return *(slope.to(gradient.dtype) for slope in found), None, None


class Whole(torch.autograd.Function):
    """The whole of self-attention, projections and all, where nobody looks on: the same products in fewer calls.

    A step of a small language model takes 0.96 of its time so. x [B, T, D] -> [B, T, D]; weights: weight and bias of
    q, k, v and out; heads: how many of q, and of k and v.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        add: Tensor | None,
        heads: tuple[int, int],
        scale: float,
        position: Position,
        *weights: Tensor | None,
    ) -> Tensor:
        (B, T, _), (H, G) = x.shape, heads
        flat, (wq, bq, wk, bk, wv, bv, wo, bo) = lowered(x, weights)  # [B * T, D]
        given = ((wq, bq, H), (wk, bk, G), (wv, bv, G))
        q, k, v = (F.linear(flat, w, b).view(B, T, n, -1).transpose(1, 2) for w, b, n in given)  # [B, n, T, K]
        mixed, kept = _mix(position.turn(q, 0), position.turn(k, 0), v, add, scale)
        merged = mixed.transpose(1, 2).reshape(B * T, -1).to(flat.dtype)  # [B * T, H * W]
        ctx.save_for_backward(flat, merged, wq, wk, wv, wo, *kept)
        ctx.shapes, ctx.scale, ctx.turn = (q.shape, k.shape, v.shape), scale, position.turn
        return F.linear(merged, wo, bo).view(B, T, -1)

    @staticmethod
    @way_back
    def backward(ctx: Any, gradient: Tensor) -> Any:
        flat, merged, wq, wk, wv, wo, *kept = ctx.saved_tensors
        wanted, _, _, _, _, *needs = ctx.needs_input_grad
        B, H, T, _ = ctx.shapes[0]
        slope = gradient.reshape(B * T, -1)
        to_out = learnt(slope, merged, needs[6:])
        by_mixed = slope.mm(wo).view(B, T, H, -1).transpose(1, 2)  # [B, H, T, W]
        by_q, by_k, by_v = _back(by_mixed, kept, ctx.scale, ctx.shapes)
        turned = ctx.turn(by_q, 0, back=True), ctx.turn(by_k, 0, back=True), by_v
        q, k, v = (by.transpose(1, 2).reshape(B * T, -1).to(slope.dtype) for by in turned)
        to_x = q.mm(wq).addmm_(k, wk).addmm_(v, wv).view(B, T, -1) if wanted else None
        to_weights = *learnt(q, flat, needs[:2]), *learnt(k, flat, needs[2:4]), *learnt(v, flat, needs[4:6])
        return to_x, None, None, None, None, *to_weights, *to_out


def _mix(q: Tensor, k: Tensor, v: Tensor, add: Tensor | None, scale: float) -> tuple[Tensor, list[Tensor]]:
    """mixed [B, H, T, W], and what the way back wants kept."""
    B, H, T, _ = q.shape
    with torch.autocast("cpu", enabled=False), usual_products():
        flat = [_flat(x, k.shape[1]) for x in (q, k, v)]  # of G heads; the queries that share one are its rows
        scores = _product(flat[0], flat[1].mT, scale)
        if add is not None:
            scores.view(B, H, T, -1).add_(add)
        weights = torch.softmax(scores, dim=-1)
        return torch.bmm(weights, flat[2]).view(B, H, T, -1), [*flat, weights]


def _back(gradient: Tensor, kept: Sequence[Tensor], scale: float, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """By q, k and v, in their shapes."""
    q, k, v, weights = kept
    with usual_products():
        flat = _flat(gradient, shapes[1][1])
        by_score = torch._softmax_backward_data(torch.bmm(flat, v.mT), weights, -1, weights.dtype)
        found = (_product(by_score, k, scale), _product(by_score.mT, q, scale), torch.bmm(weights.mT, flat))
    return [slope.view(shape) for slope, shape in zip(found, shapes, strict=True)]


def _flat(x: Tensor, heads: int) -> Tensor:
    """[B, H, T, W] -> [B * heads, H / heads * T, W]"""
    whole = x.reshape(x.shape[0] * heads, -1, x.shape[3])
    return whole.float() if whole.dtype.itemsize < 4 else whole


def _product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    return torch.baddbmm(a.new_empty(()), a, b, beta=0, alpha=scale)
