"""AdamW with the groups that fine-tuning wants, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import torch
from torch import Tensor, nn


def adamw(model: nn.Module, lr: float, weight_decay: float = 0.01, layer_decay: float = 1.0) -> torch.optim.AdamW:
    """Norms, biases and embeddings are not decayed. layer_decay < 1: the deeper a layer lies, the slower it learns."""
    groups: dict[tuple[float, float], list[Tensor]] = {}
    depth = 1 + max((_layer(name) for name, _ in model.named_parameters()), default=0)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = weight_decay if parameter.dim() > 1 and "embedding" not in name else 0.0
            factor = 1.0 if name.startswith("readout.") else layer_decay ** (depth - _layer(name))
            groups.setdefault((decay, factor), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": p, "weight_decay": decay, "lr": lr * factor, "base": lr, "factor": factor}
            for (decay, factor), p in groups.items()
        ],
        betas=(0.9, 0.999),
        eps=1e-8,
        fused=True,
    )


def rate(step: int, steps: int, warmup: int, schedule: str = "linear") -> float:
    """The share of the learning rate at a step (counted from 0)."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = (step - warmup) / max(steps - warmup, 1)
    if schedule == "constant":
        return 1.0
    return max(0.0, 1.0 - done) if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))


def gathered(parameters: Iterable[Tensor], count: float, clip: float) -> tuple[float, bool]:
    """Divide summed gradients by their count and clip them, in one pass; the norm, and whether it is finite.

    One infinity would become NaN everywhere: gradients that are not finite are left as they are, to be thrown away.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(gradients)) / count
    if not math.isfinite(norm):
        return norm, False
    factor = min(1.0, clip / (norm + 1e-6)) if clip > 0 else 1.0
    torch._foreach_mul_(gradients, factor / count)
    return norm, True


def _layer(name: str) -> int:
    """0 for the stem, 1 + i for block i."""
    found = re.search(r"blocks\.(\d+)\.", name)
    return int(found.group(1)) + 1 if found else 0
