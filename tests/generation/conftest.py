"""Small models whose text depends on what was read, for all tests of this room."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from multihead.models import Decoder, EncoderDecoder, LanguageModel, LMReadout, ModelConfig, TaskModel

torch.set_num_threads(1)

SHAPES: dict[str, dict[str, object]] = {
    "rotary": {"positions": "rotary", "norm": "rms", "norm_first": True, "gated": True, "kv_heads": 2},
    "learned": {"positions": "learned", "norm_first": True, "attention_bias": "qvo"},
    "sinusoidal": {"positions": "sinusoidal", "embed_norm": True, "embed_scale": 4.9, "activation": "gelu"},
    "alibi": {"positions": "alibi", "kv_heads": 1},
    "relative": {"positions": "relative", "attention_bias": "", "inner_bias": False},
    "window": {"positions": "rotary", "window": 4},
    "wide values": {"positions": "alibi", "value_dim": 9, "qk_norm": "rms"},  # not for the lean way
}


def config(**shape: object) -> ModelConfig:
    return ModelConfig(**{"vocab": 31, "dim": 24, "layers": 2, "heads": 4, "max_length": 60, **shape})  # type: ignore[arg-type]


def make_language_model(seed: int = 3, **shape: object) -> TaskModel:
    torch.manual_seed(seed)
    model = LanguageModel(config(**shape)).eval()
    with torch.no_grad():
        model.body.stem.embedding.weight.mul_(20)  # a random model otherwise repeats one token
    return model


def make_translator(seed: int = 4, **shape: object) -> TaskModel:
    torch.manual_seed(seed)
    body = EncoderDecoder(config(**shape), shared=False)
    with torch.no_grad():
        body.encoder.stem.embedding.weight.mul_(50)  # sources that differ, and that are listened to
        body.decoder.stem.embedding.weight.mul_(20)
        for block in body.decoder.stack.blocks:
            block.cross.out.weight.mul_(5)
    readout = LMReadout(config(**shape), bias=True)
    with torch.no_grad():
        readout.weight.mul_(20)
    return TaskModel(body, readout).eval()


def decoder_of(model: TaskModel) -> Decoder:
    return model.body.decoder if isinstance(model.body, EncoderDecoder) else model.body  # type: ignore[return-value]


@torch.no_grad()
def make_next(model: TaskModel, tokens: list[int], memory: Tensor | None = None) -> Tensor:
    """No cache, no batch: the whole text again; logits [V] of what follows it."""
    return model.readout(decoder_of(model)(torch.tensor([tokens]), memory=memory))[0, -1]


@pytest.fixture(params=SHAPES.values(), ids=SHAPES, scope="session")
def shape(request: pytest.FixtureRequest) -> dict[str, object]:
    return request.param


@pytest.fixture(scope="session")
def language_model() -> Callable[..., TaskModel]:
    return make_language_model


@pytest.fixture(scope="session")
def translator() -> Callable[..., TaskModel]:
    return make_translator


@pytest.fixture(scope="session")
def following() -> Callable[..., Tensor]:
    return make_next
