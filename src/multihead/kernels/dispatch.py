"""What passes that are written out share: whose parts they may be of, what is learnt, and who multiplies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LARGEST_TABLE = 2**24  # numbers; a larger table of scores is built and used by rows
MATMUL: Any = getattr(torch.backends.mkldnn, "matmul", None)  # which library multiplies fp32; "bf16": oneDNN
_TRANSFORMED = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


def in_functorch() -> bool:
    """Does torch.func (vmap, jvp, hessian) look through what is computed? It wants to see every operation."""
    return not torch.compiler.is_compiling() and bool(_TRANSFORMED())


def custom_autograd_allowed() -> bool:
    """May passes be written out here? A compiler, too, wants to see every operation."""
    return not torch.compiler.is_compiling() and not _TRANSFORMED()


def is_plain_linear(*parts: nn.Module) -> bool:
    """Are these layers as torch makes them? An adapter gives something else, and a hook waits to be called."""
    return all(
        type(part) is nn.Linear
        and not (part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks)
        for part in parts
    )


def weights_of(*parts: nn.Linear) -> list[Tensor | None]:
    """weight, bias, weight, bias …"""
    return [tensor for part in parts for tensor in (part.weight, part.bias)]


def flatten_and_cast(x: Tensor, weights: Sequence[Tensor | None]) -> tuple[Tensor, list[Any]]:
    """x [..., D] as [N, D], and the weights: of halves where autocast is on, which leaves float64 alone."""
    kind = x.device.type
    halves = torch.is_autocast_enabled(kind) and x.dtype != torch.float64
    dtype = torch.get_autocast_dtype(kind) if halves else x.dtype
    return x.reshape(-1, x.shape[-1]).to(dtype), [None if w is None else w.to(dtype) for w in weights]


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass whose products are of what they are given, though it may be called where autocast is on."""

    @once_differentiable
    @wraps(function)
    def call_without_autocast(ctx: Any, *slopes: Tensor) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            return function(ctx, *slopes)
        with torch.autocast("cpu", enabled=False):
            return function(ctx, *slopes)

    return call_without_autocast


def linear_param_grads(slope: Tensor, x: Tensor, needs: Sequence[bool]) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of a layer's weight and bias, where they are wanted: slope [N, out], x [N, in]. Of halves they are
    halves; torch makes them whole again."""
    return slope.t().mm(x) if needs[0] else None, slope.sum(0) if needs[1] else None


@contextmanager
def mkl_fp32_matmul() -> Iterator[None]:
    """Many small products of fp32 by torch's usual library: oneDNN takes longer to begin each."""
    if MATMUL is None:
        yield
        return
    before, MATMUL.fp32_precision = MATMUL.fp32_precision, "ieee"
    try:
        yield
    finally:
        MATMUL.fp32_precision = before


def upcast_logits(logits: Tensor) -> Tensor:
    """Logits of half precision as float32: a sum over classes or a batch needs more than 8 bits."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
