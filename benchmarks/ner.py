"""Fine-tuning a tagger: our loop, the transformers Trainer as it comes, and a tuned loop over its model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.attention_baselines import OURS
from benchmarks.training import Benchmark
from benchmarks.training_loops import Batch, InMemoryWindows, our_loop, trainer_loop, tuned_loop
from multihead.data.readers.read import read_records
from multihead.models import Encoder
from multihead.pretrained import load, with_readout
from multihead.tasks import IGNORE, Window
from multihead.tasks.ner import Ner
from multihead.training.partial_embedding import shrink_embedding

ROWS = 32  # sentences per batch of the peers; ours has as many tokens
BATCHES = 25  # in a round, drawn from all of an epoch's
ADAMW = {"lr": 1e-4, "weight_decay": 0.01}
TRAINER, TUNED = "transformers Trainer", "tuned loop, transformers"


def make_benchmark(model: Path, data: Path, half: bool = False) -> Benchmark:
    """Fine-tuning a BERT on tagged words. half: all in bf16."""
    loaded = load(model)
    body = loaded.model.body
    if loaded.config.get("model_type") != "bert" or loaded.tokenizer is None or not isinstance(body, Encoder):
        raise ValueError(f"{model}: this race is run on a BERT with its tokenizer")
    rows = [record.values for record in read_records(data)]
    labels = Ner.collect_labels(rows)
    task = Ner(loaded.tokenizer, labels, min(256, body.config.max_length))
    windows = InMemoryWindows([window for values in rows for window in task.encode(values)])
    tagger = with_readout(loaded, "ForTokenClassification", labels).model
    shrink_embedding(body, [window["tokens"] for window in windows.windows], [task.pad])
    budget = max(int(ROWS * windows.sizes.mean()), int(windows.sizes.max()))
    config = body.config
    inner = config.inner or 4 * config.dim
    weights = config.layers * (4 * config.dim**2 + 2 * config.dim * inner) + config.dim * len(labels)
    return Benchmark(
        "ner",
        f"{data.name}, {len(windows):,} sentences; {ROWS} a batch, ours {budget} tokens; {BATCHES} batches a round",
        {
            OURS: our_loop(tagger, task, windows, budget, BATCHES, ADAMW, half),
            TRAINER: trainer_loop(_theirs(model, len(labels)), pad_batch, windows, ROWS, BATCHES, ADAMW, half),
            TUNED: tuned_loop(_theirs(model, len(labels)), _loss, pad_batch, windows, ROWS, BATCHES, ADAMW, half),
        },
        {TRAINER: (1.8, 1.8), TUNED: (1.15, 1.3)},
        lambda tokens: 6.0 * tokens * weights,  # attention's own products left out: under 2 % at these lengths
        half,
    )


def _theirs(model: Path, labels: int) -> Any:
    from transformers import AutoModelForTokenClassification, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return AutoModelForTokenClassification.from_pretrained(model, num_labels=labels).train()


def _loss(theirs: Any, batch: Batch) -> torch.Tensor:
    found: torch.Tensor = theirs(**batch).loss
    return found


def pad_batch(windows: Sequence[Window]) -> tuple[Batch, int, int]:
    width = max(len(window["tokens"]) for window in windows)
    shape = (len(windows), width)
    ids, labels = np.zeros(shape, dtype=np.int64), np.full(shape, IGNORE, dtype=np.int64)
    keep = np.zeros(shape, dtype=np.int64)
    for row, window in enumerate(windows):
        size = len(window["tokens"])
        ids[row, :size], labels[row, :size], keep[row, :size] = window["tokens"], window["labels"], 1
    found = {"input_ids": ids, "attention_mask": keep, "labels": labels}
    return {name: torch.from_numpy(array) for name, array in found.items()}, int(keep.sum()), keep.size
