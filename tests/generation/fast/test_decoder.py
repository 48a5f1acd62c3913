"""The lean step computes what the model's own forward pass does, whatever the texts do: change places, leave, grow."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from multihead.generation.fast import decoder, weight_cache
from multihead.generation.fast.decoder import FastDecoder
from multihead.generation.fast.layers import FusedReadout, make_readout
from multihead.generation.fast.weight_cache import decoder_weights
from multihead.generation.generate import make_stepper
from multihead.generation.incremental import CachedModelStepper, Prompt
from multihead.inspection import watch
from multihead.kernels import packed_linear
from multihead.models import TaskModel

SOURCE = torch.tensor([[5, 6, 7, 8, 9], [3, 4, 0, 0, 0], [11, 12, 13, 0, 0]])
KEEP = torch.tensor([[True] * 5, [True] * 2 + [False] * 3, [True] * 3 + [False] * 2])


def prompts(model: TaskModel, pair: bool, padded: bool) -> Prompt:
    if not pair:
        tokens = SOURCE if padded else SOURCE[:, :2]
        return Prompt(model, tokens, KEEP if padded else None)
    memory = model.body.encoder(SOURCE, KEEP if padded else None)
    return Prompt(model, torch.full((3, 1), 1), None, memory, KEEP if padded else None)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("pair", [False, True], ids=["decoder", "pair"])
@torch.inference_mode()
def test_as_the_model_itself(
    shape: dict[str, object],
    pair: bool,
    padded: bool,
    language_model: Callable[..., TaskModel],
    translator: Callable[..., TaskModel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoder, "ROOM", 3)  # so that the pool is tidied and grows all the time
    model = (translator if pair else language_model)(**shape).double()
    ours, plain = make_stepper(prompts(model, pair, padded)), CachedModelStepper(prompts(model, pair, padded))
    assert isinstance(ours, FastDecoder) == ("value_dim" not in shape)
    close = {"rtol": 0.0, "atol": 1e-10}
    torch.testing.assert_close(ours.start(), plain.start(), **close)
    draw = torch.Generator().manual_seed(1)
    B, n = 3, 1
    for place in range(24):
        parents = None
        if place in (2, 3, 4, 7, 11, 12, 13, 17):  # one text becomes four; they change places, and some die
            parents = torch.randint(0, n, (B, 4), generator=draw)
            n = 4
        tokens = torch.randint(3, 31, (B, n), generator=draw)
        torch.testing.assert_close(ours.step(tokens, parents), plain.step(tokens, parents), **close)
        if place in (9, 15):
            rows = torch.tensor([2, 0] if B == 3 else [1])
            ours.select_rows(rows)
            plain.select_rows(rows)
            B -= 1


def test_the_pool_stays_small(translator: Callable[..., TaskModel]) -> None:
    """Five texts with a common past do not need five times its keys."""
    prompt = prompts(translator(), pair=True, padded=False)
    reader = FastDecoder(prompt)
    with torch.inference_mode():
        reader.start()
        parents = torch.zeros(3, 5, dtype=torch.long)  # all follow the first: one past
        for _ in range(58):
            reader.step(torch.full((3, 5), 7), parents)
    assert reader.used < 59 + 5 * decoder.ROOM < 59 * 5


def test_who_looks_on_sees_the_model_itself(translator: Callable[..., TaskModel]) -> None:
    model = translator()
    assert isinstance(make_stepper(prompts(model, True, False)), FastDecoder)
    with watch(model):
        assert isinstance(make_stepper(prompts(model, True, False)), CachedModelStepper)
    handle = model.body.decoder.stack.blocks[1].feed_forward.register_forward_hook(lambda *given: None)
    assert isinstance(make_stepper(prompts(model, True, False)), CachedModelStepper)
    handle.remove()
    nn.utils.parametrizations.weight_norm(model.body.decoder.stack.blocks[0].attention.q)
    assert isinstance(make_stepper(prompts(model, True, False)), CachedModelStepper)


def test_a_source_without_a_token(translator: Callable[..., TaskModel]) -> None:
    model = translator()
    keep = KEEP.clone()
    keep[1] = False
    memory = model.body.encoder(SOURCE, KEEP)
    reader = make_stepper(Prompt(model, torch.full((3, 1), 1), None, memory, keep))
    with torch.inference_mode():
        assert bool(reader.start().isfinite().all())


@pytest.fixture(params=["packed", "as they are"])
def packing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Weights as oneDNN wants them, where torch has it, whatever their size; or none of them."""
    packs = request.param == "packed" and packed_linear._HERE
    monkeypatch.setattr(packed_linear, "_HERE", packs)
    monkeypatch.setattr(packed_linear, "LARGE", 1)
    monkeypatch.setattr(packed_linear, "MIN_MULTIPLICATIONS", 1)
    return packs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.inference_mode()
def test_scores_of_the_vocabulary(translator: Callable[..., TaskModel], packing: bool, dtype: torch.dtype) -> None:
    """With a bias, without, and with a scale; one row and several."""
    for bias, scale in ((0.0, 1.0), (1.0, 1.0), (1.0, 0.3)):
        readout = translator().readout.to(dtype)
        readout.bias.normal_().mul_(bias)
        readout.scale = scale
        scores = make_readout(readout, reused=True)
        assert isinstance(scores, FusedReadout)
        assert (scores.bias is None) == (bias == 0.0)
        for rows in (3, 1, 2, 40):
            hidden = torch.randn(rows, 24, dtype=dtype)
            torch.testing.assert_close(scores(hidden), readout(hidden))
        assert ("packed" in vars(scores)) == (packing and dtype == torch.float32)
    readout.register_forward_hook(lambda *given: None)
    assert make_readout(readout, reused=True) is readout


@pytest.mark.usefixtures("packing")
def test_parts_are_kept_until_a_weight_changes(translator: Callable[..., TaskModel]) -> None:
    model = translator()
    attention, feed = model.body.decoder.stack.blocks[1].attention, model.body.decoder.stack.blocks[0].feed_forward

    def agree() -> None:
        for _ in range(2):  # kept from the first to the second
            ours, plain = (made(prompts(model, True, False)) for made in (FastDecoder, CachedModelStepper))
            with torch.inference_mode():
                torch.testing.assert_close(ours.start(), plain.start())
                torch.testing.assert_close(ours.step(torch.full((3, 1), 7)), plain.step(torch.full((3, 1), 7)))
        assert decoder_weights(prompts(model, True, False)) is decoder_weights(prompts(model, True, False))

    agree()
    before = decoder_weights(prompts(model, True, False))
    with torch.no_grad():
        attention.k.weight[3] += 1.0
    agree()
    attention.v.weight.data[5] = 0.0  # torch counts no such write
    agree()
    model.readout.weight.data.mul_(2.0)
    agree()
    feed.down.weight.data.mul_(2.0)
    agree()
    model.readout.bias.data[3] = 1.0
    agree()
    attention.scale *= 2.0
    agree()
    attention.q.weight = nn.Parameter(torch.randn_like(attention.q.weight))
    agree()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    model.body.decoder(SOURCE, memory=model.body.encoder(SOURCE)).sum().backward()
    optimizer.step()
    agree()
    assert decoder_weights(prompts(model, True, False)) is not before


@pytest.mark.usefixtures("packing")
def test_large_ones_are_not_kept(translator: Callable[..., TaskModel], monkeypatch: pytest.MonkeyPatch) -> None:
    model = translator()
    monkeypatch.setattr(weight_cache, "max_packed_bytes", lambda: 1000)
    one = decoder_weights(prompts(model, True, False))
    assert decoder_weights(prompts(model, True, False)) is not one
    assert isinstance(one.readout, FusedReadout)
    assert not one.readout.packs
