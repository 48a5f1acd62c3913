"""Caption metrics give the numbers of pycocoevalcap 1.2 (its scorers on the same words, computed once)."""

import random

import numpy as np
import pytest

from multihead.metrics.captions import CaptionMetric, bleu, bleu_counts, cider_d, rouge_l, split_caption, top_k_accuracy

VOCABULARY = [
    "a",
    "dog",
    "runs",
    "on",
    "the",
    "green",
    "grass",
    "two",
    "men",
    "play",
    "with",
    "ball",
    "in",
    "park",
    "woman",
    "red",
]


def captions() -> tuple[list[list[str]], list[str]]:
    rng = random.Random(4)

    def text(length: int) -> str:
        return " ".join(rng.choice(VOCABULARY) for _ in range(length))

    references = [[text(rng.randint(4, 12)) for _ in range(5)] for _ in range(30)]
    written = []
    for several in references:
        words = rng.choice(several).split()
        for place in range(len(words)):
            if rng.random() < 0.25:
                words[place] = rng.choice(VOCABULARY)
        written.append(" ".join(words[: rng.randint(3, len(words))]))
    return references, written


def test_equal_to_the_public_implementation() -> None:
    references, written = captions()
    gold, words = [[text.split() for text in several] for several in references], [text.split() for text in written]
    scores = cider_d(gold, words)
    assert scores.mean() == pytest.approx(1.1300556666756134, abs=1e-9)
    want = [1.174169908499252, 0.5736393012179335, 1.5762553170493638, 1.498504632351786, 1.0332969480564396]
    np.testing.assert_allclose(scores[:5], want, atol=1e-9)
    sums = np.array([bleu_counts(*pair) for pair in zip(gold, words, strict=True)]).sum(0)
    bleus = [float(bleu(sums, order)) for order in (1, 2, 3, 4)]
    np.testing.assert_allclose(
        bleus, [0.8097506603948751, 0.6764586980047584, 0.582014855152271, 0.5356881405643819], atol=1e-9
    )
    rouge = np.mean([rouge_l(*pair) for pair in zip(gold, words, strict=True)])
    assert rouge == pytest.approx(0.6124458014432596, abs=1e-9)


def test_metric_with_intervals() -> None:
    references, written = captions()
    metric = CaptionMetric()
    metric.add(references[:10], written[:10])
    metric.add(references[10:], written[10:])
    result = metric.result()
    assert result["cider"].value == pytest.approx(113.00556666756134, abs=1e-6)
    assert result["bleu4"].value == pytest.approx(53.56881405643819, abs=1e-6)
    for score in result.values():
        assert score.interval is not None
        assert score.interval.low < score.value < score.interval.high
    with pytest.raises(ValueError, match="image 30"):
        metric.add([[]], ["a dog"])


def test_edges() -> None:
    assert split_caption("A man's dog, running!") == ["a", "man's", "dog", "running"]
    assert rouge_l([["a"]], []) == 0
    assert cider_d([[["a", "dog"]], [["two", "men"]]], [[], ["two", "men"]])[0] == 0
    with pytest.raises(ValueError, match="references"):
        cider_d([[]], [["a"]])


def test_top_k() -> None:
    scores = np.array([[0.1, 0.5, 0.4], [0.9, 0.05, 0.05], [0.2, 0.3, 0.5]])
    assert top_k_accuracy([2, 1, 0], scores, k=1).value == 0
    assert top_k_accuracy([2, 1, 0], scores, k=2).value == pytest.approx(2 / 3)
    assert top_k_accuracy([2, 1, 0], scores, k=5).value == 1
    with pytest.raises(ValueError, match="give"):
        top_k_accuracy([2, 1], scores)
