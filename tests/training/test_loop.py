"""A step's loss and gradient do not depend on how its rows are cut into batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from multihead.training.loop import accumulate_gradients

ONCE, FOUR = [np.arange(32)], np.arange(32).reshape(4, 8)


def test_one_batch_of_32_is_four_of_8(each_runs):
    run = each_runs.make("run", "model.dropout=0")
    model = run.model.eval()  # no dropout, which would draw other numbers
    order = np.argsort(run.examples.sizes)[-32:]  # ragged: the four batches hold different counts
    found = []
    for cut in (ONCE, FOUR):
        model.zero_grad()
        loss, count, real, _ = accumulate_gradients(model, run.task, run.examples, [order[rows] for rows in cut])
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]) / count
        found.append((loss / count, real, gradient))
    (loss, real, gradient), (other_loss, other_real, other_gradient) = found
    assert other_loss == pytest.approx(loss, rel=1e-6)
    assert other_real == real
    assert gradient.norm() > 0
    assert (gradient - other_gradient).norm() <= 1e-5 * gradient.norm()


def test_a_mean_of_means_would_be_another_number(ner_runs):
    """The fault that sums and counts avoid: the test above would see it."""
    run = ner_runs.make("run", "model.dropout=0")
    model = run.model.eval()
    order = np.argsort(run.examples.sizes)[-32:]
    loss, count, _, _ = accumulate_gradients(model, run.task, run.examples, [order])
    means = [accumulate_gradients(model, run.task, run.examples, [order[rows]])[:2] for rows in FOUR]
    naive = float(np.mean([total / number for total, number in means]))
    assert naive != pytest.approx(loss / count, rel=1e-5)
