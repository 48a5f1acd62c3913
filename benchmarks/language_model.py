"""Training a small language model on characters: our loop beside nanoGPT's, and beside that with a fused optimiser.

Same shape (GPT-2's without biases in the matrices), vocabulary, windows per batch and AdamW's numbers. What differs:
our norms have a bias (9 vectors more), q, k and v are three matrices, and our order shows every window once an epoch,
where nanoGPT cuts at random places.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch

from benchmarks import nanogpt_baseline as nanogpt
from benchmarks.attention_baselines import OURS
from benchmarks.training import Benchmark, RoundResult, our_precision
from multihead import config as runs
from multihead.models import Decoder, LanguageModel, ModelConfig, TaskModel
from multihead.recipes import recipe
from multihead.tasks import Task
from multihead.training.block_sampler import BlockOrder
from multihead.training.dataset import BlockDataset, build_dataset
from multihead.training.loop import TrainSettings, fit
from multihead.training.optimizer import adamw
from multihead.training.setup import set_up

BATCHES = 40  # in a round: short ones, whose neighbours in time see the same machine
THEIRS, FUSED = "nanoGPT's loop", "the same, fused AdamW"


def make_benchmark(data: Path, half: bool = False) -> Benchmark:
    """data: a text, of whose characters the last tenth is held out. half: all in bf16."""
    folder = TemporaryDirectory()  # it goes when nanoGPT's loops, which read from it, are gone
    (setup,), _ = set_up(settings(data, folder.name))
    corpus = build_dataset(setup.task, setup.sides["train"], Path(folder.name), [data])
    assert isinstance(corpus, BlockDataset)
    tokens = np.concatenate(corpus.files).astype(np.uint16)
    tokens.tofile(Path(folder.name) / nanogpt.TOKENS)
    vocab = len(setup.task.tokenizer)
    torch.manual_seed(0)
    model = LanguageModel(shape(vocab))
    layers = sum(p.numel() for p in cast(Decoder, model.body).stack.parameters())
    return Benchmark(
        "generate",
        f"{data.name}, {len(tokens):,} characters; batches of {nanogpt.BATCH} windows of {nanogpt.BLOCK} tokens; "
        f"{BATCHES} batches a round; nanoGPT's published settings for a CPU, its loop written anew",
        {
            OURS: our_loop(model, setup.task, corpus, BATCHES, half),
            THEIRS: nanogpt.loop(nanogpt.NanoGPT(vocab), folder, BATCHES, half),
            FUSED: nanogpt.loop(nanogpt.NanoGPT(vocab), folder, BATCHES, half, fused=True),
        },
        {THEIRS: (1.1, 1.1)},
        lambda count: 6.0 * count * (layers + vocab * nanogpt.WIDTH),
        half,
    )


def settings(data: Path, out: str) -> runs.RunConfig:
    changes = [f"data.train={str(data.absolute())!r}", f"out={out}"]
    return runs.read(recipe("benchmarks") / "shakespeare_nanogpt.toml", changes)


def shape(vocab: int) -> ModelConfig:
    """nanoGPT's, as near as our parts come."""
    return ModelConfig(
        vocab=vocab, dim=nanogpt.WIDTH, layers=nanogpt.LAYERS, heads=nanogpt.HEADS, max_length=nanogpt.BLOCK,
        positions="learned", norm_first=True, activation="gelu", attention_bias="", inner_bias=False, dropout=0.0,
    )  # fmt: skip


def our_loop(model: TaskModel, task: Task, corpus: BlockDataset, steps: int, half: bool) -> Callable[[], RoundResult]:
    """Our loop, going on through the corpus from round to round. Counted are tokens that are foretold."""
    optimizer = adamw(model, nanogpt.RATE, nanogpt.DECAY, beta2=nanogpt.BETAS[1])
    rounds, each = itertools.count(), nanogpt.BATCH * nanogpt.BLOCK
    whole = TrainSettings(batch_tokens=each, schedule="constant", warmup=nanogpt.WARMUP, precision=our_precision(half))

    def run() -> RoundResult:
        first = next(rounds) * steps
        order = BlockOrder(corpus, replace(whole, steps=first + steps))
        begin = time.perf_counter()
        taken = sum(1 for _ in fit(model, task, corpus, optimizer, order.plan, start=first, order=order))
        return RoundResult(taken * each, taken * each, time.perf_counter() - begin)

    return run


def copy_weights(model: TaskModel, theirs: nanogpt.NanoGPT) -> None:
    """Our weights into theirs: both then give the same loss."""
    body, layers = cast(Decoder, model.body), cast(Any, theirs.layers)
    assert body.stem.positions is not None
    with torch.no_grad():
        theirs.tokens.weight.copy_(body.stem.embedding.weight)
        theirs.places.weight.copy_(body.stem.positions.table)
        for block, layer in zip(cast(Any, body.stack.blocks), layers, strict=True):
            parts = (block.attention.q, block.attention.k, block.attention.v)
            layer.qkv.weight.copy_(torch.cat([part.weight for part in parts]))
            layer.out.weight.copy_(block.attention.out.weight)
            layer.up.weight.copy_(block.feed_forward.up.weight)
            layer.down.weight.copy_(block.feed_forward.down.weight)
            layer.first.weight.copy_(block.attention_norm.weight)
            layer.second.weight.copy_(block.feed_forward_norm.weight)
        theirs.norm.weight.copy_(cast(Any, body.stack.norm).weight)
