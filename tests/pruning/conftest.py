"""Models whose heads are planted by hand, so that what they do is known; and random ones on all bodies."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from multihead.inference import Pipeline
from multihead.models import ClassifierReadout, Decoder, Encoder, EncoderDecoder, ModelConfig, TaskModel
from multihead.models.families import native_config
from multihead.text.tokenizer import Tokenizer

LETTERS = "abcdefghijkl"
P = 16  # positions


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join(LETTERS) + " . ,"] * 3, "wordpiece", 60)


@dataclass
class Planted:
    loaded: Pipeline
    rows: list[dict[str, Any]]
    address: str
    name: str


def empty(tokenizer: Tokenizer, over: str, classes: int, planted: tuple[int, int]) -> tuple[TaskModel, int]:
    """Two layers of three heads that do nearly nothing. Columns: token, position, what a head brings."""
    torch.manual_seed(0)
    V = len(tokenizer)
    config = ModelConfig(
        vocab=V, max_length=P, dim=2 * V + P, layers=2, heads=3, key_dim=V + P, value_dim=V + P, inner=8,
        norm="rms", norm_first=True, final_norm=False, positions="learned", dropout=0.0,
    )  # fmt: skip
    model = TaskModel(Encoder(config), ClassifierReadout(config.dim, classes, over=over, dropout=0.0)).eval()  # type: ignore[arg-type]
    for parameter in model.body.stack.parameters():
        parameter.data.mul_(0.05 if parameter.dim() > 1 else 1.0)
    stem = model.body.stem
    stem.embedding.weight.data.copy_(torch.eye(V, config.dim))
    stem.positions.table.data.copy_(torch.cat((torch.zeros(P, V), torch.eye(P), torch.zeros(P, V)), 1))
    layer, head = planted
    attention, K = model.body.stack.blocks[layer].attention, V + P
    for linear in (attention.q, attention.k, attention.v):
        linear.weight.data[head * K : head * K + K] = 0
        linear.bias.data[head * K : head * K + K] = 0
    attention.out.weight.data[:, head * K : head * K + K] = 0
    return model, V


def bring(model: TaskModel, planted: tuple[int, int], V: int, from_tokens: bool) -> None:
    """The planted head carries the token, or the position, of what it looks at into the last columns."""
    layer, head = planted
    attention, K = model.body.stack.blocks[layer].attention, V + P
    for i in range(V if from_tokens else P):
        attention.v.weight.data[head * K + i, i if from_tokens else V + i] = 1.0
        attention.out.weight.data[V + P + i, head * K + i] = 1.0


def sentences(count: int, low: int, high: int, seed: int = 0) -> list[list[str]]:
    pick = random.Random(seed)
    return [pick.choices(LETTERS, k=pick.randint(low, high)) for _ in range(count)]


def wrapped(model: TaskModel, tokenizer: Tokenizer, task: str, labels: list[str]) -> Pipeline:
    return Pipeline(model, native_config(model), tokenizer, labels=labels, task=task, options={"size": P, "overlap": 0})


def previous(tokenizer: Tokenizer) -> Planted:
    """A word's tag says whether the word before it is one of a, b, c."""
    at = (1, 2)
    model, V = empty(tokenizer, "tokens", 3, at)
    attention, K = model.body.stack.blocks[1].attention, V + P
    for p in range(P):
        attention.k.weight.data[2 * K + p, V + p] = 1.0
        if p:
            attention.q.weight.data[2 * K + p - 1, V + p] = 3.0
    bring(model, at, V, from_tokens=True)
    scores = model.readout.scores
    torch.nn.init.zeros_(scores.weight)
    scores.bias.data.copy_(torch.tensor([0.0, -2.5, -9.0]))
    for letter in "abc":
        scores.weight.data[1, V + P + tokenizer.encode(letter, special=False).ids[0]] = 1.0
    rows = [
        {"tokens": words, "tags": ["B-X" if i and words[i - 1] in "abc" else "O" for i in range(len(words))]}
        for words in sentences(60, 4, 9)
    ]
    return Planted(wrapped(model, tokenizer, "ner", ["O", "B-X", "I-X"]), rows, "encoder.1.self.2", "previous token")


def separator(tokenizer: Tokenizer) -> Planted:
    """A text is long or short: the separator behind it knows where it ends."""
    at = (0, 1)
    model, V = empty(tokenizer, "first", 2, at)
    attention, K = model.body.stack.blocks[0].attention, V + P
    attention.q.bias.data[K] = 30.0
    attention.k.weight.data[K, tokenizer.special["sep"]] = 1.0
    bring(model, at, V, from_tokens=False)
    scores = model.readout.scores
    torch.nn.init.zeros_(scores.weight)
    scores.bias.data.zero_()
    for p in range(P):
        scores.weight.data[int(p <= 6), V + P + p] = 0.5  # the first token is [CLS], so a text of 6 words ends at 7
    rows = [{"text": " ".join(words), "label": "long" if len(words) > 5 else "short"} for words in sentences(60, 3, 9)]
    return Planted(wrapped(model, tokenizer, "classify", ["long", "short"]), rows, "encoder.0.self.1", "separator sink")


def copy(tokenizer: Tokenizer) -> Planted:
    """Every word stands twice; its tag says whether its twin is among the first three."""
    at = (0, 0)
    model, V = empty(tokenizer, "tokens", 3, at)
    attention = model.body.stack.blocks[0].attention
    for i in range(V + P):
        attention.q.weight.data[i, i] = 3.0
        attention.k.weight.data[i, i] = 1.0 if i < V else -2.0  # the same word, not the same place
    bring(model, at, V, from_tokens=False)
    scores = model.readout.scores
    torch.nn.init.zeros_(scores.weight)
    scores.bias.data.copy_(torch.tensor([0.0, -2.5, -9.0]))
    scores.weight.data[1, V + P + 1 : V + P + 4] = 1.0
    rows, pick = [], random.Random(0)
    for _ in range(60):
        words = pick.sample(LETTERS, 4) * 2
        pick.shuffle(words)
        twins = [next(j for j, other in enumerate(words) if other == word and j != i) for i, word in enumerate(words)]
        rows.append({"tokens": words, "tags": ["B-X" if twin < 3 else "O" for twin in twins]})
    return Planted(wrapped(model, tokenizer, "ner", ["O", "B-X", "I-X"]), rows, "encoder.0.self.0", "same word")


@pytest.fixture(params=[previous, separator, copy], ids=lambda make: make.__name__)
def planted(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Planted:
    return request.param(tokenizer)


@pytest.fixture
def planted_previous(tokenizer: Tokenizer) -> Planted:
    return previous(tokenizer)


SMALL = ModelConfig(dim=24, layers=2, heads=4, max_length=64, dropout=0.0, norm_first=True)


def body(kind: str, tokenizer: Tokenizer, **options: Any) -> Pipeline:
    """A random model without a task: encoder, decoder or both."""
    torch.manual_seed(1)
    config = replace(SMALL, **{"vocab": len(tokenizer), **options})
    made = {"encoder": Encoder, "decoder": Decoder, "both": EncoderDecoder}[kind](config)
    model = TaskModel(made, torch.nn.Identity()).eval()
    for parameter in model.parameters():  # sharp heads
        parameter.data *= 1.7
    return Pipeline(model, native_config(model), tokenizer, generation={"decoder_start_token_id": 1})


@pytest.fixture
def random_body(tokenizer: Tokenizer) -> Any:
    return lambda kind, **options: body(kind, tokenizer, **options)
