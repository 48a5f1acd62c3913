"""match, both texts read together: which label is scored, and pairs without an order."""

from __future__ import annotations

import pytest
import torch

from multihead.inference.engine import predict_rows
from multihead.models import ClassifierReadout, Encoder, ModelConfig, TaskModel
from multihead.tasks.match import Match
from multihead.tasks.pair_scores import SimilarityScorer
from multihead.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["some words"], "wordpiece", 40)


@pytest.mark.parametrize(
    ("labels", "options", "right"),
    [
        (["duplicate", "not_duplicate"], {}, "duplicate"),
        (["entailment", "not_entailment"], {}, "entailment"),
        (["0", "1"], {}, "1"),
        (["other", "same"], {}, "same"),
        (["close", "far"], {}, "far"),
        (["close", "far"], {"positive": "close"}, "close"),
        (["0", "1"], {"positive": "0"}, "0"),
    ],
)
def test_f1_is_of_the_label_of_texts_that_belong_together(labels: list[str], options: dict, right: str) -> None:
    task = Match(TOKENIZER, labels, 32, 4, **options)
    scorer = task.scorer(20)
    wrong = next(label for label in labels if label != right)
    for index, (gold, said) in enumerate([(right, right), (right, wrong), (wrong, wrong), (wrong, wrong)]):
        chances = {label: 0.9 if label == said else 0.1 for label in labels}
        scorer.add({"label": gold}, {"label": said, "scores": chances}, index)
    found = scorer.result()["f1"]
    assert scorer.main == "f1"
    assert found.value == pytest.approx(2 / 3)
    assert found.interval is not None
    assert found.signature == f"of {right}"


def test_a_wanted_label_that_is_not_there_is_said() -> None:
    with pytest.raises(ValueError, match=r"match\.positive"):
        Match(TOKENIZER, ["far", "near"], 32, 4, positive="close").scorer()


def test_three_classes_are_scored_by_accuracy() -> None:
    assert Match(TOKENIZER, ["a", "b", "yes"], 32, 4).scorer().main == "accuracy"


@pytest.mark.parametrize("options", [{}, {"score": (0.0, 5.0)}])
def test_read_both_ways_round_the_order_means_nothing(options: dict) -> None:
    torch.manual_seed(0)
    labels = ["score"] if options else ["0", "1"]
    model = TaskModel(
        Encoder(ModelConfig(vocab=len(TOKENIZER), dim=8, layers=1, heads=2)), ClassifierReadout(8, len(labels), "mean")
    )
    pairs = [("some words", "words"), ("words words some", "some"), ("some " * 40, "words")]
    said = {}
    for symmetric in (False, True):
        task = Match(TOKENIZER, labels, 16, 4, symmetric=symmetric, **options)
        ways = [[{"text_a": a, "text_b": b} for a, b in pairs], [{"text_a": b, "text_b": a} for a, b in pairs]]
        said[symmetric] = [[found for _, found in predict_rows(model, task, rows)] for rows in ways]
    assert said[True][0] == said[True][1]
    assert said[False][0] != said[False][1]
    for one, other, both in zip(*said[False], said[True][0], strict=True):
        assert both["score"] <= max(one["score"], other["score"])
    assert [found.get("input_info") for found in said[True][0]] == [found.get("input_info") for found in said[False][0]]


def test_both_ways_are_learnt() -> None:
    row = {"text_a": "some", "text_b": "words words", "label": "1"}
    first, second = Match(TOKENIZER, ["0", "1"], 16, 4, symmetric=True).encode(row)
    (alone,) = Match(TOKENIZER, ["0", "1"], 16, 4).encode(row)
    (turned,) = Match(TOKENIZER, ["0", "1"], 16, 4).encode({**row, "text_a": "words words", "text_b": "some"})
    for found, want in ((first, alone), (second, turned)):
        assert all((found[name] == want[name]).all() for name in want)
    assert (first["tokens"] != second["tokens"]).any()


@pytest.mark.parametrize("unit", [0.2, 1.0, 20.0])
def test_a_score_is_right_within_a_tenth_of_the_range_whatever_its_unit(unit: float):
    scorer = SimilarityScorer(0, (0.0, 5 * unit))
    said = [scorer.add({"label": 3.0 * unit}, {"score": (3.0 + off) * unit}, i) for i, off in enumerate((0.4, -0.6))]
    assert said == [True, False]


@pytest.mark.parametrize("label", ["nan", "x", float("inf")])
def test_a_score_that_is_no_number_is_told_with_its_place(label: str | float) -> None:
    task = Match(TOKENIZER, ["score"], 32, 4, score=(0.0, 5.0))
    model = TaskModel(
        Encoder(ModelConfig(vocab=len(TOKENIZER), dim=8, layers=1, heads=2)), ClassifierReadout(8, 1, "mean")
    )
    row = {"text_a": "a", "text_b": "b", "label": label, "file": "test.csv", "line": 9}
    with pytest.raises(ValueError, match=r"test\.csv:9: the score .* is not a number"):
        list(predict_rows(model, task, [row]))
