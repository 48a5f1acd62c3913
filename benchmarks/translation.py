"""Training a small translator: our loop, the transformers Seq2SeqTrainer as it comes, and a tuned loop over its model.

The model has the size of the recipe's for multi30k (4 + 4 layers of width 128) and Marian's shape. Both sides open it
from one directory, so that all begin with the same weights; vocabulary, dropout, label smoothing and AdamW's numbers
are the same too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.attention_baselines import OURS
from benchmarks.training import Benchmark
from benchmarks.training_loops import Batch, InMemoryWindows, our_loop, trainer_loop, tuned_loop
from multihead import config as runs
from multihead.models import EncoderDecoder
from multihead.pretrained import save
from multihead.recipes import recipe
from multihead.tasks import IGNORE, Window
from multihead.training.setup import TaskSetup, set_up

BATCHES = 10  # in a round, drawn from all of an epoch's
TRAINER, TUNED = "transformers Seq2SeqTrainer", "tuned loop, transformers"


def make_benchmark(data: Sequence[Path], changes: Sequence[str] = (), half: bool = False) -> Benchmark:
    """data: a file of pairs, or the two files of parallel text. changes: keys of the recipe's run file. half:
    all in bf16."""
    with tempfile.TemporaryDirectory() as made:
        run = settings(data, [f"out={made}", *changes])
        (setup,), model = set_up(run)
    task, options, smoothing = setup.task, run.train, run.train.smoothing
    windows = [task.encode(values) for values in setup.sides["train"]()]
    rows = InMemoryWindows([found[0] for found in windows if not task.skip_reason(found)])
    budget = max(options.batch_tokens, int(rows.sizes.max()))
    each = max(1, int(budget / rows.sizes.mean()))
    adamw = {"lr": options.lr, "weight_decay": options.weight_decay, "beta2": options.beta2}
    pad = task.pad

    def collate(chosen: Sequence[Window]) -> tuple[Batch, int, int]:
        return pad_batch(chosen, pad)

    def loss(theirs: Any, batch: Batch) -> torch.Tensor:
        return smoothed_loss(theirs, batch, smoothing)

    return Benchmark(
        "translate",
        f"{data[0].name}, {len(rows):,} pairs; {each} a batch, ours {budget:,} tokens of both sides; {BATCHES} batches "
        f"a round; a vocabulary of {len(task.tokenizer):,}",
        {
            OURS: our_loop(model, task, rows, budget, BATCHES, adamw, half),
            TRAINER: trainer_loop(build_marian(setup), collate, rows, each, BATCHES, adamw, half, smoothing),
            TUNED: tuned_loop(build_marian(setup), loss, collate, rows, each, BATCHES, adamw, half),
        },
        {TRAINER: (1.5, 1.5)},
        lambda tokens: 6.0 * tokens * weights(model.body),
        half,
    )


def settings(data: Sequence[Path], changes: Sequence[str]) -> runs.RunConfig:
    """The recipe for multi30k on other files, in Marian's shape, at a rate that new weights bear without a warmup."""
    files = ", ".join(f"{str(path.absolute())!r}" for path in data)
    kind = ["data.format=parallel"] if len(data) > 1 else ["data.format=pairs"]
    given = [f"data.{side}=[{files}]" for side in ("train", "valid", "test")]
    given += ["train.lr=5e-4", "train.batch_tokens=8192", *kind, *changes]
    given += ["model.positions=sinusoidal", "model.norm_first=false"]
    return runs.read(recipe("benchmarks") / "multi30k.toml", given)


def weights(body: Any) -> float:
    """Weights that a token meets, on average over both sides: half of all, where these are as long as each other."""
    assert isinstance(body, EncoderDecoder)
    table = body.decoder.stem.embedding.weight.numel()  # as the readout
    layers = sum(p.numel() for stack in (body.encoder.stack, body.decoder.stack) for p in stack.parameters())
    return (layers + table) / 2


def build_marian(setup: TaskSetup) -> Any:
    """Our model, as transformers opens it."""
    from transformers import MarianMTModel, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as made:
        save(setup.loaded, Path(made))
        return MarianMTModel.from_pretrained(made).train()


def smoothed_loss(theirs: Any, batch: Batch, smoothing: float) -> torch.Tensor:
    """The mean over real tokens."""
    given = {name: tensor for name, tensor in batch.items() if name != "labels"}
    logits = theirs(**given, use_cache=False).logits
    return F.cross_entropy(
        logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORE, label_smoothing=smoothing
    )


def pad_batch(windows: Sequence[Window], pad: int) -> tuple[Batch, int, int]:
    """What a collator for Marian gives: the target shifted, and hidden where it is padding."""
    count = len(windows)
    read, written = (max(len(window[name]) for window in windows) for name in ("tokens", "target"))
    ids, keep = np.full((count, read), pad, dtype=np.int64), np.zeros((count, read), dtype=np.int64)
    target = np.full((count, written), pad, dtype=np.int64)
    labels = np.full((count, written - 1), IGNORE, dtype=np.int64)
    real = 0
    for row, window in enumerate(windows):
        source, text = window["tokens"], window["target"]
        ids[row, : len(source)], keep[row, : len(source)] = source, 1
        target[row, : len(text)], labels[row, : len(text) - 1] = text, text[1:]
        real += len(source) + len(text)
    found = {"input_ids": ids, "attention_mask": keep, "decoder_input_ids": target[:, :-1].copy(), "labels": labels}
    return {name: torch.from_numpy(array) for name, array in found.items()}, real, ids.size + target.size
