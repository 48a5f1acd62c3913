"""Multi-task schedule: the task of each step, as a pure function of (seed, step)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from multihead.training.dataset import TrainingData
from multihead.training.loop import StepSchedule, TrainSettings

STREAM = 2  # random stream, independent of `loop.BatchOrder`


class InfiniteSchedule(StepSchedule, Protocol):
    """A schedule over the full data that never ends."""

    @property
    def epoch_steps(self) -> int: ...


class MultitaskSchedule:
    """Schedule where each step has one task. An epoch has each task's number of steps times its weight, shuffled.

    With weights of 1, an epoch covers the data of every task once. Each task continues in its own order, whatever the
    weights; its position follows from the step alone.
    """

    def __init__(self, orders: Sequence[InfiniteSchedule], weights: Sequence[float], plan: TrainSettings) -> None:
        self.orders, self.plan = orders, plan
        self.counts = [max(1, round(w * order.epoch_steps)) for order, w in zip(orders, weights, strict=True)]
        self.each = sum(self.counts)
        self.steps = max(1, plan.steps if plan.steps is not None else round(plan.epochs * self.each))
        self.drawn: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None

    @property
    def warmup(self) -> int:
        return int(self.plan.warmup if self.plan.warmup >= 1 else self.plan.warmup * self.steps)

    @property
    def epoch_steps(self) -> int:
        return self.each

    def task_of_step(self, step: int) -> int:
        """Return the index of the task of a step (from 0)."""
        epoch, inside = divmod(step, self.each)
        return int(self._epoch(epoch)[0][inside])

    def __getitem__(self, step: int) -> tuple[float, list[NDArray[np.int64]]]:
        """Return the epoch of a step (from 0), as a fraction, and the micro-batches of its task."""
        epoch, inside = divmod(step, self.each)
        whose, before = self._epoch(epoch)
        number = int(whose[inside])
        _, batches = self.orders[number][epoch * self.counts[number] + int(before[inside])]
        return step / self.each, batches

    def _epoch(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return for each step of an epoch its task, and the number of earlier steps of the same task."""
        if self.drawn is None or self.drawn[0] != epoch:
            whose = np.repeat(np.arange(len(self.counts)), self.counts)
            np.random.Generator(np.random.PCG64([self.plan.seed, epoch, STREAM])).shuffle(whose)
            before = np.empty_like(whose)
            for number, count in enumerate(self.counts):
                before[whose == number] = np.arange(count)
            self.drawn = (epoch, whose, before)
        return self.drawn[1:]


def make_schedule(
    data: Sequence[TrainingData], weights: Sequence[float], plan: TrainSettings, batch_tokens: int
) -> tuple[InfiniteSchedule, Callable[[int], int]]:
    """Return the schedule of all steps, and the function from a step to its task's index."""
    if len(data) == 1:
        return data[0].order(plan), lambda step: 0
    # Batches of each task are as large as configured, or as its longest window.
    plans = [replace(plan, steps=1, batch_tokens=max(batch_tokens, int(windows.sizes.max()))) for windows in data]
    turns = MultitaskSchedule(
        [windows.order(own_plan) for windows, own_plan in zip(data, plans, strict=True)], weights, plan
    )
    return turns, turns.task_of_step
