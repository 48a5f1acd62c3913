"""Perplexity and bits by hand, and beside torchmetrics."""

from math import log

import numpy as np
import pytest
import torch

from multihead.metrics import PerplexityMetric


def test_by_hand() -> None:
    metric = PerplexityMetric(replicates=0)
    metric.add([3 * log(2), 5 * log(2)], [2, 2], [4, 4], [4, 12])
    values = {name: score.value for name, score in metric.result().items()}
    assert values == pytest.approx(
        {"loss": 2 * log(2), "perplexity": 4.0, "bits_per_character": 1.0, "bits_per_byte": 0.5}
    )
    assert all(score.better == "lower" for score in metric.result().values())


def test_as_torchmetrics() -> None:
    text = pytest.importorskip("torchmetrics.text")
    torch.manual_seed(1)
    logits, labels = torch.randn(5, 7, 11), torch.randint(0, 11, (5, 7))
    nats = -logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
    metric = PerplexityMetric()
    metric.add(nats.sum(1).double().numpy(), np.full(5, 7))
    result = metric.result()
    assert result["perplexity"].value == pytest.approx(float(text.Perplexity()(logits, labels)), rel=1e-5)
    assert result["perplexity"].interval.low < result["perplexity"].value < result["perplexity"].interval.high
    assert set(result) == {"loss", "perplexity"}  # no lengths were given
