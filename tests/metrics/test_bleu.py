"""BLEU and chrF beside sacreBLEU itself, on real English and Chinese sentences with words lost and swapped."""

import gzip
import random

import numpy as np
import pytest

from multihead.metrics import BleuMetric, compare_paired
from multihead.metrics.bleu import bleu, chrf
from multihead.recipes import recipe, shakespeare

sacrebleu = pytest.importorskip("sacrebleu")
from sacrebleu.metrics import BLEU, CHRF  # noqa: E402


def sentences(language: str, count: int = 150) -> list[str]:
    if language == "en":
        return [speech.replace("\n", " ") for speech in shakespeare().split("\n\n")[:count]]
    lines = gzip.decompress((recipe("uner_zh") / "test.iob2.gz").read_bytes()).decode().splitlines()
    return [line[9:] for line in lines if line.startswith("# text = ")][:count]


def spoilt(text: str, draw: random.Random, language: str) -> str:
    """As a poor translation: parts missing, doubled or swapped."""
    parts = list(text) if language == "zh" else text.split(" ")
    parts = [part for part in parts for _ in range(draw.choice([0, 1, 1, 1, 1, 1, 2]))]
    for _ in range(len(parts) // 8):
        i = draw.randrange(len(parts) - 1)
        parts[i], parts[i + 1] = parts[i + 1], parts[i]
    return ("" if language == "zh" else " ").join(parts)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("references", [1, 2])
def test_as_the_package(language: str, references: int, lowercase: bool) -> None:
    draw, texts = random.Random(3), sentences(language)
    gold = [[text, *(spoilt(text, draw, language) for _ in range(references - 1))] for text in texts]
    said = [spoilt(text, draw, language) for text in texts]
    metric = BleuMetric(language, lowercase=lowercase, replicates=200)
    for start in range(0, len(texts), 40):
        metric.add(gold[start : start + 40], said[start : start + 40])
    result = metric.result()
    columns = list(zip(*gold, strict=True))
    for name, theirs in (
        ("bleu", BLEU(tokenize={"en": "13a", "zh": "zh"}[language], lowercase=lowercase)),
        ("chrf", CHRF(lowercase=lowercase)),
    ):
        want = theirs.corpus_score(said, columns)
        assert result[name].value == pytest.approx(want.score, abs=1e-9)
        assert 20 < want.score < 95
        assert result[name].signature == str(theirs.get_signature())
        assert result[name].interval.low < want.score < result[name].interval.high
    assert f"tok:{'zh' if language == 'zh' else '13a'}" in result["bleu"].signature
    assert f"nrefs:{references}" in result["chrf"].signature


def test_the_interval_is_the_packages() -> None:
    draw, texts = random.Random(3), sentences("en")
    said = [spoilt(text, draw, "en") for text in texts]
    metric, theirs = BleuMetric("en"), BLEU()
    metric.add(texts, said)
    want = theirs.corpus_score(said, [texts], n_bootstrap=1000)
    got = metric.result()["bleu"].interval
    assert (got.high - got.low) / 2 == pytest.approx(want._ci, rel=0.15)


def test_edges_of_the_formulas() -> None:
    """Every replicate's sums, and those of odd little sets, give what sacreBLEU computes from the same sums."""
    draw = np.random.default_rng(1)
    for _ in range(300):
        total = np.maximum(0, draw.integers(0, 9) - np.arange(4))
        right = draw.integers(0, total + 1) * draw.integers(0, 2, 4)
        sums = np.concatenate((total[:1], draw.integers(0, 9, 1), right, total))
        want = BLEU()._compute_score_from_stats(sums.tolist()).score
        assert bleu(sums.astype(float)) == pytest.approx(want, abs=1e-9)
        written, wanted = draw.integers(0, 4, (2, 6))
        sums = np.stack((written, wanted, draw.integers(0, np.minimum(written, wanted) + 1)), axis=1).ravel()
        assert chrf(sums.astype(float)) == pytest.approx(CHRF()._compute_f_score(sums.tolist()), abs=1e-9)


def test_names_and_misuse() -> None:
    assert BleuMetric("zh-CN").tokenize == "zh"
    assert BleuMetric("de").tokenize == "13a"
    assert BleuMetric("zh", tokenize="char").tokenize == "char"
    with pytest.raises(ValueError, match="unknown to sacreBLEU; use one of 13a"):
        BleuMetric(tokenize="words")
    with pytest.raises(ValueError, match="text 1: no reference"):
        BleuMetric().add(["a", []], ["a", "b"])
    with pytest.raises(ValueError, match="zip"):
        BleuMetric().add(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="one splits by 13a, the other by zh"):
        BleuMetric("en").merge(BleuMetric("zh"))
    varied = BleuMetric()
    varied.add(["a b c d", ["a", "b"]], ["a b c d", "b"])
    assert "nrefs:var" in varied.result()["bleu"].signature


def test_two_systems_on_the_same_sentences() -> None:
    texts, draw = sentences("en"), random.Random(1)
    good, poor = BleuMetric(), BleuMetric()
    once = [spoilt(text, draw, "en") for text in texts]
    good.add(texts, once)
    poor.add(texts, [spoilt(text, draw, "en") for text in once])
    found = compare_paired(poor, good)
    assert found["bleu"].interval.low > 0
    assert found["chrf"].p_value < 0.01
