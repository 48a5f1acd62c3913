"""A source looked at by tables made once gives what its keys and values give."""

from collections.abc import Callable

import pytest
import torch

from multihead.generation.fast import decoder
from multihead.generation.fast.decoder import FastDecoder
from multihead.generation.generate import make_stepper
from multihead.generation.incremental import CachedModelStepper, Prompt
from multihead.models import TaskModel

SOURCE = torch.tensor([[5, 6, 7, 8, 9]])


def prompt(model: TaskModel) -> Prompt:
    return Prompt(model, torch.full((1, 1), 1), None, model.body.encoder(SOURCE), None)


@pytest.mark.parametrize("short", [2, 0], ids=["tables", "keys and values"])
@torch.inference_mode()
def test_as_the_model_itself(
    shape: dict[str, object], short: int, translator: Callable[..., TaskModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "SHORT", short)
    model = translator(**shape).double()
    for block in model.body.decoder.stack.blocks:
        for linear in (block.cross.q, block.cross.out):
            if linear.bias is not None:
                linear.bias.normal_()
    ours, plain = make_stepper(prompt(model)), CachedModelStepper(prompt(model))
    close = {"rtol": 0.0, "atol": 1e-10}
    torch.testing.assert_close(ours.start(), plain.start(), **close)
    if isinstance(ours, FastDecoder):
        assert bool(ours.recalls) == bool(short)
    draw, n = torch.Generator().manual_seed(1), 1
    for place in range(12):
        parents = None
        if place in (2, 5, 9):  # one text becomes three, which change places
            parents, n = torch.randint(0, n, (1, 3), generator=draw), 3
        tokens = torch.randint(3, 31, (1, n), generator=draw)
        torch.testing.assert_close(ours.step(tokens, parents), plain.step(tokens, parents), **close)


def test_made_anew_when_a_weight_changes(translator: Callable[..., TaskModel]) -> None:
    model = translator()
    cross = model.body.decoder.stack.blocks[1].cross
    for change in (cross.out.weight, cross.out.bias, cross.q.weight, cross.v.bias):
        change.data.mul_(1.5).add_(0.1)  # torch counts no such write
        ours, plain = FastDecoder(prompt(model)), CachedModelStepper(prompt(model))
        with torch.inference_mode():
            torch.testing.assert_close(ours.start(), plain.start())


@torch.inference_mode()
def test_a_long_source_keeps_its_keys(translator: Callable[..., TaskModel], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as the source times the heads: of a long one they would be larger than the weights."""
    model = translator()
    one = model.body.decoder.stack.blocks[0].cross
    numbers = one.heads * one.out.out_features  # in a table for each token of the source

    def by_tables(length: int) -> bool:
        memory = model.body.encoder(torch.full((1, length), 7))
        reader = FastDecoder(Prompt(model, torch.full((1, 1), 1), None, memory, None))
        reader.start()
        return bool(reader.recalls)

    longest = 3 * one.key_dims[0] // 2
    assert by_tables(longest)
    assert not by_tables(longest + 1)
    monkeypatch.setattr(decoder, "TABLE", 4 * numbers)
    assert by_tables(4)
    assert not by_tables(5)
