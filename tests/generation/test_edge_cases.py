"""What a careless caller, an adapter, a cut head or half precision may bring."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from multihead.generation import GenerationConfig, decode, greedy
from multihead.generation.alignment import align_tokens
from multihead.generation.fast.decoder import FastDecoder
from multihead.generation.generate import make_stepper
from multihead.generation.incremental import CachedModelStepper, Prompt
from multihead.models import TaskModel

TOKENS = torch.tensor([[5, 6, 7], [3, 4, 9]])
Made = Callable[..., TaskModel]


class LinearAdapter(nn.Module):
    """As a low-rank update is often added: it has a `weight`, but gives something else."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner, self.more = inner, nn.Linear(inner.in_features, inner.out_features, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.inner.weight

    @property
    def bias(self) -> Tensor:
        return self.inner.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 3 * self.more(x)


def by_hand(model: TaskModel, tokens: Tensor, count: int) -> list[list[int]]:
    written = tokens
    for _ in range(count):
        with torch.no_grad():
            written = torch.cat((written, model(written)[:, -1:].argmax(-1)), dim=1)
    return written[:, tokens.shape[1] :].tolist()


def test_adapters_are_heard(language_model: Made) -> None:
    model = language_model()
    before = greedy(model, TOKENS, limit=8)
    block = model.body.stack.blocks[0]
    block.attention.v, block.feed_forward.up = LinearAdapter(block.attention.v), LinearAdapter(block.feed_forward.up)
    assert isinstance(make_stepper(Prompt(model, TOKENS)), CachedModelStepper)
    assert greedy(model, TOKENS, limit=8) == by_hand(model, TOKENS, 8) != before


@pytest.mark.parametrize("positions", ["alibi", "relative"])
def test_heads_that_were_cut_out_of_every_layer(positions: str, language_model: Made) -> None:
    model = language_model(positions=positions, layers=2, heads=4, kept_heads=((0, 2), (1, 3)))
    assert greedy(model, TOKENS, limit=5) == by_hand(model, TOKENS, 5)


@pytest.mark.usefixtures("half")
def test_sums_of_log_p_are_whole_in_half_precision(language_model: Made) -> None:
    """Seen by the score: in bf16 a sum of -60 is known to a quarter."""
    model = language_model().bfloat16()
    for settings in (GenerationConfig(beam=3, length_penalty=0.0), GenerationConfig(length_penalty=0.0)):
        for several in decode(model, TOKENS, settings, limit=20):
            score = torch.tensor(several[0].score)
            assert score.bfloat16().float() != score


def test_broken_weights_are_told(language_model: Made) -> None:
    model = language_model()
    with torch.no_grad():
        model.body.stem.embedding.weight.fill_(float("nan"))
    for write in (
        lambda: decode(model, TOKENS, GenerationConfig(beam=2), limit=3),
        lambda: decode(model, TOKENS, limit=3),
        lambda: greedy(model, TOKENS, limit=3),
    ):
        with pytest.raises(ValueError, match="weights are broken"):
            write()


def test_under_autocast(language_model: Made) -> None:
    model = language_model()
    assert isinstance(make_stepper(Prompt(model, TOKENS)), FastDecoder)
    with torch.autocast("cpu", torch.bfloat16):
        assert isinstance(make_stepper(Prompt(model, TOKENS)), CachedModelStepper)


def test_nothing_to_read_and_tokens_that_are_none(language_model: Made, translator: Made) -> None:
    model = language_model()
    none = torch.zeros(0, 3, dtype=torch.long)
    assert greedy(model, none, limit=3) == []
    assert decode(model, none, GenerationConfig(beam=2), limit=3) == decode(model, none, limit=[]) == []
    with pytest.raises(ValueError, match="row 1: the prefix has token 999; the vocabulary ends at"):
        decode(model, TOKENS, limit=3, prefix=[[], [999]])
    far = decode(model, TOKENS, GenerationConfig(min_length=2), limit=3, stop={10**6})  # never written, so no hindrance
    assert all(len(several[0].tokens) == 3 for several in far)
    cold = GenerationConfig(sample=True, temperature=1e-40)
    assert [several[0].tokens for several in decode(model, TOKENS, cold, limit=4)] == greedy(model, TOKENS, limit=4)
    pair = translator()
    with pytest.raises(ValueError, match="pass memory="):
        pair.body.decoder(TOKENS)
    memory = pair.body.encoder(TOKENS)
    seen = torch.tensor([[True] * 3, [False] * 3])
    assert torch.isfinite(align_tokens(pair, TOKENS, memory, seen)).all()
