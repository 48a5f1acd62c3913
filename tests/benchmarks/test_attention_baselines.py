"""Every contestant computes what ours computes, forward and backward, from the same weights."""

import pytest
import torch

from benchmarks import attention_baselines
from benchmarks.attention_baselines import CONTESTANTS, DIM, Baseline, Mode

D, H = 24, 3


def here(contestant: Baseline) -> Baseline:
    if not contestant.is_installed:
        pytest.skip(f"{contestant.package} is not installed")
    return contestant


@pytest.mark.parametrize("contestant", CONTESTANTS, ids=lambda contestant: contestant.name)
@pytest.mark.parametrize("training", [False, True])
def test_all_compute_the_same(contestant: Baseline, training: bool) -> None:
    like = attention_baselines.reference(D, H)
    module, call = here(contestant).build(like)
    module.train(training)
    x = torch.randn(2, 5, D)
    outputs, gradients = [], []
    for run in (like, call):
        given = x.clone().requires_grad_()
        y = run(given)
        y.square().sum().backward()
        outputs.append(y.detach())
        gradients.append(given.grad)
    with torch.no_grad():
        outputs.append(call(x))
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(outputs[2], outputs[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["torch.nn", "torch.nn, weights", "BERT sdpa", "BERT eager", "Keras"])
def test_biases_are_copied_too(name: str) -> None:
    like = attention_baselines.reference(D, H)
    for linear in (like.q, like.k, like.v, like.out):
        torch.nn.init.normal_(linear.bias)
    module, call = here(next(c for c in CONTESTANTS if c.name == name)).build(like)
    module.eval()
    x = torch.randn(2, 5, D)
    with torch.no_grad():
        torch.testing.assert_close(call(x), like(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", attention_baselines.MODES)
def test_a_job_does_its_work(mode: Mode) -> None:
    built = attention_baselines.ours(attention_baselines.reference())
    shapes: list[tuple[int, ...]] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(x.shape))
        return built.call(x)

    job = attention_baselines.job(attention_baselines.BuiltBaseline(built.module, call), mode, 7)
    job()
    job()
    assert shapes == [(attention_baselines.TOKENS // 7, 7, DIM)] * 2
    assert built.module.training == (mode == "training")
    assert all((p.grad is not None) == (mode == "training") for p in built.module.parameters())


def test_batch_keeps_the_tokens() -> None:
    assert [attention_baselines.batch(n) for n in (1, 128, 1500, 2048, 16_384)] == [2048, 16, 1, 1, 1]
    assert attention_baselines.cells(128) == 16 * 128 * 128


def test_a_missing_package_is_known() -> None:
    absent = Baseline("absent", attention_baselines.ours, needs="no_such_module")
    assert not absent.is_installed
    assert absent.package == "no-such-module"
