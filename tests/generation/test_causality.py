"""No decoder sees what comes later: not by a bit, and not by a gradient."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from multihead.models import Encoder, EncoderDecoder, ModelConfig, TaskModel

Make = Callable[..., TaskModel]
T = 7


def leaks(run: Callable[[Tensor], Tensor], embedded: Tensor) -> Tensor:
    """[T, T]: how much the output at t moves when the input at s does (run: [1, T, D] -> [1, T, D])."""
    table = torch.autograd.functional.jacobian(lambda x: run(x)[0].sum(-1), embedded)
    return table[:, 0].abs().amax(-1)


@pytest.mark.parametrize("pair", [False, True], ids=["decoder", "pair"])
def test_nothing_comes_from_later(shape: dict[str, object], pair: bool, language_model: Make, translator: Make) -> None:
    model = (translator if pair else language_model)(**shape).double()
    decoder = model.body.decoder if isinstance(model.body, EncoderDecoder) else model.body
    memory = torch.randn(1, 4, 24, dtype=torch.float64) if pair else None
    weights = torch.randn(24, dtype=torch.float64)  # the plain sum of a normed row never moves
    found = leaks(lambda x: decoder.stack(x, memory=memory) * weights, torch.randn(1, T, 24, dtype=torch.float64))
    later = torch.ones(T, T).triu(1).bool()
    assert float(found[later].max()) == 0
    width = shape.get("window", T)
    near = torch.ones(T, T).tril().bool() & ~torch.ones(T, T).tril(-width).bool()
    assert float(found[near].min()) > 0, "and every token sees what came before"


@pytest.mark.parametrize("pair", [False, True], ids=["decoder", "pair"])
@torch.no_grad()
def test_later_tokens_change_no_bit(
    shape: dict[str, object], pair: bool, language_model: Make, translator: Make
) -> None:
    model = (translator if pair else language_model)(**shape)
    tokens = torch.randint(3, 31, (2, T), generator=torch.Generator().manual_seed(1))
    source = torch.tensor([[5, 6, 7], [8, 9, 4]])
    run = (lambda t: model(source, t)) if pair else model
    for place in range(1, T):
        other = tokens.clone()
        other[:, place:] = (other[:, place:] + 5) % 28 + 3
        assert torch.equal(run(tokens)[:, :place], run(other)[:, :place])
        assert not torch.equal(run(tokens)[:, place], run(other)[:, place])


def test_a_leak_would_be_seen() -> None:
    torch.manual_seed(1)
    open_eyes = Encoder(ModelConfig(vocab=31, dim=24, layers=1, heads=4)).double().eval()
    weights = torch.randn(24, dtype=torch.float64)
    found = leaks(lambda x: open_eyes.stack(x) * weights, torch.randn(1, T, 24, dtype=torch.float64))
    assert float(found[torch.ones(T, T).triu(1).bool()].min()) > 0
