"""What all metrics promise: merging equals adding all at once, results are JSON, memory does not grow."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from multihead.metrics import (
    BleuMetric,
    ClassificationMetric,
    ConfidenceInterval,
    EntityMetric,
    Metric,
    MultiLabelMetric,
    Pearson,
    PerplexityMetric,
    RetrievalMetric,
    RougeMetric,
    Score,
    Spearman,
    SquadMetric,
    TokenTagMetric,
    to_json,
)

N = 60
TAGS = np.array(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
Columns = tuple[Any, ...]


def tagged(rng: np.random.Generator) -> Columns:
    lengths = rng.integers(1, 6, N)
    return tuple([TAGS[rng.integers(0, 5, n)].tolist() for n in lengths] for _ in range(2))


def classed(rng: np.random.Generator) -> Columns:
    return rng.integers(0, 2, N), rng.integers(0, 2, N), rng.dirichlet([1, 1], N)


def written(rng: np.random.Generator) -> Columns:
    return tuple([" ".join(rng.choice(list("abcde"), n)) for n in rng.integers(0, 9, N)] for _ in range(2))


METRICS: dict[str, tuple[Callable[..., Any], Callable[[np.random.Generator], Columns]]] = {
    "spans": (EntityMetric, tagged),
    "tags": (TokenTagMetric, tagged),
    "classes": (lambda **options: ClassificationMetric(["no", "yes"], **options), classed),
    "labels": (lambda **options: MultiLabelMetric("abc", **options), lambda rng: tuple(rng.random((2, N, 3)) < 0.4)),
    "spearman": (Spearman, lambda rng: tuple(rng.integers(0, 9, (2, N)).astype(float))),
    "pearson": (Pearson, lambda rng: tuple(rng.integers(0, 9, (2, N)).astype(float))),
    "retrieval": (RetrievalMetric, lambda rng: ([[int(r)] for r in rng.integers(1, 20, N)],)),
    "answers": (
        SquadMetric,
        lambda rng: (
            [[] if rng.random() < 0.3 else ["x y z"] for _ in range(N)],
            rng.choice(["x", "x y", "x y z", ""], N).tolist(),
        ),
    ),
    "translations": (BleuMetric, written),
    "summaries": (RougeMetric, written),
    "likelihood": (
        PerplexityMetric,
        lambda rng: (rng.random(N) * 9, rng.integers(1, 5, N), rng.integers(1, 20, N), rng.integers(1, 20, N)),
    ),
}


def rows_of(columns: Columns, rows: Any) -> Columns:
    return tuple(c[rows] if isinstance(c, np.ndarray) else [c[i] for i in rows] for c in columns)


@pytest.mark.parametrize("name", METRICS)
def test_merged_is_all_at_once(name: str) -> None:
    make, data = METRICS[name]
    rng = np.random.default_rng(7)
    columns = data(rng)
    whole: Metric = make(replicates=50, seed=2)
    whole.add(*columns)
    parts = [make(replicates=50, seed=2) for _ in range(4)]  # the last stays empty
    for batch, rows in enumerate(np.array_split(rng.permutation(N), 7)):
        parts[batch % 3].add(*rows_of(columns, rows), index=rows)
    before = pickle.dumps(parts[1].result())
    merged = pickle.loads(pickle.dumps(parts[3]))  # as processes send them
    for part in parts[:3]:
        merged.merge(part)
    assert pickle.dumps(parts[1].result()) == before
    assert merged.bootstrap_sample == whole.bootstrap_sample
    if name == "pearson":
        got, want = merged.result()["pearson"], whole.result()["pearson"]
        assert got.value == pytest.approx(want.value, abs=1e-13)
        assert got.interval.low == pytest.approx(want.interval.low, abs=1e-12)
    else:
        assert merged.result() == whole.result()  # to the last bit
        if hasattr(whole, "table"):
            assert merged.table() == whole.table()
    if isinstance(whole, ClassificationMetric):
        assert merged.confusion() == whole.confusion()
        assert merged.bins() == whole.bins()


@pytest.mark.parametrize("name", METRICS)
def test_results(name: str) -> None:
    make, data = METRICS[name]
    metric = make(replicates=40)
    metric.add(*data(np.random.default_rng(1)))
    result, drawn = metric.result(), metric.replicates()
    assert set(drawn) == set(result) - {"ece", "auc"}
    for key, values in drawn.items():
        assert values.shape == (40,)
        assert result[key].interval.low <= result[key].interval.high
    again = json.loads(json.dumps(to_json(result), allow_nan=False))
    assert {key: entry["value"] for key, entry in again.items()} == {k: s.value for k, s in result.items()}
    plainly = make(replicates=0)
    plainly.add(*data(np.random.default_rng(1)))
    assert {k: s.value for k, s in plainly.result().items()} == {k: s.value for k, s in result.items()}
    assert plainly.replicates() == {}
    assert all(score.interval is None for key, score in plainly.result().items() if key != "auc")


@pytest.mark.parametrize("name", [name for name in METRICS if name != "spearman"])
def test_memory_does_not_grow(name: str) -> None:
    make, data = METRICS[name]
    metric, columns = make(replicates=20), data(np.random.default_rng(1))
    metric.add(*columns)
    once = len(pickle.dumps(metric))
    for _ in range(20):
        metric.add(*columns)
    assert len(pickle.dumps(metric)) <= once + 50  # larger integers


def test_spearman_keeps_sixteen_bytes_a_sample() -> None:
    metric = Spearman(replicates=0)
    metric.add(np.arange(50_000.0), np.arange(50_000.0))
    assert len(pickle.dumps(metric)) < 16 * 50_000 + 2000


def test_other_classes_do_not_merge() -> None:
    with pytest.raises(ValueError, match="same classes"):
        ClassificationMetric(["a", "b"]).merge(ClassificationMetric(["b", "a"]))


def test_plain_and_format() -> None:
    score = Score(86.2134, "percent", interval=ConfidenceInterval(float("nan"), np.inf))
    assert to_json(score) == {
        "value": 86.2134,
        "unit": "percent",
        "better": "higher",
        "interval": {"low": None, "high": None, "level": 0.95},
        "signature": None,
    }
    assert f"{Score(86.2134, interval=ConfidenceInterval(85.5, 86.9)):.2f}" == "86.21 [85.50, 86.90]"
    assert f"{Score(0.5):.3f}" == "0.500"
    assert to_json({"x": np.array([1.5, np.nan]), 2: (np.int64(3), None)}) == {"x": [1.5, None], "2": [3, None]}
