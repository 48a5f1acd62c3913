"""What parts are worth, alone and together."""

from __future__ import annotations

import numpy as np
import torch

from multihead.pruning.candidates import Importance


def test_of_twins_one_is_worth_nothing_but_both_are() -> None:
    torch.manual_seed(0)
    x = torch.randn(4000, 6, dtype=torch.double)
    x[:, 5] = 2 * x[:, 1]
    worth = Importance(torch.ones(10, 6), torch.cov(x.T))
    alone = worth.each()
    assert alone[5] < 0.15  # the ridge keeps it from 0
    assert alone[1] < 0.3
    assert alone[[0, 2, 3, 4]].min() > 0.99
    assert worth.of(np.array([1, 5])) > 0.99 * 2
    np.testing.assert_allclose([worth.of(np.array([i])) for i in range(6)], alone, rtol=1e-9)


def test_together_is_the_gradient_of_one_gate() -> None:
    gradients = torch.tensor([[1.0, -1.0, 0.5], [2.0, -2.0, 0.5]])
    worth = Importance(gradients, None)
    assert worth.of(np.array([0, 1])) == 0.0  # what one adds the other takes away
    assert worth.of(np.array([0, 2])) == 2.0
    np.testing.assert_allclose(worth.each(), [1.5, 1.5, 0.5])
