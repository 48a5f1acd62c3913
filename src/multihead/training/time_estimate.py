"""Time per step, estimated by running a batch of typical size and discarding it."""

from __future__ import annotations

import time

from multihead.training.loop import accumulate_gradients
from multihead.training.run import TrainingRun

TRIED = 3  # the first run warms up
LOOKED = 200  # steps sampled for the share of each task


def seconds_per_step(training: TrainingRun) -> float:
    """Return the estimated seconds per step, without evaluation."""
    steps, middle = training.order.steps, training.order.steps // 2
    total = 0.0
    for number, part in enumerate(training.parts):
        # Skip the first step, which holds the longest rows; multi-task: one step of each task.
        own_steps = [step for step in range(middle, min(middle + LOOKED, steps)) if training.whose(step) == number]
        if not own_steps:
            continue
        _, batches = training.order[own_steps[0]]
        part.model.train()
        best = float("inf")
        for _ in range(TRIED):
            began = time.perf_counter()
            accumulate_gradients(part.model, part.task, part.data, batches, training.plan.precision)
            best = min(best, time.perf_counter() - began)
        total += best * len(own_steps) / len(range(middle, min(middle + LOOKED, steps)))
    training.model.zero_grad(set_to_none=True)
    return total
