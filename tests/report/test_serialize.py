import json

import numpy as np

from multihead.report import ConfusionMatrix, Mistake, Mistakes, ReportData, Span, TrainingCurve
from multihead.report.serialize import (
    CLASSES,
    LETTERS,
    MISTAKES,
    POINTS,
    clip_spans,
    serialize_confusion,
    serialize_report,
    thin_curve,
)


def test_short_curve_stays() -> None:
    out = thin_curve(TrainingCurve("loss", [1, 2, 3], [0.5, float("nan"), 0.25], "Loss"))
    assert out == {"name": "loss", "panel": "Loss", "lost": 1, "steps": [1, 2, 3], "values": [0.5, None, 0.25]}


def test_long_curve_keeps_its_spike_and_its_end() -> None:
    values = np.full(10_000, 0.5)
    values[4321] = 9
    values[7000:7100] = np.inf
    out = thin_curve(TrainingCurve("loss", np.arange(1, 10_001), values, "Loss"))
    assert len(out["steps"]) == len(out["values"]) == len(out["high"]) == POINTS
    assert max(value for value in out["high"] if value is not None) == 9
    assert out["steps"][-1] == 10_000
    assert out["lost"] == 100
    assert None in out["values"]  # a gap, not a line through it
    json.dumps(out, allow_nan=False)


def test_smooth_curve_needs_no_range() -> None:
    assert "low" not in thin_curve(TrainingCurve("rate", np.arange(5000), np.linspace(0, 1, 5000), "Rate"))


def test_curve_of_nothing_finite() -> None:
    out = thin_curve(TrainingCurve("loss", np.arange(1000), np.full(1000, np.nan), "Loss"))
    assert out["lost"] == 1000
    assert set(out["values"]) == {None}


def test_confusion_is_sparse() -> None:
    out = serialize_confusion(ConfusionMatrix(("a", "b", "c"), [[5, 2, 0], [0, 7, 0], [0, 3, 0]]))
    assert out["cells"] == [[0, 0, 5], [0, 1, 2], [1, 1, 7], [2, 1, 3]]
    assert out["support"] == [7, 7, 3]
    assert out["pairs"] == [["c", "b", 3, 3], ["a", "b", 2, 7]]
    assert out["of"] == 3


def test_very_many_classes_keep_the_worst() -> None:
    counts = np.eye(400, dtype=int) * 10
    counts[390, 3] = 5
    out = serialize_confusion(ConfusionMatrix(tuple(f"c{i}" for i in range(400)), counts))
    assert len(out["labels"]) == CLASSES
    assert {"c390", "c3"} <= set(out["labels"])
    assert out["of"] == 400
    assert out["pairs"] == [["c390", "c3", 5, 15]]


def test_long_text_is_cut_around_the_error() -> None:
    text = "甲" * 5000 + "Angela" + "乙" * 5000
    right, error = Span(3, 5, "LOC"), Span(5000, 5006, "PER")
    shown, gold, predicted = clip_spans(text, (right, error), (right,))
    assert len(shown) < LETTERS + 40
    assert shown.startswith("… ")
    assert shown.endswith("(10,006 characters)")
    assert predicted == []
    assert [shown[start:end] for start, end, _ in gold] == ["Angela"]


def test_short_text_is_whole() -> None:
    assert clip_spans("a b", (Span(2, 3, "X"), Span(0, 1, "Y")), ()) == ("a b", [[0, 1, "Y"], [2, 3, "X"]], [])


def test_mistakes_are_limited() -> None:
    worst = tuple(Mistake(f"text {i}", "a", "b") for i in range(1000))
    out = serialize_report(ReportData(title="", task="classify", mistakes=Mistakes(worst, 1000, 5000)))["mistakes"]
    assert len(out["worst"]) == MISTAKES
    assert out["wrong"] == 1000
    assert out["worst"][0] == {"text": "text 0", "gold": "a", "predicted": "b", "confidence": None}
