"""match, both texts read together: which label is scored."""

from __future__ import annotations

import pytest

from multihead.data.tokenizer import Tokenizer
from multihead.tasks.match import Match

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
