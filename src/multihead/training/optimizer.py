"""AdamW with parameter groups for fine-tuning, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor, nn

# CRF transitions are a few scalars that must grow to several units from 0; at the learning rate of a pretrained body
# (1e-4, a thousand steps) they would not get there.
NEIGHBOURS = dict.fromkeys(("start", "end", "step"), 100.0)


def adamw(
    model: nn.Module, lr: float, weight_decay: float = 0.01, layer_decay: float = 1.0, beta2: float = 0.999
) -> torch.optim.AdamW:
    """Build AdamW. Norms, biases and embeddings have no weight decay. layer_decay < 1: lower layers learn more
    slowly."""
    groups: dict[tuple[float, float], list[Tensor]] = {}
    depth = 1 + max((_layer(name) for name, _ in model.named_parameters()), default=0)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = weight_decay if parameter.dim() > 1 and "embedding" not in name else 0.0
            above = name.startswith("readout.")  # also in multi-task models, readout.task-NAME.
            factor = NEIGHBOURS.get(_last(name), 1.0) if above else layer_decay ** (depth - _layer(name))
            groups.setdefault((decay, factor), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": p, "weight_decay": decay, "lr": lr * factor, "base": lr, "factor": factor}
            for (decay, factor), p in groups.items()
        ],
        betas=(0.9, beta2),
        eps=1e-8,
        fused=True,
    )


def lr_factor(step: int, steps: int, warmup: int, schedule: str = "linear", floor: float = 0.0) -> float:
    """Return the learning rate factor at a step (counted from 0); it decays to `floor`."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(steps - warmup, 1)
    if schedule == "constant":
        return 1.0
    left = max(0.0, 1.0 - progress) if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
    return floor + (1.0 - floor) * left


def scale_and_clip(optimizer: torch.optim.Optimizer, count: float, clip: float) -> tuple[float, bool]:
    """Set up the next step to divide summed gradients by their count and clip them; return the norm, and whether it is
    finite.

    The fused optimizer does the division while it reads the gradients, which saves a pass over all weights.
    """
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    # Equals torch.nn.utils.get_total_norm bit for bit, without a Python call per parameter.
    norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))) / count
    factor = min(1.0, clip / (norm + 1e-6)) if clip > 0 else 1.0
    device = gradients[0].device
    if device.type == "mps":  # its fused optimizer ignores grad_scale
        torch._foreach_mul_(gradients, factor / count)
    else:
        optimizer.grad_scale = torch.full((), count / factor, device=device)  # type: ignore[attr-defined]
    return norm, math.isfinite(norm)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _layer(name: str) -> int:
    """Return 0 for the stem, 1 + i for block i."""
    match = re.search(r"blocks\.(\d+)\.", name)
    return int(match.group(1)) + 1 if match else 0
