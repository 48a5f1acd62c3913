"""Products by weights that lie as oneDNN wants them, for models that read and do not learn.

The usual product (MKL's) puts the weights in order at every call: of large weights and a few rows it takes 1.2 to 6
times as long, of many rows 1.1 times. The price is a second copy of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from multihead.machine import memory

LARGE = 2**17  # weights of a layer, for a copy to pay
MIN_MULTIPLICATIONS = 2**18  # multiplications, for its use to pay: oneDNN takes longer to begin
SHARE = 8  # of the memory, one part is what the copies of a model may take

_DNN: Any = torch.ops.mkldnn
_HERE = torch.backends.mkldnn.is_available() and hasattr(_DNN, "_linear_pointwise")


def is_packable(weight: Tensor) -> bool:
    return _HERE and weight.numel() >= LARGE and weight.dtype == torch.float32 and weight.is_cpu


def is_worth_packing(rows: int, weight: Tensor) -> bool:
    return rows * weight.numel() >= MIN_MULTIPLICATIONS


def pack(weight: Tensor) -> Tensor:
    found: Tensor = _DNN._reorder_linear_weight(weight.detach(), None)
    return found


def packed_matmul(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = _DNN._linear_pointwise(x, packed, bias, "none", [], "")
    return found


@cache
def max_packed_bytes() -> int:
    """Bytes of the weights that are copied, at most."""
    return memory.memory_limit() // SHARE


@contextmanager
def use_packed_weights(model: nn.Module) -> Iterator[None]:
    """Within it, where nothing is learnt, the larger layers of a model multiply so from their second use on: to pack
    takes about as long as one. The weights must stay as they are until it ends."""
    layers = [part for part in model.modules() if type(part) is nn.Linear and is_packable(part.weight)]
    mine = [layer for layer in layers if "forward" not in vars(layer)]
    if sum(layer.weight.nbytes for layer in mine) > max_packed_bytes():
        mine = []
    for layer in mine:
        vars(layer)["forward"] = _PackedForward(layer)
    try:
        yield
    finally:
        for layer in mine:
            del vars(layer)["forward"]


class _PackedForward:
    """In place of a layer's own."""

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
