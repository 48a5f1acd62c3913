"""Exact match and F1 of answers, as SQuAD's evaluator computes them (Rajpurkar et al. 2016; with "no answer", 2018).

Lower case, no ASCII punctuation, no a/an/the, single spaces; then equality, and F1 of the bags of words; the best over
the gold answers. `by="characters"` for Chinese: every character of a script without spaces (Han, kana, Thai …) is a
word, other words and numbers are not split, full-width forms are folded (NFKC) and all punctuation is removed.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from multihead.metrics.bootstrap import Bootstrap, round_exact
from multihead.metrics.metric import BootstrapSample, Floats, Score
from multihead.metrics.precision_recall import ratio, with_intervals

By = Literal["words", "characters"]
PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")
# Scripts without spaces between words: Thai and Lao, Burmese, Khmer, kana, Han.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
PIECES = re.compile(rf"[^\W{UNSPACED}]+|\S")


def normalize_words(text: str, by: By = "words") -> list[str]:
    """Return the normalized words; equal lists are an exact match."""
    if by == "characters":
        folded = unicodedata.normalize("NFKC", text).lower()
        cleaned = "".join(" " if unicodedata.category(c).startswith("P") else c for c in folded)
        return [word for word in PIECES.findall(cleaned) if not ARTICLES.fullmatch(word)]
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def exact_and_f1(gold: Sequence[str], predicted: str | None, by: By = "words") -> tuple[bool, float]:
    """Return exact match and F1 of one question.

    No gold answer (or only ones without a word) and None or "" both mean "no answer": correct if both agree. SQuAD
    1.1's script differs only for gold answers without a word ("The"), which it retains.
    """
    words = normalize_words(predicted or "", by)
    references = [gold_words for gold_words in (normalize_words(answer, by) for answer in gold) if gold_words] or [[]]
    return words in references, max(_f1(reference, words) for reference in references)


def _f1(gold: list[str], predicted: list[str]) -> float:
    if not gold or not predicted:
        return float(gold == predicted)
    return 2 * (Counter(gold) & Counter(predicted)).total() / (len(gold) + len(predicted))


class SquadMetric:
    """Exact match and F1 in percent; a sample is a question."""

    def __init__(self, by: By = "words", replicates: int = 1000, seed: int = 0) -> None:
        if by not in ("words", "characters"):
            raise ValueError(f"by={by!r}: words or characters")
        self.by: By = by
        self.bootstrap = Bootstrap(6, replicates, seed)  # questions, exact, F1: with an answer, then without

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return self.bootstrap.bootstrap_sample

    def add(
        self,
        gold: Sequence[Sequence[str]],
        predicted: Sequence[str | None],
        index: ArrayLike | None = None,
    ) -> None:
        """Add the gold answers of each question (none: unanswerable), and the predicted answer (None: no answer)."""
        stats = np.zeros((len(gold), 2, 3))
        for row, (answers, answer) in enumerate(zip(gold, predicted, strict=True)):
            if isinstance(answers, str):
                raise ValueError(f"question {row}: gold is one string; use a list of answers")
            none = not any(normalize_words(gold_answer, self.by) for gold_answer in answers)
            stats[row, int(none)] = 1, *exact_and_f1(answers, answer, self.by)
        self.bootstrap.add(round_exact(stats).reshape(len(gold), 6), index)

    def merge(self, other: "SquadMetric") -> None:
        if self.by != other.by:
            raise ValueError(f"one counts by {self.by}, the other by {other.by}")
        self.bootstrap.merge(other.bootstrap)

    def result(self) -> dict[str, Score]:
        """Return exact and f1; where some questions have no answer also answerable.exact, answerable.f1,
        unanswerable.exact.
        """
        return with_intervals(self._values(self.bootstrap.total), self.replicates(), "percent")

    def replicates(self) -> dict[str, Floats]:
        return self.bootstrap.replicates(self._values)

    def _values(self, sums: Floats) -> dict[str, Floats]:
        groups = sums.reshape(*sums.shape[:-1], 2, 3)
        every = groups.sum(-2)
        values = {"exact": every[..., 1], "f1": every[..., 2]}
        shares = {name: 100 * ratio(value, every[..., 0], np.nan) for name, value in values.items()}
        if self.bootstrap.total[3]:
            n = groups[..., 0]
            shares["answerable.exact"] = 100 * ratio(groups[..., 0, 1], n[..., 0], np.nan)
            shares["answerable.f1"] = 100 * ratio(groups[..., 0, 2], n[..., 0], np.nan)
            shares["unanswerable.exact"] = 100 * ratio(groups[..., 1, 1], n[..., 1], np.nan)
        return shares
