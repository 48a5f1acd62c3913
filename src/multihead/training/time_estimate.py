"""How long a step takes: a batch of usual size is tried out, and forgotten."""

from __future__ import annotations

import time

from multihead.training.loop import accumulate_gradients
from multihead.training.run import TrainingRun

TRIED = 3  # the first try also warms up
LOOKED = 200  # steps that tell how the tasks of a run share them


def seconds_per_step(training: TrainingRun) -> float:
    """Evaluations come on top."""
    steps, middle = training.order.steps, training.order.steps // 2
    total = 0.0
    for number, part in enumerate(training.parts):
        # Any but the first, which holds the longest rows; of several tasks, one of each.
        mine = [step for step in range(middle, min(middle + LOOKED, steps)) if training.whose(step) == number]
        if not mine:
            continue
        _, batches = training.order[mine[0]]
        part.model.train()
        best = float("inf")
        for _ in range(TRIED):
            began = time.perf_counter()
            accumulate_gradients(part.model, part.task, part.data, batches, training.plan.precision)
            best = min(best, time.perf_counter() - began)
        total += best * len(mine) / len(range(middle, min(middle + LOOKED, steps)))
    training.model.zero_grad(set_to_none=True)
    return total
