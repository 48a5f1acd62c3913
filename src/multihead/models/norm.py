"""Normalization layers."""

from __future__ import annotations

from torch import nn

from multihead.models.config import ModelConfig


def make_norm(config: ModelConfig, dim: int | None = None) -> nn.Module:
    """Return the normalization layer of a config, over `dim` (default: the model width)."""
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(dim or config.dim, eps=config.norm_eps)
