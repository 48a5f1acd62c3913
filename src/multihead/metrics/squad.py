"""Exact match and F1 of answers, as SQuAD's own evaluator counts them (Rajpurkar et al. 2016; with "no
answer", 2018).

Lower case, no ASCII punctuation, no a/an/the, single spaces; then equality, and F1 of the bags of words;
the best over the gold answers. `by="characters"` for Chinese: every character of a script without spaces (Han, kana,
Thai …) is a word, other words and numbers stay whole, full-width forms are folded (NFKC) and all punctuation goes.
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
    """The normalised words; equal lists are an exact match."""
    if by == "characters":
        folded = unicodedata.normalize("NFKC", text).lower()
        kept = "".join(" " if unicodedata.category(c).startswith("P") else c for c in folded)
        return [piece for piece in PIECES.findall(kept) if not ARTICLES.fullmatch(piece)]
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def exact_and_f1(gold: Sequence[str], predicted: str | None, by: By = "words") -> tuple[bool, float]:
    """Of one question. No gold answer (or only ones without a word) and None or "" both mean "no answer":
    right if both say so. SQuAD 1.1's script differs only for gold answers without a word ("The"), which it
    keeps."""
    said = normalize_words(predicted or "", by)
    rights = [words for words in (normalize_words(answer, by) for answer in gold) if words] or [[]]
    return said in rights, max(_f1(right, said) for right in rights)


def _f1(gold: list[str], predicted: list[str]) -> float:
    if not gold or not predicted:
        return float(gold == predicted)
    return 2 * (Counter(gold) & Counter(predicted)).total() / (len(gold) + len(predicted))


class SquadMetric:
    """A sample is a question. Percent, as the field prints them."""

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
        """Gold answers of each question (none: unanswerable), and the answer given (None: none)."""
        stats = np.zeros((len(gold), 2, 3))
        for row, (answers, said) in enumerate(zip(gold, predicted, strict=True)):
            if isinstance(answers, str):
                raise ValueError(f"question {row}: gold is a list of answers, not one string")
            none = not any(normalize_words(answer, self.by) for answer in answers)
            stats[row, int(none)] = 1, *exact_and_f1(answers, said, self.by)
        self.bootstrap.add(round_exact(stats).reshape(len(gold), 6), index)

    def merge(self, other: "SquadMetric") -> None:
        if self.by != other.by:
            raise ValueError(f"one counts by {self.by}, the other by {other.by}")
        self.bootstrap.merge(other.bootstrap)

    def result(self) -> dict[str, Score]:
        """exact, f1; where some questions have no answer also answerable.exact, answerable.f1,
        unanswerable.exact"""
        return with_intervals(self._values(self.bootstrap.total), self.replicates(), "percent")

    def replicates(self) -> dict[str, Floats]:
        return self.bootstrap.replicates(self._values)

    def _values(self, sums: Floats) -> dict[str, Floats]:
        halves = sums.reshape(*sums.shape[:-1], 2, 3)
        every = halves.sum(-2)
        values = {"exact": every[..., 1], "f1": every[..., 2]}
        shares = {name: 100 * ratio(value, every[..., 0], np.nan) for name, value in values.items()}
        if self.bootstrap.total[3]:
            n = halves[..., 0]
            shares["answerable.exact"] = 100 * ratio(halves[..., 0, 1], n[..., 0], np.nan)
            shares["answerable.f1"] = 100 * ratio(halves[..., 0, 2], n[..., 0], np.nan)
            shares["unanswerable.exact"] = 100 * ratio(halves[..., 1, 1], n[..., 1], np.nan)
        return shares
