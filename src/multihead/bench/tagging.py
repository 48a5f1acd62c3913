"""Fine-tuning a tagger: our loop, the transformers Trainer as it comes, and a tuned loop over its model."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from multihead.bench.peers import OURS
from multihead.bench.training import Race, Ran
from multihead.build import load, with_readout
from multihead.data.read import records
from multihead.models import Encoder, Model
from multihead.tasks import IGNORE, Window
from multihead.tasks.ner import Ner
from multihead.train.loop import Order, Plan, fit
from multihead.train.optimizer import adamw

ROWS = 32  # sentences per batch of the peers; ours has as many tokens
BATCHES = 25  # in a round, drawn from all of an epoch's
LR = 1e-4
TRAINER, TUNED = "transformers Trainer", "tuned loop, transformers"


class Rows:
    """Windows in memory."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self.windows = windows
        self.sizes = np.array([len(window["tokens"]) for window in windows], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, row: int) -> Window:
        return self.windows[row]


def race(model: Path, data: Path) -> Race:
    """Fine-tuning a BERT on tagged words."""
    loaded = load(model)
    body = loaded.model.body
    if loaded.config.get("model_type") != "bert" or loaded.tokenizer is None or not isinstance(body, Encoder):
        raise ValueError(f"{model}: this race is run on a BERT with its tokenizer")
    rows = [record.values for record in records(data)]
    labels = Ner.learn(rows)
    task = Ner(loaded.tokenizer, labels, min(256, body.config.max_length))
    windows = Rows([window for values in rows for window in task.encode(values)])
    ours = with_readout(loaded, "ForTokenClassification", labels).model
    budget = max(int(ROWS * windows.sizes.mean()), int(windows.sizes.max()))
    config = body.config
    inner = config.inner or 4 * config.dim
    weights = config.layers * (4 * config.dim**2 + 2 * config.dim * inner) + config.dim * len(labels)
    return Race(
        "ner",
        f"{data.name}, {len(windows):,} sentences; {ROWS} a batch, ours {budget} tokens; {BATCHES} batches a round",
        {
            OURS: _ours(ours, task, windows, budget),
            TRAINER: _trainer(model, windows, len(labels)),
            TUNED: _tuned(model, windows, len(labels)),
        },
        {TRAINER: (1.8, 1.8), TUNED: (1.15, 1.3)},
        lambda tokens: 6.0 * tokens * weights,  # attention's own products left out: under 2 % at these lengths
    )


class Some:
    """Some steps of an epoch, drawn at random."""

    steps, warmup = BATCHES, 0

    def __init__(self, windows: Rows, plan: Plan) -> None:
        self.order = Order(windows.sizes, plan)
        self.drawn = np.random.Generator(np.random.PCG64(plan.seed)).permutation(self.order.steps)

    def __getitem__(self, step: int) -> tuple[float, list[NDArray[np.int64]]]:
        return self.order[int(self.drawn[step % len(self.drawn)])]


def _ours(model: Model, task: Ner, windows: Rows, budget: int) -> Callable[[], Ran]:
    optimizer, seeds = adamw(model, LR), itertools.count()

    def run() -> Ran:
        plan = Plan(epochs=1, batch_tokens=budget, schedule="constant", seed=next(seeds))
        some = Some(windows, plan)
        begin = time.perf_counter()
        steps = list(fit(model, task, windows, optimizer, plan, order=some))
        return Ran(sum(s.tokens for s in steps), sum(s.padded for s in steps), time.perf_counter() - begin)

    return run


def _theirs(model: Path, labels: int) -> Any:
    from transformers import AutoModelForTokenClassification, logging

    logging.set_verbosity_error()
    return AutoModelForTokenClassification.from_pretrained(model, num_labels=labels).train()


def _padded(windows: Sequence[Window]) -> dict[str, torch.Tensor]:
    width = max(len(window["tokens"]) for window in windows)
    shape = (len(windows), width)
    ids, labels = np.zeros(shape, dtype=np.int64), np.full(shape, IGNORE, dtype=np.int64)
    keep = np.zeros(shape, dtype=np.int64)
    for row, window in enumerate(windows):
        size = len(window["tokens"])
        ids[row, :size], labels[row, :size], keep[row, :size] = window["tokens"], window["labels"], 1
    found = {"input_ids": ids, "attention_mask": keep, "labels": labels}
    return {name: torch.from_numpy(array) for name, array in found.items()}


def _tuned(model: Path, windows: Rows, labels: int) -> Callable[[], Ran]:
    """What a careful person writes: batches of similar length, a fused optimiser, nothing else in the loop."""
    theirs = _theirs(model, labels)
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=LR, weight_decay=0.01, fused=True)

    draw = np.random.Generator(np.random.PCG64(1))

    def run() -> Ran:
        # As the Trainer's group_by_length, but over the whole set: shuffled, sorted, cut, and the batches shuffled.
        order = sorted(draw.permutation(len(windows)).tolist(), key=lambda row: -windows.sizes[row])
        cut = [order[i : i + ROWS] for i in range(0, len(order), ROWS)]
        tokens, padded, begin = 0, 0, time.perf_counter()
        for number in np.resize(draw.permutation(len(cut)), BATCHES):
            batch = _padded([windows[row] for row in cut[number]])
            theirs(**batch).loss.backward()
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            tokens, padded = tokens + int(batch["attention_mask"].sum()), padded + batch["input_ids"].numel()
        return Ran(tokens, padded, time.perf_counter() - begin)

    return run


def _trainer(model: Path, windows: Rows, labels: int) -> Callable[[], Ran]:
    """The Trainer with its defaults but for the batch and the rate: random batches, padded to their longest."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    theirs = _theirs(model, labels)
    seeds = itertools.count()  # other batches in every round
    seen: list[tuple[int, int]] = []
    clock: list[float] = []

    def collate(chosen: Sequence[Window]) -> dict[str, torch.Tensor]:
        batch = _padded(chosen)
        seen.append((int(batch["attention_mask"].sum()), batch["input_ids"].numel()))
        return batch

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            clock.append(time.perf_counter())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.append(time.perf_counter())

    def run() -> Ran:
        seen.clear()
        clock.clear()
        with tempfile.TemporaryDirectory() as scratch:
            arguments = TrainingArguments(
                scratch,
                per_device_train_batch_size=ROWS,
                learning_rate=LR,
                max_steps=BATCHES,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
                remove_unused_columns=False,
                seed=next(seeds),
            )
            Trainer(theirs, arguments, collate, list(windows.windows), callbacks=[Clock()]).train()
        used = seen[:BATCHES]  # it fetches one more
        return Ran(sum(s[0] for s in used), sum(s[1] for s in used), clock[-1] - clock[0])

    return run
