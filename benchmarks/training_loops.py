"""Rows in memory, and rounds of training on some batches of an epoch: what the races of `bench train` share."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.training import RoundResult, half_precision, our_precision
from multihead.models import TaskModel
from multihead.tasks import Task, Window
from multihead.training.loop import BatchOrder, TrainSettings, fit
from multihead.training.optimizer import adamw

Batch = dict[str, torch.Tensor]
Collate = Callable[[Sequence[Window]], tuple[Batch, int, int]]  # -> the batch, its real tokens, and with padding
OptimizerSettings = Mapping[str, float]  # of AdamW: lr, weight_decay, beta2


class InMemoryWindows:
    """Windows in memory. lengths: [N], or of pairs [N, 2]; sizes: both sides together."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self.windows = windows
        sides = [name for name in ("tokens", "target") if name in windows[0]]
        table = np.array([[len(window[name]) for name in sides] for window in windows], dtype=np.int64)
        self.lengths: NDArray[np.int64] = table if len(sides) > 1 else table[:, 0]
        self.sizes: NDArray[np.int64] = table.sum(1)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, row: int) -> Window:
        return self.windows[row]


class SampledSteps:
    """Some steps of an epoch, drawn at random."""

    warmup = 0

    def __init__(self, rows: InMemoryWindows, plan: TrainSettings, steps: int) -> None:
        self.steps, self.order = steps, BatchOrder(rows.lengths, plan)
        self.drawn = np.random.Generator(np.random.PCG64(plan.seed)).permutation(self.order.steps)

    def __getitem__(self, step: int) -> tuple[float, list[NDArray[np.int64]]]:
        return self.order[int(self.drawn[step % len(self.drawn)])]


def our_loop(
    model: TaskModel,
    task: Task,
    rows: InMemoryWindows,
    budget: int,
    steps: int,
    settings: OptimizerSettings,
    half: bool,
) -> Callable[[], RoundResult]:
    """Our loop: batches of similar lengths, with so many tokens."""
    optimizer, seeds = adamw(model, **settings), itertools.count()
    whole = TrainSettings(epochs=1, batch_tokens=budget, schedule="constant", precision=our_precision(half))

    def run() -> RoundResult:
        plan = replace(whole, seed=next(seeds))
        some = SampledSteps(rows, plan, steps)
        begin = time.perf_counter()
        taken = list(fit(model, task, rows, optimizer, plan, order=some))
        return RoundResult(sum(s.tokens for s in taken), sum(s.padded for s in taken), time.perf_counter() - begin)

    return run


def tuned_loop(
    theirs: Any,
    loss: Callable[[Any, Batch], torch.Tensor],
    collate: Collate,
    rows: InMemoryWindows,
    each: int,
    steps: int,
    settings: OptimizerSettings,
    half: bool,
) -> Callable[[], RoundResult]:
    """What a careful person writes: batches of similar length, a fused optimiser, nothing else in the loop."""
    betas = (0.9, settings.get("beta2", 0.999))
    lr, decay = settings["lr"], settings["weight_decay"]
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=lr, betas=betas, weight_decay=decay, fused=True)
    draw = np.random.Generator(np.random.PCG64(1))

    def run() -> RoundResult:
        # As the Trainer's group_by_length, but over the whole set: shuffled, sorted, cut, and the batches shuffled.
        order = sorted(draw.permutation(len(rows)).tolist(), key=lambda row: -rows.sizes[row])
        cut = [order[i : i + each] for i in range(0, len(order), each)]
        tokens, padded, begin = 0, 0, time.perf_counter()
        for number in np.resize(draw.permutation(len(cut)), steps):
            batch, real, area = collate([rows[row] for row in cut[number]])
            with half_precision(half):
                found = loss(theirs, batch)
            found.backward()
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            tokens, padded = tokens + real, padded + area
        return RoundResult(tokens, padded, time.perf_counter() - begin)

    return run


def trainer_loop(
    theirs: Any,
    collate: Collate,
    rows: InMemoryWindows,
    each: int,
    steps: int,
    settings: OptimizerSettings,
    half: bool,
    smoothing: float | None = None,
) -> Callable[[], RoundResult]:
    """The Trainer with its defaults but for the batch and the optimiser's numbers: random batches, padded to their
    longest. smoothing: of labels, by the Seq2SeqTrainer; None: the model works out its loss itself."""
    from transformers import (
        PrinterCallback,
        Seq2SeqTrainer,
        Seq2SeqTrainingArguments,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    seeds = itertools.count()  # other batches in every round
    seen: list[tuple[int, int]] = []
    clock: list[float] = []

    def collate_counted(chosen: Sequence[Window]) -> Batch:
        batch, real, area = collate(chosen)
        seen.append((real, area))
        return batch

    class StepTimer(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            clock.append(time.perf_counter())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.append(time.perf_counter())

    arguments = TrainingArguments if smoothing is None else Seq2SeqTrainingArguments
    kind = Trainer if smoothing is None else Seq2SeqTrainer
    more = {} if smoothing is None else {"label_smoothing_factor": smoothing}

    def run() -> RoundResult:
        seen.clear()
        clock.clear()
        with tempfile.TemporaryDirectory() as scratch:
            given = arguments(
                scratch,
                per_device_train_batch_size=each,
                learning_rate=settings["lr"],
                weight_decay=settings["weight_decay"],
                adam_beta2=settings.get("beta2", 0.999),
                max_steps=steps,
                report_to=[],
                use_cpu=True,
                bf16=half,
                save_strategy="no",
                disable_tqdm=True,
                remove_unused_columns=False,
                seed=next(seeds),
                **more,
            )
            one = kind(theirs, given, collate_counted, list(rows.windows), callbacks=[StepTimer()])
            one.remove_callback(PrinterCallback)
            one.train()
        used = seen[:steps]  # it fetches one more
        return RoundResult(sum(s[0] for s in used), sum(s[1] for s in used), clock[-1] - clock[0])

    return run
