"""Dropout with cheap noise: the right share, the right scale, decided by torch's seed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from multihead.kernels.dropout import add_dropout, dropout, dropout_mask


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_share_and_mean(p: float) -> None:
    torch.manual_seed(0)
    drawn = dropout_mask(torch.empty(1000, 999), p)
    share = float((drawn == 0).double().mean())
    spread = (p * (1 - p) / drawn.numel()) ** 0.5
    assert abs(share - p) < 5 * spread + 1 / 65536  # p is rounded to 16 bits
    kept = drawn[drawn != 0]
    assert float(kept.min()) == float(kept.max()) == pytest.approx(1 / (1 - p), rel=1e-3)


def test_nothing_is_correlated() -> None:
    """Neighbours in a row, in a column, and elements that share one random number."""
    torch.manual_seed(1)
    drawn = (dropout_mask(torch.empty(2000, 500), 0.5) > 0).double() * 2 - 1
    for step in (1, 2, 3, 4, 500):
        flat = drawn.flatten()
        assert abs(float((flat[step:] * flat[:-step]).mean())) < 5 / flat.numel() ** 0.5


def test_same_seed_same_noise() -> None:
    def draw(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return dropout_mask(torch.empty(7, 5), 0.3)

    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))


def test_limits() -> None:
    x = torch.randn(5, 3)
    assert dropout(x, 0.0) is x
    assert dropout(x, 0.5, training=False) is x
    assert torch.equal(dropout(x, 1.0), torch.zeros(5, 3))
    assert torch.equal(add_dropout(x, x, 0.5, training=False), 2 * x)
    assert dropout_mask(torch.empty(0, 4), 0.5).shape == (0, 4)


def test_gradient_passes_what_was_kept() -> None:
    x, y = torch.randn(50, 40, requires_grad=True), torch.randn(50, 40, requires_grad=True)
    torch.manual_seed(2)
    add_dropout(x, y, 0.3).sum().backward()
    torch.manual_seed(2)
    assert torch.equal(y.grad, dropout_mask(y, 0.3))  # type: ignore[arg-type]
    assert torch.equal(x.grad, torch.ones(50, 40))  # type: ignore[arg-type]
    assert dropout(x.double(), 0.3).dtype == torch.float64
