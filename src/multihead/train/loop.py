"""The loop: a generator of step records. Printing, saving, scoring and stopping consume it.

Loss is sum ÷ count over all that belongs to a step. The order of samples and dropout are pure functions of
(seed, step), so a run goes on bit for bit from any step whose weights and optimiser state were kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from multihead.data.batches import plan
from multihead.models import Model
from multihead.tasks import Task, Window
from multihead.train.optimizer import gathered, rate

PATIENCE = 20  # steps in a row whose gradients are not finite, before the run is given up


class Windows(Protocol):
    """Encoded data: windows by number, and their lengths."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> Window: ...
    @property
    def sizes(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class Plan:
    """How to train, in plain numbers."""

    epochs: float = 3.0
    steps: int | None = None  # instead of epochs
    batch_tokens: int = 1024
    accumulate: int = 1
    schedule: str = "linear"
    warmup: float = 0.1  # a share of all steps; 1 or more: steps
    floor: float = 0.0  # the share of the learning rate that is left at the end
    clip: float = 1.0
    seed: int = 1
    precision: str = "fp32"  # or bf16


@dataclass(frozen=True)
class Step:
    """One step of the optimiser."""

    step: int  # counted from 1
    epoch: float
    loss: float
    lr: float
    norm: float
    tokens: int  # real ones
    padded: int  # and with padding
    seconds: float
    skipped: bool  # the gradient was not finite; nothing was learnt


class Schedule(Protocol):
    """What a step is made of: the epoch it lies in, as a fraction, and its micro-batches."""

    steps: int

    @property
    def warmup(self) -> int: ...
    def __getitem__(self, step: int, /) -> tuple[float, list[NDArray[np.int64]]]: ...


class Order:
    """Which windows make which step, without a state: epoch after epoch, batches of similar lengths.

    sizes: [N], or [N, 2] for pairs; weights: how often an epoch shows each window.
    """

    def __init__(self, sizes: NDArray[np.int64], plan_: Plan, weights: NDArray[np.float64] | None = None) -> None:
        if not len(sizes):
            raise ValueError("there is nothing to train on: no row was usable")
        self.sizes, self.plan, self.weights = sizes, plan_, weights
        self.epochs: dict[int, list[list[NDArray[np.int64]]]] = {}
        self.per_epoch = [0]  # steps before each epoch
        if plan_.steps is not None:
            self.steps = plan_.steps
        else:
            whole, part = int(plan_.epochs), plan_.epochs - int(plan_.epochs)
            self.steps = self._before(whole) + round(part * (self._before(whole + 1) - self._before(whole)))
        self.steps = max(self.steps, 1)

    @property
    def warmup(self) -> int:
        return int(self.plan.warmup if self.plan.warmup >= 1 else self.plan.warmup * self.steps)

    def __getitem__(self, step: int) -> tuple[float, list[NDArray[np.int64]]]:
        """The epoch that step (from 0) lies in, as a fraction, and its micro-batches."""
        epoch = 0
        while self._before(epoch + 1) <= step:
            epoch += 1
        groups = self._groups(epoch)
        inside = step - self._before(epoch)
        return epoch + inside / len(groups), groups[inside]

    def _before(self, epoch: int) -> int:
        while len(self.per_epoch) <= epoch:
            self.per_epoch.append(self.per_epoch[-1] + len(self._groups(len(self.per_epoch) - 1)))
        return self.per_epoch[epoch]

    def _groups(self, epoch: int) -> list[list[NDArray[np.int64]]]:
        if epoch not in self.epochs:
            rows = self._shown(epoch)
            sizes = self.sizes if rows is None else self.sizes[rows]
            batches = plan(sizes, self.plan.batch_tokens, self.plan.seed, epoch, longest_first=epoch == 0)
            batches = batches if rows is None else [rows[batch] for batch in batches]
            n = self.plan.accumulate
            self.epochs = {epoch: [batches[i : i + n] for i in range(0, len(batches), n)]}
        return self.epochs[epoch]

    def _shown(self, epoch: int) -> NDArray[np.int64] | None:
        """The windows of an epoch: of a weight of 2.3, all of them twice and three tenths once more, drawn anew."""
        if self.weights is None:
            return None
        draws = np.random.Generator(np.random.PCG64([self.plan.seed, epoch, 1])).random(len(self.weights))
        return np.repeat(np.arange(len(self.weights)), (self.weights + draws).astype(np.int64))


def fit(
    model: Model,
    task: Task,
    data: Windows,
    optimizer: torch.optim.Optimizer,
    plan_: Plan,
    start: int = 0,
    order: Schedule | None = None,
) -> Iterator[Step]:
    """Train from step `start` to the end, yielding a record after each step."""
    order = order or Order(data.sizes, plan_)
    bad = 0
    for step in range(start, order.steps):
        began = time.perf_counter()
        epoch, batches = order[step]
        share = rate(step, order.steps, order.warmup, plan_.schedule, plan_.floor)
        for group in optimizer.param_groups:
            group["lr"] = group.get("factor", 1.0) * group["base"] * share
        model.train()
        optimizer.zero_grad(set_to_none=True)
        torch.manual_seed(mixed(plan_.seed, step))
        loss, count, real, padded = accumulated(model, task, data, batches, plan_.precision)
        norm, finite = gathered(optimizer, max(count, 1.0), plan_.clip)
        bad = 0 if finite else bad + 1
        if finite:
            optimizer.step()
        elif bad >= PATIENCE:
            raise ValueError(
                f"the gradient was not finite for {bad} steps in a row, up to step {step + 1}; the last good "
                "checkpoint is kept: lower train.lr, or look for broken rows with `multihead check`"
            )
        seconds = time.perf_counter() - began
        lr = max(group["lr"] / group.get("factor", 1.0) for group in optimizer.param_groups)
        yield Step(step + 1, epoch, loss / max(count, 1.0), lr, norm, real, padded, seconds, not finite)


def accumulated(
    model: Model, task: Task, data: Windows, batches: Sequence[NDArray[np.int64]], precision: str = "fp32"
) -> tuple[float, float, int, int]:
    """Gradients of the summed loss over all micro-batches; the sum, the count, and tokens real and padded."""
    loss, count, real, padded = 0.0, 0.0, 0, 0
    for rows in batches:
        batch = task.collate([data[int(row)] for row in rows])
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            total, number = task.loss(model, batch)
        total.backward()
        loss, count = loss + float(total.detach()), count + float(number)
        keeps = [batch[name] for name in ("keep", "target_keep") if name in batch]
        real, padded = real + sum(int(keep.sum()) for keep in keeps), padded + sum(keep.numel() for keep in keeps)
    return loss, count, real, padded


def mixed(seed: int, step: int) -> int:
    """A seed for one step: neighbours share nothing."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0]) >> 1
