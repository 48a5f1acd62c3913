"""The training loop: a generator of step records. Printing, saving, evaluation and stopping consume it.

The loss is sum ÷ count over all examples of a step. The order of examples and dropout are pure functions of
(seed, step), so a run resumes bit for bit from any step with saved weights and optimizer state.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from multihead.data.batching import plan_batches
from multihead.data.row_lengths import RowLengths
from multihead.data.sampler import EpochSampler
from multihead.machine.device import seed_device
from multihead.machine.precision import matmul_backend
from multihead.models import TaskModel
from multihead.tasks import Task, Window
from multihead.training.optimizer import lr_factor, scale_and_clip

log = logging.getLogger(__name__)
PATIENCE = 20  # consecutive steps with non-finite gradients before the run stops


class Dataset(Protocol):
    """Encoded data: windows by index, and their lengths."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> Window: ...
    @property
    def sizes(self) -> NDArray[np.int64] | RowLengths: ...


@dataclass(frozen=True)
class TrainSettings:
    """Training hyperparameters, as plain numbers."""

    epochs: float = 3.0
    steps: int | None = None  # instead of epochs
    batch_tokens: int = 1024
    accumulate: int = 1
    schedule: str = "linear"
    warmup: float = 0.1  # a share of all steps; 1 or more: steps
    floor: float = 0.0  # final learning rate, as a share of the peak
    clip: float = 1.0
    seed: int = 1
    precision: str = "fp32"  # or onednn, bf16


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step."""

    step: int  # counted from 1
    epoch: float
    loss: float
    lr: float
    norm: float
    tokens: int  # without padding
    padded: int  # with padding
    seconds: float
    skipped: bool  # the gradient was not finite; no update
    task: str = ""  # multi-task: the task of this step


@dataclass(frozen=True)
class TaskStream:
    """One task of a run: the model that its steps call, and its data."""

    model: TaskModel
    task: Task
    data: Dataset
    name: str = ""


class StepSchedule(Protocol):
    """Composition of steps: the epoch of a step, as a fraction, and its micro-batches."""

    steps: int

    @property
    def warmup(self) -> int: ...
    def __getitem__(self, step: int, /) -> tuple[float, list[NDArray[np.int64]]]: ...


class BatchOrder:
    """Stateless order of batches: epoch after epoch, batches of similar lengths.

    sizes: [N], or [N, 2] for pairs; epochs: the windows of an epoch; default: each of them once.
    """

    def __init__(
        self, sizes: NDArray[np.int64] | RowLengths, plan_: TrainSettings, epochs: EpochSampler | None = None
    ) -> None:
        if not len(sizes):
            raise ValueError("the training data has no usable row")
        self.sizes, self.plan = sizes, plan_
        self.epochs = epochs or EpochSampler([len(sizes)], None, plan_.seed)
        self.planned: dict[int, list[list[NDArray[np.int64]]]] = {}  # steps of the most recent block
        self.per_block = [0]  # steps before each block, over all epochs
        if plan_.steps is not None:
            self.steps = plan_.steps
        else:
            full, part = int(plan_.epochs), plan_.epochs - int(plan_.epochs)
            self.steps = self._before(full)
            if part:
                self.steps += round(part * (self._before(full + 1) - self._before(full)))
        self.steps = max(self.steps, 1)

    @property
    def warmup(self) -> int:
        return int(self.plan.warmup if self.plan.warmup >= 1 else self.plan.warmup * self.steps)

    @property
    def epoch_steps(self) -> int:
        """Steps of the first epoch; batches are drawn anew in each, so other epochs may have one more or less."""
        return self._before(1)

    def __getitem__(self, step: int) -> tuple[float, list[NDArray[np.int64]]]:
        """Return the epoch of a step (from 0), as a fraction, and its micro-batches."""
        while self.per_block[-1] <= step:
            self._count()
        block = bisect_right(self.per_block, step) - 1
        groups = self._groups(block)
        inside = step - self.per_block[block]
        return (block + inside / len(groups)) / self.epochs.blocks, groups[inside]

    def _before(self, epoch: int) -> int:
        while len(self.per_block) <= epoch * self.epochs.blocks:
            self._count()
        return self.per_block[epoch * self.epochs.blocks]

    def _count(self) -> None:
        """Count the steps of one more block."""
        if self.epochs.blocks > 1:
            epoch, block = divmod(len(self.per_block) - 1, self.epochs.blocks)
            log.info("planning the batches of epoch %d: block %d of %d", epoch + 1, block + 1, self.epochs.blocks)
        self.per_block.append(self.per_block[-1] + len(self._groups(len(self.per_block) - 1)))

    def _groups(self, block: int) -> list[list[NDArray[np.int64]]]:
        if block not in self.planned:
            rows = self.epochs.rows(*divmod(block, self.epochs.blocks))
            batches = plan_batches(
                self.sizes[rows], self.plan.batch_tokens, self.plan.seed, block, longest_first=block == 0
            )
            batches = [rows[batch] for batch in batches]
            n = self.plan.accumulate
            self.planned = {block: [batches[i : i + n] for i in range(0, len(batches), n)]}
        return self.planned[block]


def fit(
    model: TaskModel,
    task: Task,
    data: Dataset,
    optimizer: torch.optim.Optimizer,
    plan_: TrainSettings,
    start: int = 0,
    order: StepSchedule | None = None,
) -> Iterator[StepRecord]:
    """Train on one task from step `start` to the end, yielding a record after each step."""
    return train_steps([TaskStream(model, task, data)], optimizer, plan_, order or BatchOrder(data.sizes, plan_), start)


def train_steps(
    parts: Sequence[TaskStream],
    optimizer: torch.optim.Optimizer,
    plan_: TrainSettings,
    order: StepSchedule,
    start: int = 0,
    task_of_step: Callable[[int], int] = lambda step: 0,
) -> Iterator[StepRecord]:
    """Like `fit`, for one task or several with shared weights; whose: maps a step to the index of its task.

    Parameters of other tasks have no gradient in a step and are not updated: no decay, no momentum.
    """
    bad = 0
    modules = [list(part.model.modules()) for part in parts]
    for step in range(start, order.steps):
        began = time.perf_counter()
        number = task_of_step(step)
        part = parts[number]
        epoch, batches = order[step]
        share = lr_factor(step, order.steps, order.warmup, plan_.schedule, plan_.floor)
        for group in optimizer.param_groups:
            group["lr"] = group.get("factor", 1.0) * group["base"] * share
        if not all(module.training for module in modules[number]):  # calling `train` costs a percent of a small step
            part.model.train()
        optimizer.zero_grad(set_to_none=True)
        seed_device(part.task.device, step_seed(plan_.seed, step))
        loss, count, real, padded = accumulate_gradients(part.model, part.task, part.data, batches, plan_.precision)
        norm, finite = scale_and_clip(optimizer, max(count, 1.0), plan_.clip)
        bad = 0 if finite else bad + 1
        if finite:
            optimizer.step()
        elif bad >= PATIENCE:
            raise ValueError(
                f"the gradient was not finite for {bad} steps in a row, up to step {step + 1}; the last good "
                "checkpoint remains: lower train.lr, or look for broken rows with `multihead check`"
            )
        seconds = time.perf_counter() - began
        lr = max(group["lr"] / group.get("factor", 1.0) for group in optimizer.param_groups)
        yield StepRecord(
            step + 1, epoch, loss / max(count, 1.0), lr, norm, real, padded, seconds, not finite, part.name
        )


def accumulate_gradients(
    model: TaskModel, task: Task, data: Dataset, batches: Sequence[NDArray[np.int64]], precision: str = "fp32"
) -> tuple[float, float, int, int]:
    """Accumulate gradients of the summed loss over all micro-batches; return the sum, the count, and the number of
    tokens without and with padding."""
    loss, count, real, padded = 0.0, 0.0, 0, 0
    for rows in batches:
        batch = task.collate([data[int(row)] for row in rows] * (2 if task.rdrop else 1))
        with matmul_backend(precision):
            with torch.autocast(task.device.type, torch.bfloat16, enabled=precision == "bf16"):
                total, number = task.loss(model, batch)
            total.backward()
        loss, count = loss + float(total.detach()), count + float(number)
        keeps = [batch[name] for name in ("keep", "target_keep") if name in batch]
        real, padded = real + sum(int(keep.sum()) for keep in keeps), padded + sum(keep.numel() for keep in keeps)
    return loss, count, real, padded


def step_seed(seed_: int, step: int) -> int:
    """Return a seed for one step; seeds of neighboring steps are unrelated."""
    return int(np.random.SeedSequence([seed_, step]).generate_state(1, np.uint64)[0]) >> 1
