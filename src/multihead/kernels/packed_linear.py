"""Matrix products with weights packed in oneDNN's layout, for inference.

The default product (MKL's) reorders the weights at every call: with large weights and few rows it takes 1.2 to 6 times
as long, with many rows 1.1 times. The price is a second copy of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from multihead.machine import memory

LARGE = 2**17  # weights of a layer, for a copy to pay off
MIN_MULTIPLICATIONS = 2**18  # multiplications, for its use to pay off: oneDNN has more overhead per call
SHARE = 8  # the copies of a model may take 1 / SHARE of the memory

_DNN: Any = torch.ops.mkldnn
_HERE = torch.backends.mkldnn.is_available() and hasattr(_DNN, "_linear_pointwise")


def is_packable(weight: Tensor) -> bool:
    """Return whether a weight is large enough, fp32 and on a CPU where oneDNN is available."""
    return _HERE and weight.numel() >= LARGE and weight.dtype == torch.float32 and weight.is_cpu


def is_worth_packing(rows: int, weight: Tensor) -> bool:
    """Return whether a product with this many rows is faster with packed weights."""
    return rows * weight.numel() >= MIN_MULTIPLICATIONS


def pack(weight: Tensor) -> Tensor:
    """Return a copy of a weight [out, in] in oneDNN's layout."""
    packed: Tensor = _DNN._reorder_linear_weight(weight.detach(), None)
    return packed


def packed_matmul(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """Return x [N, in] times a packed weight, plus bias: [N, out]."""
    output: Tensor = _DNN._linear_pointwise(x, packed, bias, "none", [], "")
    return output


@cache
def max_packed_bytes() -> int:
    """Return the most bytes of weights that are copied."""
    return memory.memory_limit() // SHARE


@contextmanager
def use_packed_weights(model: nn.Module) -> Iterator[None]:
    """Use packed weights in the larger layers of a model, within this context and without gradients.

    A layer packs at its second call, since packing takes about as long as one product. The weights must not change
    until the context ends.
    """
    layers = [part for part in model.modules() if type(part) is nn.Linear and is_packable(part.weight)]
    selected = [layer for layer in layers if "forward" not in vars(layer)]
    if sum(layer.weight.nbytes for layer in selected) > max_packed_bytes():
        selected = []
    for layer in selected:
        vars(layer)["forward"] = _PackedForward(layer)
    try:
        yield
    finally:
        for layer in selected:
            del vars(layer)["forward"]


class _PackedForward:
    """A replacement for a layer's `forward`."""

    def __init__(self, layer: nn.Linear) -> None:
        self.layer, self.used = layer, False
        self.packed: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        layer = self.layer
        plain = torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or x.dtype != torch.float32
        if plain or not self.used or not is_worth_packing(x.numel() // x.shape[-1], layer.weight):
            self.used = not plain
            return nn.Linear.forward(layer, x)
        if self.packed is None:
            self.packed = pack(layer.weight)
        return packed_matmul(x, self.packed, layer.bias)
