"""How long training will take: a batch of usual size is tried out, and forgotten."""

from __future__ import annotations

import time

from multihead.train.loop import accumulated
from multihead.train.training import Training

TRIED = 3  # the first try also warms up


def seconds_left(training: Training) -> float:
    """For all steps; evaluations come on top."""
    _, batches = training.order[training.order.steps // 2]  # any but the first, which holds the longest rows
    training.model.train()
    best = float("inf")
    for _ in range(TRIED):
        began = time.perf_counter()
        accumulated(training.stepping, training.task, training.examples, batches, training.plan.precision)
        best = min(best, time.perf_counter() - began)
    training.model.zero_grad(set_to_none=True)
    return best * training.order.steps
