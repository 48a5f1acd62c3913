"""Conditions and helpers shared by the hand-written kernels: where they may run, in which precision and library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LARGEST_TABLE = 2**24  # elements; a larger table of scores is built and used in blocks of rows
MATMUL: Any = getattr(torch.backends.mkldnn, "matmul", None)  # which library multiplies fp32; "bf16": oneDNN
_TRANSFORMED = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


def in_functorch() -> bool:
    """Return whether a torch.func transform (vmap, jvp, hessian) is active; it must see every operation."""
    return not torch.compiler.is_compiling() and bool(_TRANSFORMED())


def custom_autograd_allowed() -> bool:
    """Return whether custom autograd functions may be used; torch.compile and torch.func must see every operation."""
    return not torch.compiler.is_compiling() and not _TRANSFORMED()


def is_plain_linear(*parts: nn.Module) -> bool:
    """Return whether all layers are plain nn.Linear without hooks: adapters and hooks need their own forward pass."""
    return all(
        type(part) is nn.Linear
        and not (part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks)
        for part in parts
    )


def weights_of(*parts: nn.Linear) -> list[Tensor | None]:
    """Return weight, bias, weight, bias, ... of the layers."""
    return [tensor for part in parts for tensor in (part.weight, part.bias)]


def flatten_and_cast(x: Tensor, weights: Sequence[Tensor | None]) -> tuple[Tensor, list[Any]]:
    """Return x [..., D] as [N, D], and the weights, in the autocast dtype where autocast is on (float64 stays)."""
    kind = x.device.type
    mixed_precision = torch.is_autocast_enabled(kind) and x.dtype != torch.float64
    dtype = torch.get_autocast_dtype(kind) if mixed_precision else x.dtype
    return x.reshape(-1, x.shape[-1]).to(dtype), [None if w is None else w.to(dtype) for w in weights]


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward pass to compute in the dtype of its inputs, even when called under autocast."""

    @once_differentiable
    @wraps(function)
    def call_without_autocast(ctx: Any, *slopes: Tensor) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            return function(ctx, *slopes)
        with torch.autocast("cpu", enabled=False):
            return function(ctx, *slopes)

    return call_without_autocast


def linear_param_grads(slope: Tensor, x: Tensor, needs: Sequence[bool]) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of a layer's weight and bias, where needed: slope [N, out], x [N, in].

    Half-precision inputs give half-precision gradients, which torch casts to the parameter's dtype.
    """
    return slope.t().mm(x) if needs[0] else None, slope.sum(0) if needs[1] else None


@contextmanager
def mkl_fp32_matmul() -> Iterator[None]:
    """Multiply fp32 matrices with torch's default library (MKL): oneDNN has more overhead per small product."""
    if MATMUL is None:
        yield
        return
    before, MATMUL.fp32_precision = MATMUL.fp32_precision, "ieee"
    try:
        yield
    finally:
        MATMUL.fp32_precision = before


def upcast_logits(logits: Tensor) -> Tensor:
    """Return half-precision logits as float32: a sum over classes or a batch needs more than 8 bits."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
