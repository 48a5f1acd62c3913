import copy
import pickle
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from multihead.models import FeedForward, ModelConfig
from multihead.models.feed_forward import ACTIVATIONS
from tests.half_precision import WORKS

D, F = 6, 10
SHAPES = list(product(ACTIVATIONS, (False, True), (False, True)))


def made(activation: str = "gelu", gated: bool = False, bias: bool = True) -> FeedForward:
    torch.manual_seed(3)
    config = ModelConfig(
        vocab=5, dim=D, layers=1, heads=2, inner=F, activation=activation, gated=gated, inner_bias=bias
    )
    part = FeedForward(config)
    for parameter in part.parameters():
        nn.init.normal_(parameter)
    return part


def formula(part: FeedForward, x: Tensor) -> Tensor:
    if part.gate is None:
        return part.down(part.activation(part.up(x)))
    return part.down(part.activation(part.gate(x)) * part.up(x))


def slopes(out: Tensor, *inputs: Tensor, retain: bool = False) -> list[Tensor]:
    weighed = (out * torch.linspace(-1, 2, out.numel()).view_as(out)).sum()
    return list(torch.autograd.grad(weighed, inputs, retain_graph=retain))


@pytest.mark.parametrize(("activation", "gated", "bias"), SHAPES)
def test_written_out_it_is_the_formula_both_ways(activation: str, gated: bool, bias: bool) -> None:
    part = made(activation, gated, bias)
    x = torch.randn(2, 3, D, requires_grad=True)
    learnt = [x, *part.parameters()]
    got, want = part(x), formula(part, x)
    assert "_FusedFeedForward" in type(got.grad_fn).__name__  # and not the formula again
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(slopes(got, *learnt), slopes(want, *learnt))


@pytest.mark.parametrize(("activation", "gated", "bias"), SHAPES)
def test_its_gradients_are_those_of_small_steps(activation: str, gated: bool, bias: bool) -> None:
    part = made(activation, gated, bias).double()
    x = torch.randn(4, D, dtype=torch.double, requires_grad=True)
    weights = dict(part.named_parameters())
    assert torch.autograd.gradcheck(
        lambda x, *values: torch.func.functional_call(part, dict(zip(weights, values, strict=True)), (x,)),
        (x, *weights.values()),
    )


@pytest.mark.skipif(not WORKS.right, reason="bf16 does not work on this machine")
@pytest.mark.parametrize("gated", [False, True])
def test_in_halves_it_is_what_autograd_gives(gated: bool) -> None:
    part = made(gated=gated)
    x = torch.randn(2, 3, D, requires_grad=True)
    learnt = [x, *part.parameters()]
    with torch.autocast("cpu", torch.bfloat16):
        got, want = part(x), formula(part, x)
        torch.testing.assert_close(  # also where nobody has ended autocast yet
            slopes(got.float(), x, retain=True), slopes(want.float(), x, retain=True), rtol=0.02, atol=0.02
        )
    assert got.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(got, want)
    ours, theirs = slopes(got.float(), *learnt), slopes(want.float(), *learnt)
    assert [slope.dtype for slope in ours] == [torch.float32] * len(learnt)
    torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)


def test_autocast_leaves_float64_alone() -> None:
    part, x = made().double(), torch.randn(2, 3, D, dtype=torch.double, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        got, want = part(x), formula(part, x)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_what_is_not_learnt_has_no_slope() -> None:
    part = made(gated=True)
    part.up.weight.requires_grad_(False)
    part.down.bias.requires_grad_(False)
    x = torch.randn(2, 3, D)
    part(x).sum().backward()
    found = {name for name, parameter in part.named_parameters() if parameter.grad is not None}
    assert found == {"up.bias", "down.weight", "gate.weight", "gate.bias"}


def test_backwards_twice_through_one_pass() -> None:
    part, x = made(), torch.randn(2, 3, D, requires_grad=True)
    out = part(x)
    first, again = (torch.autograd.grad(out.sum(), x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, again)


def test_hooks_are_called_and_adapters_asked() -> None:
    part, x = made(), torch.randn(2, 3, D, requires_grad=True)
    seen: list[str] = []
    part.down.register_forward_pre_hook(lambda *_: seen.append("pre"))
    part.up.register_full_backward_hook(lambda *_: seen.append("back"))
    part(x).sum().backward()
    assert seen == ["pre", "back"]

    class ShiftedLinear(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1

    adapted = copy.deepcopy(made())
    adapted.up = ShiftedLinear(D, F)
    assert torch.equal(adapted(x), formula(adapted, x))


def test_no_rows_and_a_copy_from_another_process() -> None:
    part = pickle.loads(pickle.dumps(made()))
    x = torch.randn(0, 3, D, requires_grad=True)
    part(x).sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (0, 3, D)
    assert not part.up.weight.grad.any()
