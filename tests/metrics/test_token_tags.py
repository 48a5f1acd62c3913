"""The token table against scikit-learn's report."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import classification_report

from multihead.metrics import TokenTagMetric

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
pairs = st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), min_size=1, max_size=40)


@settings(max_examples=50, deadline=None)
@given(pairs, st.integers(1, 7))
def test_sklearn(words: list[tuple[str, str]], length: int) -> None:
    gold, predicted = [g for g, _ in words], [p for _, p in words]
    metric = TokenTagMetric(replicates=0)
    for start in range(0, len(words), length):
        metric.add([gold[start : start + length]], [predicted[start : start + length]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = classification_report(gold, predicted, output_dict=True, zero_division=0)
    accuracy = theirs.pop("accuracy")
    table = metric.table()
    for row in (*table.rows, *table.averages[1:]):
        want = theirs.pop(row.name if row in table.rows else f"{row.name} avg")
        got = [row.precision, row.recall, row.f1, row.support]
        np.testing.assert_allclose(got, [want[k] for k in ("precision", "recall", "f1-score", "support")], atol=1e-12)
    assert not theirs
    micro = table.averages[0]
    assert micro.precision == micro.recall == micro.f1 == pytest.approx(accuracy)
    assert metric.result()["accuracy"].value == pytest.approx(accuracy)
    assert metric.result()["macro_f1"].value == table.averages[1].f1


def test_the_article_s_form() -> None:
    metric = TokenTagMetric(replicates=0)
    metric.add([["O", "B-PER", "I-PER", "B-LOC"]], [["O", "B-PER", "O", "B-LOC"]])
    table = metric.table()
    assert [(r.name, r.precision, r.recall, round(r.f1, 3), r.support) for r in (*table.rows, *table.averages)] == [
        ("B-LOC", 1.0, 1.0, 1.0, 1),
        ("B-PER", 1.0, 1.0, 1.0, 1),
        ("I-PER", 0.0, 0.0, 0.0, 1),
        ("O", 0.5, 1.0, 0.667, 1),
        ("micro", 0.75, 0.75, 0.75, 4),
        ("macro", 0.625, 0.75, 0.667, 4),
        ("weighted", 0.625, 0.75, 0.667, 4),
    ]


def test_begin_and_inside_stand_together() -> None:
    metric = TokenTagMetric(replicates=0)
    metric.add([["O", "I-人名", "B-人名", "I-LOC", "B-LOC"]], [["O"] * 5])
    assert [row.name for row in metric.table().rows] == ["B-LOC", "I-LOC", "B-人名", "I-人名", "O"]


def test_nothing_and_bad_input() -> None:
    metric = TokenTagMetric(replicates=10)
    assert metric.result()["accuracy"].value == 0
    assert metric.table().rows == ()
    assert len(metric.table().averages) == 3
    with pytest.raises(ValueError, match="sentence 0: 1 gold tags, 2 predicted"):
        metric.add([["O"]], [["O", "O"]])
