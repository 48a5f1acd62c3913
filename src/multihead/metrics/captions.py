"""Caption metrics: CIDEr-D (Vedantam et al. 2015), BLEU-1..4 and ROUGE-L, as the COCO caption evaluation counts them.

Texts are lists of words (`split_caption` makes them). A sample is an image with one caption and several references.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from multihead.metrics.bootstrap import Bootstrap, percentile, round_exact
from multihead.metrics.metric import BootstrapSample, Floats, Score
from multihead.metrics.precision_recall import ratio
from multihead.metrics.rouge import lcs_length

ORDERS = 4
SIGMA = 6.0  # CIDEr-D: how fast a difference of lengths costs
BETA = 1.2  # ROUGE-L of the COCO evaluation: recall counts more
WORDS = re.compile(r"\w+(?:['’]\w+)*")
Words = Sequence[str]
Grams = Counter[tuple[str, ...]]


def split_caption(text: str) -> list[str]:
    """Lower-case words without punctuation; close to the COCO tokenizer, which needs Java."""
    return WORDS.findall(text.lower())


def count_ngrams(words: Words) -> Grams:
    """All n-grams of 1 to 4 words."""
    return Counter(tuple(words[i : i + n]) for n in range(1, ORDERS + 1) for i in range(len(words) - n + 1))


def cider_d(references: Sequence[Sequence[Words]], captions: Sequence[Words]) -> Floats:
    """CIDEr-D of each image [N], 0 to 10; document frequencies are those of these references."""
    if len(references) != len(captions) or not all(references):
        raise ValueError(f"{len(captions)} captions, {len(references)} lists of references; each needs one or more")
    gold = [[count_ngrams(words) for words in several] for several in references]
    frequency = Counter(gram for several in gold for gram in set().union(*several))
    logs = math.log(float(len(references))) if references else 0.0
    scores = np.zeros(len(captions))
    for row, (several, words) in enumerate(zip(gold, captions, strict=True)):
        vector, norms, length = _weigh(count_ngrams(words), frequency, logs)
        for grams in several:
            scores[row] += _similarity((vector, norms, length), _weigh(grams, frequency, logs))
        scores[row] *= 10.0 / len(several)
    return scores


Vector = tuple[dict[tuple[str, ...], float], list[float], int]


def _weigh(grams: Grams, frequency: Counter[tuple[str, ...]], logs: float) -> Vector:
    """tf-idf of every n-gram, its norm per order, and the length, counted in pairs of words as the original does."""
    vector = {gram: count * (logs - math.log(max(1.0, frequency[gram]))) for gram, count in grams.items()}
    squares = [0.0] * ORDERS
    for gram, weight in vector.items():
        squares[len(gram) - 1] += weight**2
    return vector, [math.sqrt(square) for square in squares], sum(n for gram, n in grams.items() if len(gram) == 2)


def _similarity(caption: Vector, reference: Vector) -> float:
    """Clipped cosine, the mean of the four orders, with a penalty for another length."""
    sums = [0.0] * ORDERS
    for gram, weight in caption[0].items():
        other = reference[0].get(gram, 0.0)
        sums[len(gram) - 1] += min(weight, other) * other
    total = 0.0
    for n in range(ORDERS):
        norm = caption[1][n] * reference[1][n]
        total += sums[n] / norm if norm else sums[n]
    return total / ORDERS * math.exp(-((caption[2] - reference[2]) ** 2) / (2 * SIGMA**2))


def bleu_counts(references: Sequence[Words], caption: Words) -> list[float]:
    """[length, closest reference length, matches of orders 1 to 4, n-grams of orders 1 to 4] of one caption."""
    grams = count_ngrams(caption)
    most: Grams = Counter()
    for words in references:
        most |= count_ngrams(words)
    matches, totals = [0.0] * ORDERS, [float(max(0, len(caption) - n)) for n in range(ORDERS)]
    for gram, count in (grams & most).items():
        matches[len(gram) - 1] += count
    closest = min((abs(len(words) - len(caption)), len(words)) for words in references)[1]
    return [float(len(caption)), float(closest), *matches, *totals]


def bleu(sums: Floats, order: int = ORDERS) -> Floats:
    """Corpus BLEU of sums [..., 10], 0 to 1, with the tiny constants of the COCO evaluation."""
    length, wanted = sums[..., 0], sums[..., 1]
    precisions = (sums[..., 2 : 2 + order] + 1e-15) / (sums[..., 2 + ORDERS : 2 + ORDERS + order] + 1e-9)
    score = np.exp(np.log(precisions).mean(-1))
    share = (length + 1e-15) / (wanted + 1e-9)
    return np.where(share < 1, score * np.exp(1 - 1 / np.maximum(share, 1e-12)), score)


def rouge_l(references: Sequence[Words], caption: Words) -> float:
    """ROUGE-L of one caption, 0 to 1: the best precision and the best recall of the references."""
    if not caption:
        return 0.0
    lengths = [lcs_length(words, caption) for words in references]
    precision = max(length / len(caption) for length in lengths)
    recall = max(length / len(words) if words else 0.0 for length, words in zip(lengths, references, strict=True))
    if not precision or not recall:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


class CaptionMetric:
    """cider, bleu1, bleu4 and rougeL with confidence intervals. CIDEr weighs words by all references at once, so
    captions are kept until `result`; resampling draws images and leaves these weights as they are."""

    def __init__(self, replicates: int = 1000, seed: int = 0) -> None:
        self.replicates, self.seed = replicates, seed
        self.references: list[list[list[str]]] = []
        self.captions: list[list[str]] = []
        self.index: list[int] = []

    def add(self, gold: Sequence[Sequence[str]], predicted: Sequence[str], index: Sequence[int] | None = None) -> None:
        """References of each image, and the caption that was written for it."""
        numbers = range(len(self.index), len(self.index) + len(predicted)) if index is None else index
        for several, text, number in zip(gold, predicted, numbers, strict=True):
            if isinstance(several, str) or not several:
                raise ValueError(f"image {number}: its references must be a list with one text or more")
            self.references.append([split_caption(reference) for reference in several])
            self.captions.append(split_caption(text))
            self.index.append(number)

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return self._sums().bootstrap_sample

    def result(self) -> dict[str, Score]:
        bootstrap = self._sums()
        drawn = bootstrap.replicates(_values)
        return {
            name: Score(float(value), "percent", "higher", percentile(drawn[name]) if drawn else None, "coco|lc|words")
            for name, value in _values(bootstrap.total).items()
        }

    def _sums(self) -> Bootstrap:
        bootstrap = Bootstrap(13, self.replicates, self.seed)
        pairs = list(zip(self.references, self.captions, strict=True))
        scores = cider_d(self.references, self.captions)
        rows = [[1.0, c, rouge_l(r, w), *bleu_counts(r, w)] for c, (r, w) in zip(scores, pairs, strict=True)]
        bootstrap.add(round_exact(np.array(rows).reshape(-1, 13)), self.index)
        return bootstrap


def _values(sums: Floats) -> dict[str, Floats]:
    """Percent; CIDEr too, as papers print it: 1.0 is 100."""
    return {
        "cider": 100 * ratio(sums[..., 1], sums[..., 0]),
        "bleu4": 100 * bleu(sums[..., 3:]),
        "bleu1": 100 * bleu(sums[..., 3:], 1),
        "rougeL": 100 * ratio(sums[..., 2], sums[..., 0]),
    }


def top_k_accuracy(gold: ArrayLike, scores: ArrayLike, k: int = 5, replicates: int = 1000, seed: int = 0) -> Score:
    """Share of samples whose class [N] is among the k highest scores [N, C]; of equal scores the first classes win."""
    truth, values = np.asarray(gold), np.asarray(scores, dtype=np.float64)
    if values.ndim != 2 or truth.shape != values.shape[:1] or not k >= 1:
        raise ValueError(f"classes {truth.shape}, scores {values.shape}, k={k}; give [N], [N, C] and k from 1")
    best = np.argsort(-values, axis=1, kind="stable")[:, :k]
    hits = (best == truth[:, None]).any(1).astype(np.float64)
    bootstrap = Bootstrap(2, replicates, seed)
    bootstrap.add(np.stack((hits, np.ones_like(hits)), axis=1))
    drawn = bootstrap.replicates(lambda sums: {"top": ratio(sums[..., 0], sums[..., 1])})
    value = float(ratio(bootstrap.total[0], bootstrap.total[1]))
    return Score(value, interval=percentile(drawn["top"]) if drawn else None)
