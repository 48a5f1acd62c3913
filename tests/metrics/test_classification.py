"""Classes and labels against scikit-learn, calibration and AUC against torchmetrics and scikit-learn."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as oracle

from multihead.metrics import ClassificationMetric, ConfidenceInterval, MultiLabelMetric, Score, to_json
from multihead.metrics.calibration import RocAuc, places_of

LABELS = ["a", "b", "c", "d", "e"]
pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)


@settings(max_examples=50, deadline=None)
@given(pairs, st.integers(1, 9))
def test_sklearn(samples: list[tuple[int, int]], batch: int) -> None:
    gold, predicted = np.array(samples).T
    metric = ClassificationMetric(LABELS, replicates=0)
    for start in range(0, len(gold), batch):
        metric.add(gold[start : start + batch], predicted[start : start + batch])
    result = {name: score.value for name, score in metric.result().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = {f"{k}_f1": oracle.f1_score(gold, predicted, average=k) for k in ("micro", "macro", "weighted")}
        want |= {"accuracy": oracle.accuracy_score(gold, predicted)}
        want |= {"mcc": oracle.matthews_corrcoef(gold, predicted)}
        assert metric.confusion() == oracle.confusion_matrix(gold, predicted, labels=range(5)).tolist()
    assert result == pytest.approx(want, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.booleans()] * 6), min_size=1, max_size=20))
def test_labels_against_sklearn(samples: list[tuple[bool, ...]]) -> None:
    both = np.array(samples)
    gold, predicted = both[:, :3], both[:, 3:]
    metric = MultiLabelMetric(LABELS[:3], replicates=0)
    metric.add(gold[:5], predicted[:5])
    metric.add(gold[5:], predicted[5:])
    seen = np.flatnonzero((gold | predicted).any(0))  # a label that never occurs is no part of the mean
    want = {"subset_accuracy": oracle.accuracy_score(gold, predicted)}
    for average in ("micro", "macro", "weighted"):
        options = {"average": average, "zero_division": 0, "labels": seen}
        want[f"{average}_f1"] = oracle.f1_score(gold, predicted, **options) if len(seen) else 0.0
    assert {name: s.value for name, s in metric.result().items()} == pytest.approx(want, abs=1e-12)


def sharpened(rng: np.random.Generator, n: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Gold [N], probabilities [N, C] that know something."""
    gold = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes)) * 2 + 2 * np.eye(classes)[gold]
    chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return gold, chances


def calibrated(classes: int) -> tuple[ClassificationMetric, np.ndarray, np.ndarray]:
    gold, chances = sharpened(np.random.default_rng(classes), 500, classes)
    metric = ClassificationMetric(LABELS[:classes], replicates=0)
    for rows in np.array_split(np.arange(500), 7):
        metric.add(gold[rows], chances[rows].argmax(-1), chances[rows])
    return metric, gold, chances


@pytest.mark.parametrize("classes", [2, 5])
def test_calibration(classes: int) -> None:
    metric, gold, chances = calibrated(classes)
    confidence, right = chances.max(-1), chances.argmax(-1) == gold
    want = 0.0
    for b in range(15):
        inside = (confidence > b / 15) & (confidence <= (b + 1) / 15)
        if inside.any():
            want += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert metric.result()["ece"].value == pytest.approx(want, abs=1e-8)
    assert metric.result()["ece"].better == "lower"
    bins = metric.bins()
    assert sum(b.count for b in bins) == 500
    assert all(b.low < b.confidence <= b.high for b in bins if b.count)
    assert sum(b.count * b.accuracy for b in bins) / 500 == pytest.approx(metric.result()["accuracy"].value)


@pytest.mark.slow  # imports torch
@pytest.mark.parametrize("classes", [2, 5])
def test_calibration_against_torchmetrics(classes: int) -> None:
    oracle = pytest.importorskip("torchmetrics.functional.classification")
    import torch

    metric, gold, chances = calibrated(classes)
    options = {"num_classes": classes, "n_bins": 15, "norm": "l1"}
    want = oracle.multiclass_calibration_error(torch.tensor(chances), torch.tensor(gold), **options)
    assert metric.result()["ece"].value == pytest.approx(float(want), abs=1e-6)


def test_bins_are_closed_above() -> None:
    metric = ClassificationMetric(["no", "yes"], replicates=0)
    metric.add([1, 1, 0], [1, 1, 1], [[0.0, 1.0], [0.2, 0.8], [1.0, 0.0]])
    bins = metric.bins()
    assert [i for i, b in enumerate(bins) if b.count] == [0, 11, 14]  # 0.8 = 12/15 is the upper edge of bin 11
    assert metric.result()["ece"].value == pytest.approx((0 + 0.2 + 0) / 3)


@pytest.mark.parametrize("spread", [0.5, 2, 8])
def test_auc(spread: float) -> None:
    rng = np.random.default_rng(3)
    gold = rng.integers(0, 2, 3000)
    yes = 1 / (1 + np.exp(-spread * (rng.normal(size=3000) + gold)))
    yes[:500] = np.round(yes[:500], 1)  # ties
    metric = ClassificationMetric(["no", "yes"], replicates=0)
    for rows in (slice(0, 1000), slice(1000, 3000)):
        metric.add(gold[rows], (yes[rows] > 0.5).astype(int), np.stack((1 - yes[rows], yes[rows]), -1))
    auc = metric.result()["auc"]
    assert auc.value == pytest.approx(oracle.roc_auc_score(gold, yes), abs=2e-5)
    assert auc.interval is not None
    n1, n0, a = gold.sum(), (1 - gold).sum(), auc.value  # Hanley and McNeil 1982: another formula, close to DeLong's
    q1, q2 = a / (2 - a), 2 * a * a / (1 + a)
    error = np.sqrt((a * (1 - a) + (n1 - 1) * (q1 - a * a) + (n0 - 1) * (q2 - a * a)) / (n0 * n1))
    assert auc.interval.high - auc.interval.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_places_rise_with_the_scores() -> None:
    fine = 2.0 ** -np.arange(1, 80.0)
    scores = np.sort(np.concatenate((np.linspace(0, 1, 9999), fine, 1 - fine)))
    places = places_of(scores)
    assert (np.diff(places) >= 0).all()
    assert 0 <= places[0] < places[-1] < RocAuc().counts.shape[1]
    assert len(set(places_of(np.linspace(0.001, 0.999, 2000)).tolist())) == 2000


def test_auc_is_undefined_for_one_class() -> None:
    metric = ClassificationMetric(["no", "yes"], replicates=0)
    metric.add([1, 1], [1, 0], [[0.1, 0.9], [0.6, 0.4]])
    assert np.isnan(metric.result()["auc"].value)
    assert to_json(metric.result())["auc"]["value"] is None
    json.dumps(to_json(metric.result()), allow_nan=False)


def test_edges() -> None:
    nothing = ClassificationMetric(LABELS)
    nothing.add([], [])
    assert {score.value for score in nothing.result().values()} == {0.0}
    one = ClassificationMetric(LABELS, replicates=50)
    one.add([2, 2, 2], [2, 2, 2])
    values = {name: score.value for name, score in one.result().items()}
    assert values == {"accuracy": 1, "micro_f1": 1, "macro_f1": 1, "weighted_f1": 1, "mcc": 0}
    assert [row.name for row in one.table().rows] == ["c"]
    assert one.result()["accuracy"].interval.low == 1  # replicates without a sample do not count as 0
    wrong = ClassificationMetric(LABELS)
    wrong.add([0, 1, 2], [1, 2, 0])
    assert wrong.result()["accuracy"].value == wrong.result()["macro_f1"].value == 0
    assert wrong.result()["mcc"].value == pytest.approx(-0.5)
    labels = MultiLabelMetric(LABELS, replicates=20)
    labels.add([], [])
    assert {score.value for score in labels.result().values()} == {0.0}


def test_f1_of_two_classes_is_that_of_the_second() -> None:
    gold, predicted = [0, 1, 1, 1, 0], [0, 1, 0, 1, 1]
    metric = ClassificationMetric(["different", "same"], replicates=0)
    metric.add(gold, predicted)
    assert metric.result()["f1"].value == pytest.approx(oracle.f1_score(gold, predicted))
    assert "f1" not in ClassificationMetric(LABELS, replicates=0).result()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 5], [0, 1]), "gold: class 5 is not among the 5 classes"),
        (([0, 1], [0, -1]), "predicted: class -1"),
        (([0, 1], [0]), "2 gold classes, 1 predicted"),
        (([0.5], [0]), "expected class numbers"),
        (([0], [0], [[0.5, 0.5]]), r"shape \(1, 2\); expected \(1, 5\)"),
        (([0], [0], [[3.0, -1, 0, 0, 0]]), "are these logits"),
        (([0], [0], [[np.nan, 0, 0, 0, 0]]), "are these logits"),
    ],
)
def test_bad_input_changes_nothing(arguments: tuple[object, ...], message: str) -> None:
    metric = ClassificationMetric(LABELS)
    with pytest.raises(ValueError, match=message):
        metric.add(*arguments)
    assert metric.bootstrap_sample.samples == 0
    assert metric.confused.sum() == 0


def test_bad_labels() -> None:
    with pytest.raises(ValueError, match="apply the threshold"):
        MultiLabelMetric(["a", "b"]).add([[1, 0]], [[0.7, 0.2]])
    with pytest.raises(ValueError, match="same name"):
        MultiLabelMetric(["a", "a"])


def test_replicates_without_the_few_positives_say_nothing() -> None:
    """Two positives in 300, all found: a seventh of the replicates drew neither, and has no F1 to speak of."""
    metric = ClassificationMetric(["no", "yes"], replicates=400)
    metric.add([0] * 298 + [1] * 2, [0] * 298 + [1] * 2)
    result, (_, row) = metric.result(), metric.table().rows
    for score in (result["f1"], result["mcc"]):
        assert score.value == 1.0
        assert score.interval == ConfidenceInterval(1.0, 1.0)
    assert row.interval == result["f1"].interval
    blind = ClassificationMetric(["no", "yes"], replicates=50)  # and where it is undefined for all, it is 0, not nan
    blind.add([0] * 30, [0] * 30)
    assert blind.result()["f1"] == Score(0.0, interval=ConfidenceInterval(0.0, 0.0), signature="of yes")
    assert blind.result()["mcc"].value == 0.0
