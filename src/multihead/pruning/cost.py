"""Cost of a model: parameters, FLOPs, latency; and savings of a smaller one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

from multihead.inspection import attentions, numbers
from multihead.metrics import Difference, Score
from multihead.models import ClassifierReadout, LMReadout, TaskModel, TransformerBlock

ROUNDS = 7


@dataclass(frozen=True)
class ModelSize:
    heads: int
    keys: int  # key columns of all heads
    values: int  # value columns of all heads
    units: int  # of all feed-forward layers
    parameters: int
    flops: float  # per token of an input of mean length


@dataclass(frozen=True)
class CostReport:
    """Cost before and after. latency: time of the smaller model / time of the full one, measured in turns."""

    before: ModelSize
    after: ModelSize
    latency: float
    metric: str
    scores: tuple[Score, Score]
    loss: Difference  # positive: worse
    rows: int  # held-out rows that it was measured on

    @property
    def flops_saved(self) -> float:
        return 1 - self.after.flops / self.before.flops


def size_of(model: TaskModel, length: float) -> ModelSize:
    """Measure a model. length: tokens of a typical input."""
    flops = 0.0
    for module in model.modules():
        if isinstance(module, TransformerBlock):
            flops += sum(2 * linear.weight.numel() for linear in module.modules() if isinstance(linear, nn.Linear))
    all_attentions = list(attentions(model).values())
    for attention in all_attentions:
        flops += 2 * length * (sum(attention.key_dims) + sum(attention.value_dims))
    readout = model.readout
    if isinstance(readout, LMReadout):
        flops += 2 * readout.weight.numel()
    elif isinstance(readout, ClassifierReadout):
        each = sum(2 * linear.weight.numel() for linear in readout.modules() if isinstance(linear, nn.Linear))
        flops += each if readout.over == "tokens" else each / max(length, 1)
    blocks = [module for module in model.modules() if isinstance(module, TransformerBlock)]
    return ModelSize(
        heads=sum(len(heads) for heads in numbers(model).values()),
        keys=sum(sum(attention.key_dims) for attention in all_attentions),
        values=sum(sum(attention.value_dims) for attention in all_attentions),
        units=sum(block.feed_forward.up.out_features for block in blocks),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        flops=flops,
    )


@torch.inference_mode()
def ratio(whole: Callable[[], object], smaller: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the median time ratio of `smaller` to `whole`, measured in turns, so that other load affects both."""
    ratios = []
    for warm in (True, *(False,) * rounds):
        times = []
        for call in (whole, smaller, smaller, whole):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        if not warm:
            ratios.append((times[1] + times[2]) / (times[0] + times[3]))
    return median(ratios)
