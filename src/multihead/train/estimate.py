"""How long training will take: a batch of usual size is tried out, and forgotten."""

from __future__ import annotations

import time

import numpy as np

from multihead.train.loop import accumulated
from multihead.train.training import Training

TRIED = 3  # the first try also warms up


def seconds_left(training: Training) -> float:
    """For all steps; evaluations come on top."""
    sizes = training.examples.sizes
    middle = np.argsort(sizes)[len(sizes) // 2 :]
    rows = middle[: max(1, training.plan.batch_tokens // int(sizes[middle[0]]))]
    training.model.train()
    best = float("inf")
    for _ in range(TRIED):
        began = time.perf_counter()
        accumulated(training.model, training.task, training.examples, [rows])
        best = min(best, time.perf_counter() - began)
    training.model.zero_grad(set_to_none=True)
    return best * training.order.steps * training.plan.accumulate
