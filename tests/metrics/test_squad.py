"""SQuAD's rules by example, and its two published prediction files."""

import json
import os
from pathlib import Path

import pytest

from multihead.metrics import SquadMetric, exact_and_f1
from multihead.metrics.squad import normalize_words

DATA = os.environ.get("MULTIHEAD_DATA")
SQUAD = Path(DATA or "") / "squad_v1.1"


@pytest.mark.skipif(DATA is None, reason="set MULTIHEAD_DATA to a folder with squad_v1.1 and published predictions")
@pytest.mark.parametrize(
    ("name", "exact", "f1"), [("bert_ensemble", "86.21", "92.20"), ("logreg_baseline", "40.14", "50.98")]
)
def test_published_predictions(name: str, exact: str, f1: str) -> None:
    (path,) = SQUAD.glob("dev-v1.1*.json")
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    questions = [q for article in articles for paragraph in article["paragraphs"] for q in paragraph["qas"]]
    said = json.loads((SQUAD / "oracle_predictions" / f"{name}.json").read_text(encoding="utf-8"))
    metric = SquadMetric(replicates=0)
    for start in range(0, len(questions), 1000):
        batch = questions[start : start + 1000]
        metric.add([[a["text"] for a in q["answers"]] for q in batch], [said.get(q["id"]) for q in batch])
    assert metric.bootstrap_sample.samples == 10570
    result = metric.result()
    assert (f"{result['exact']:.2f}", f"{result['f1']:.2f}") == (exact, f1)
    assert result["f1"].unit == "percent"


@pytest.mark.parametrize(
    ("gold", "predicted", "exact", "f1"),
    [
        (["The Denver Broncos!"], "denver   broncos", True, 1.0),
        (["Denver Broncos"], "the Broncos", False, 2 / 3),
        (["Denver", "Denver Broncos"], "Denver Broncos", True, 1.0),  # the best over the answers
        (["in 1999"], "1998", False, 0.0),
        (["a b b c"], "b b b", False, 2 * 2 / (3 + 3)),  # bags: b counts twice; "a" is an article
        (["theatre"], "atre", False, 0.0),  # articles are whole words
        (["it's"], "its", True, 1.0),  # punctuation goes without leaving a space
        (["10–12"], "1012", False, 0.0),  # but only ASCII's
        (["x"], None, False, 0.0),
        ([], None, True, 1.0),
        ([], "", True, 1.0),
        ([], "the", True, 1.0),  # nothing is left of it
        ([], "x", False, 0.0),
        ([".", "x"], "x", True, 1.0),
        (["The"], "", True, 1.0),  # only an article: counts as no answer, as in SQuAD 2.0
    ],
)
def test_rules(gold: list[str], predicted: str | None, exact: bool, f1: float) -> None:
    assert exact_and_f1(gold, predicted) == (exact, pytest.approx(f1))


@pytest.mark.parametrize(
    ("gold", "predicted", "exact", "f1"),
    [
        (["北京大学"], "北京大学。", True, 1.0),
        (["北京大学"], "北京", False, 2 * 2 / (4 + 2)),
        (["２０１５年"], "2015 年", True, 1.0),  # full width, spaces
        (["2015年"], "2016年", False, 0.5),  # a number is one word
        (["《红楼梦》"], "红楼梦", True, 1.0),
        (["约翰·史密斯"], "约翰史密斯", True, 1.0),
        (["iPhone手机"], "iphone 手机", True, 1.0),
        (["東京タワー"], "タワー", False, 2 * 3 / (5 + 3)),
        ([], "。", True, 1.0),
    ],
)
def test_characters(gold: list[str], predicted: str, exact: bool, f1: float) -> None:
    assert exact_and_f1(gold, predicted, "characters") == (exact, pytest.approx(f1))


def test_by_words_a_chinese_answer_is_one_word() -> None:
    assert exact_and_f1(["北京大学"], "北京") == (False, 0.0)


def test_without_answer() -> None:
    metric = SquadMetric(replicates=50)
    metric.add([["x y"], ["x"], [], []], ["x", "x", None, "z"])
    values = {name: score.value for name, score in metric.result().items()}
    want = {"exact": 50, "f1": 100 * (2 / 3 + 1 + 1) / 4, "answerable.exact": 50}
    want |= {"answerable.f1": 100 * (2 / 3 + 1) / 2, "unanswerable.exact": 50}
    assert values == pytest.approx(want, abs=1e-6)


def test_edges() -> None:
    metric = SquadMetric()
    assert metric.result()["f1"].value == 0
    with pytest.raises(ValueError, match="gold is one string; use a list of answers"):
        metric.add(["x"], ["x"])
    with pytest.raises(ValueError, match="shorter"):
        metric.add([["x"], ["y"]], ["x"])
    with pytest.raises(ValueError, match="words or characters"):
        SquadMetric(by="letters")
    with pytest.raises(ValueError, match="one counts by words"):
        metric.merge(SquadMetric(by="characters"))
    metric.add([["x"]], ["x"])
    assert set(metric.result()) == {"exact", "f1"}


def test_few_questions_without_an_answer_do_not_count_as_wrong() -> None:
    metric = SquadMetric(replicates=300)
    metric.add([["Rome"]] * 200 + [[]] * 2, ["Rome"] * 200 + [None] * 2)
    found = metric.result()["unanswerable.exact"]
    assert found.value == 100
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (100, 100)


def test_thai_has_no_spaces_either_and_russian_has() -> None:
    assert normalize_words("ไป 15 км, да", "characters") == ["ไ", "ป", "15", "км", "да"]
