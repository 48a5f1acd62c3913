"""torch.func looks through a model: gradients of each row by itself, directions, second derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from multihead import Decoder, ModelConfig
from multihead.models import Encoder

SHAPE = {"vocab": 11, "dim": 8, "layers": 1, "heads": 2}


@pytest.fixture(params=[1, 2])
def _threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)


def loss(model: torch.nn.Module, weights: dict[str, Tensor], row: Tensor) -> Tensor:
    found: Tensor = torch.func.functional_call(model, weights, (row[None],))
    return (found * torch.linspace(-1, 2, found.numel(), dtype=found.dtype).view_as(found)).sum()


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("body", [Encoder, Decoder])
def test_gradients_of_each_row_by_itself(body: type[torch.nn.Module]) -> None:
    torch.manual_seed(0)
    model = body(ModelConfig(**SHAPE, positions="rotary")).eval()
    rows = torch.randint(11, (3, 5))
    weights = dict(model.named_parameters())
    each = torch.func.vmap(torch.func.grad(lambda w, row: loss(model, w, row)), in_dims=(None, 0))(weights, rows)
    for number, row in enumerate(rows):
        true = torch.autograd.grad(loss(model, weights, row), list(weights.values()))
        for (name, found), want in zip(each.items(), true, strict=True):
            torch.testing.assert_close(found[number], want, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.usefixtures("_threads")
def test_directions_and_second_derivatives() -> None:
    torch.manual_seed(0)
    model = Decoder(ModelConfig(**SHAPE)).eval().double()
    row = torch.randint(11, (4,))
    weights = {name: tensor.detach() for name, tensor in model.named_parameters()}
    ahead = {name: torch.randn_like(tensor) for name, tensor in weights.items()}

    def along(step: float) -> Tensor:
        return loss(model, {name: weights[name] + step * ahead[name] for name in weights}, row)

    _, slope = torch.func.jvp(lambda w: loss(model, w, row), (weights,), (ahead,))
    small = 1e-6
    torch.testing.assert_close(slope, (along(small) - along(-small)) / (2 * small), rtol=1e-5, atol=1e-6)
    _, bent = torch.func.jvp(torch.func.grad(lambda w: loss(model, w, row)), (weights,), (ahead,))
    second = sum(((bent[name] * ahead[name]).sum() for name in weights), torch.zeros(()))
    small = 1e-4
    want = (along(small) - 2 * along(0.0) + along(-small)) / small**2
    torch.testing.assert_close(second, want, rtol=1e-3, atol=1e-3)


def test_noise_of_each_row() -> None:
    model = Encoder(ModelConfig(**SHAPE, dropout=0.5)).train()
    rows = torch.zeros(2, 5, dtype=torch.long)
    weights = dict(model.named_parameters())
    losses = torch.func.vmap(lambda row: loss(model, weights, row), randomness="different")(rows)
    assert losses[0] != losses[1]
