"""Packed layers say what they said before, and leave nothing behind."""

import pytest
import torch
from torch import nn

from multihead.kernels import packed_linear as packing
from multihead.kernels.packed_linear import use_packed_weights

pytestmark = pytest.mark.skipif(not packing._HERE, reason="this torch has no oneDNN")


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(384, 512), nn.ReLU(), nn.Linear(512, 384, bias=False), nn.Linear(384, 2))


def packs(model: nn.Sequential) -> list[bool]:
    return [getattr(vars(part).get("forward"), "packed", None) is not None for part in model]


@pytest.mark.parametrize("shape", [(1, 384), (7, 384), (2, 5, 384), (0, 384), (384,)], ids=str)
@torch.inference_mode()
def test_the_same_within(model: nn.Sequential, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    before = model(x)
    worth = x.numel() // 384 * 384 * 512 >= packing.MIN_MULTIPLICATIONS
    with use_packed_weights(model):
        assert torch.equal(model(x), before)
        assert not any(packs(model))
        for _ in range(2):
            torch.testing.assert_close(model(x), before, atol=1e-5, rtol=1e-5)
            assert packs(model) == [worth, False, worth, False]
    assert all("forward" not in vars(part) for part in model)
    with torch.no_grad():
        model[0].weight.data[3] = 0.0  # torch counts no such write
    changed = model(x)
    with use_packed_weights(model):
        for _ in range(3):
            torch.testing.assert_close(model(x), changed, atol=1e-5, rtol=1e-5)


def test_learning_and_half_precision_go_their_own_way(model: nn.Sequential) -> None:
    x = torch.randn(8, 384, requires_grad=True)
    with use_packed_weights(model):
        for _ in range(2):
            model(x).sum().backward()
        assert x.grad is not None
        model.double()
        for _ in range(2):
            with torch.no_grad():
                model(x.double())
        assert not any(packs(model))


def test_hooks_errors_and_a_second_time_within(model: nn.Sequential) -> None:
    seen = []
    model[0].register_forward_hook(lambda *given: seen.append(given))
    with torch.inference_mode(), use_packed_weights(model):
        with use_packed_weights(model):
            model(torch.randn(8, 384))
        model(torch.randn(8, 384))
        assert packs(model)[0]
    with torch.inference_mode(), pytest.raises(RuntimeError), use_packed_weights(model):
        model(torch.randn(8, 3))
    assert len(seen) == 2
    assert all("forward" not in vars(part) for part in model)


def test_a_model_too_large_for_a_copy(model: nn.Sequential, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "max_packed_bytes", lambda: 1000)
    with torch.inference_mode(), use_packed_weights(model):
        for _ in range(2):
            model(torch.randn(8, 384))
        assert not any(packs(model))
