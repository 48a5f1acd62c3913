"""ROUGE beside rouge-score itself, and Chinese characters by hand."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.metrics import RougeMetric
from multihead.metrics.rouge import NAMES, lcs_length, rouge
from multihead.recipes import shakespeare

scorer = pytest.importorskip("rouge_score.rouge_scorer")
words = st.lists(st.sampled_from("abcd"), max_size=12)


@pytest.mark.parametrize("stem", [False, True])
def test_as_the_package(stem: bool) -> None:
    draw = random.Random(5)
    speeches = [text.replace("\n", " ") for text in shakespeare().split("\n\n")[:120]]
    gold, said = [], []
    for text in speeches:
        parts = text.split(" ")
        gold.append([" ".join(part for part in parts if draw.random() < 0.7) for _ in range(draw.choice([1, 2, 3]))])
        said.append(" ".join(draw.sample(parts, len(parts) // 2) if draw.random() < 0.5 else parts[::2]))
    theirs = scorer.RougeScorer(list(NAMES), use_stemmer=stem)
    want = [theirs.score_multi(references, text) for references, text in zip(gold, said, strict=True)]
    metric = RougeMetric(stem=stem, replicates=100)
    metric.add(gold[:70], said[:70])
    metric.add(gold[70:], said[70:])
    for name, score in metric.result().items():
        mean = 100 * sum(row[name].fmeasure for row in want) / len(want)
        assert score.value == pytest.approx(mean, abs=1e-6)
        assert 10 < mean < 90
        assert score.interval.low < mean < score.interval.high
        assert score.signature == f"by:words|stem:{'yes' if stem else 'no'}|refs:best"


@given(words, words)
def test_every_pair_of_texts(gold: list[str], said: list[str]) -> None:
    want = scorer.RougeScorer(list(NAMES)).score(" ".join(gold), " ".join(said))
    assert rouge(gold, said) == pytest.approx([want[name].fmeasure for name in NAMES])
    assert lcs_length(gold, said) == lcs_length(said, gold) == scorer._lcs_table(gold, said)[-1][-1]


def test_chinese_characters() -> None:
    metric = RougeMetric("characters", replicates=0)
    metric.add(["今天，天气很好。iPhone 15"], ["天气好 ｉｐｈｏｎｅ 16！"])
    # gold: 今 天 天 气 很 好 iphone 15; said: 天 气 好 iphone 16; pairs shared: 天气, 好iphone
    result = {name: score.value for name, score in metric.result().items()}
    assert result == pytest.approx({"rouge1": 100 * 8 / 13, "rouge2": 100 * 4 / 11, "rougeL": 100 * 8 / 13})
    blind = RougeMetric("words", replicates=0)
    blind.add(["今天天气很好"], ["今天天气很好"])
    assert blind.result()["rouge1"].value == 0  # why there is by="characters"


def test_misuse() -> None:
    with pytest.raises(ValueError, match="words or characters"):
        RougeMetric("letters")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="English words"):
        RougeMetric("characters", stem=True)
    with pytest.raises(ValueError, match="text 0: no reference"):
        RougeMetric().add([[]], ["a"])
    with pytest.raises(ValueError, match="the other by characters"):
        RougeMetric().merge(RougeMetric("characters"))
