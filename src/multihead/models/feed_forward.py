"""The feed-forward part of a block: down(activation(up(x))), or down(activation(gate(x)) * up(x))."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from multihead.kernels.feed_forward import fused_feed_forward, trains_fused
from multihead.models.config import ModelConfig


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x): the approximation that CLIP was trained with."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU("tanh"),
    "quick_gelu": QuickGELU,
    "silu": nn.SiLU,
}


class FeedForward(nn.Module):
    """Two linear layers with an activation, optionally gated."""

    def __init__(self, config: ModelConfig, inner: int | None = None) -> None:
        super().__init__()
        inner = inner or config.inner or 4 * config.dim
        self.up = nn.Linear(config.dim, inner, config.inner_bias)
        self.gate = nn.Linear(config.dim, inner, config.inner_bias) if config.gated else None
        self.down = nn.Linear(inner, config.dim, config.inner_bias)
        self.kind, self.activation = config.activation, ACTIVATIONS[config.activation]()
        for linear in self._linears():
            nn.init.xavier_uniform_(linear.weight)
            if config.inner_bias:
                nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers to x [..., D] and return [..., D]."""
        if trains_fused(x, *self._linears()):
            return fused_feed_forward(x, self.kind, self.activation, *self._linears())
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))

    def _linears(self) -> list[nn.Linear]:
        return [self.up, self.down] if self.gate is None else [self.up, self.down, self.gate]
