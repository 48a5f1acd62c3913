"""Against torchmetrics' retrieval and by hand."""

import numpy as np
import pytest

from multihead.metrics import RetrievalMetric, ranks_of


@pytest.mark.slow  # imports torch
def test_torchmetrics() -> None:
    oracle = pytest.importorskip("torchmetrics.functional.retrieval")
    import torch

    rng = np.random.default_rng(0)
    scores, relevant = rng.random((40, 12)), rng.random((40, 12)) < 0.2
    relevant[np.arange(40), rng.integers(0, 12, 40)] = True
    metric = RetrievalMetric(ks=(1, 3, 10), replicates=0)
    metric.add(ranks_of(scores[:7], relevant[:7]))
    metric.add(ranks_of(scores[7:], relevant[7:]))
    rows = [(torch.tensor(s), torch.tensor(r)) for s, r in zip(scores, relevant, strict=True)]
    want = {f"recall@{k}": np.mean([oracle.retrieval_recall(*row, top_k=k) for row in rows]) for k in (1, 3, 10)}
    want["mrr"] = np.mean([oracle.retrieval_reciprocal_rank(*row) for row in rows])
    assert {name: score.value for name, score in metric.result().items()} == pytest.approx(want, abs=1e-6)


def test_by_hand() -> None:
    metric = RetrievalMetric(ks=(1, 5), replicates=0)
    metric.add([[1], [4, 9], [20]])
    values = {name: score.value for name, score in metric.result().items()}
    assert values == pytest.approx({"mrr": (1 + 1 / 4 + 1 / 20) / 3, "recall@1": 1 / 3, "recall@5": 1.5 / 3}, abs=1e-8)


def test_ties_earn_nothing() -> None:
    assert ranks_of(np.zeros((1, 5)), [[1, 0, 0, 0, 0]]) == [[5]]
    assert ranks_of([[3, 2, 2, 1]], [[0, 1, 0, 1]]) == [[3, 4]]


def test_edges() -> None:
    metric = RetrievalMetric()
    assert metric.result()["mrr"].value == 0
    with pytest.raises(ValueError, match="query 1: ranks"):
        metric.add([[1], []])
    with pytest.raises(ValueError, match="counted from 1"):
        metric.add([[0]])
    with pytest.raises(ValueError, match="k counts from 1"):
        RetrievalMetric(ks=(0,))
    with pytest.raises(ValueError, match="different k"):
        metric.merge(RetrievalMetric(ks=(1,)))
    assert metric.bootstrap_sample.samples == 0
