"""ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004): F1 of shared words, word pairs, and the longest common subsequence.

English as in Google's rouge-score: lower case, words of a-z and 0-9. `by="characters"` for other scripts, as is usual
for Chinese: every Han, kana or Thai character is a word, words of other scripts and numbers stay in one part,
punctuation is removed. Of several references, each score takes the best one.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from multihead.metrics.metric import Floats
from multihead.metrics.precision_recall import ratio
from multihead.metrics.squad import PIECES, By
from multihead.metrics.text_metric import TextMetric

NAMES = ("rouge1", "rouge2", "rougeL")
WORDS = re.compile("[a-z0-9]+")


class RougeMetric(TextMetric):
    """rouge1, rouge2 and rougeL in percent: the mean F1 of the texts; a sample is a text with one or several
    references.

    stem: stem English words first, as the original script's -m does (needs rouge-score).
    """

    def __init__(self, by: By = "words", *, stem: bool = False, replicates: int = 1000, seed: int = 0) -> None:
        if by not in ("words", "characters"):
            raise ValueError(f"by={by!r}: words or characters")
        if stem and by == "characters":
            raise ValueError("stem=True speaks of English words; leave it out with by='characters'")
        self.by: By = by
        self.stem = stem
        self._stems = _stemmer() if stem else None
        super().__init__(1 + len(NAMES), replicates, seed)  # texts, and the sums of their F1

    def counts(self, references: Sequence[str], hypothesis: str) -> Sequence[float]:
        words = self.words(hypothesis)
        return [1.0, *np.max([rouge(self.words(text), words) for text in references], axis=0)]

    def words(self, text: str) -> list[str]:
        if self.by == "characters":
            folded = unicodedata.normalize("NFKC", text).lower()
            return PIECES.findall("".join(" " if unicodedata.category(c)[0] == "P" else c for c in folded))
        return WORDS.findall(text.lower()) if self._stems is None else self._stems(text)

    def merge(self, other: "RougeMetric") -> None:
        if (self.by, self.stem) != (other.by, other.stem):
            raise ValueError(f"one counts by {self.by} (stem={self.stem}), the other by {other.by}")
        self.bootstrap.merge(other.bootstrap)

    def values(self, sums: Floats) -> dict[str, Floats]:
        return {name: 100 * ratio(sums[..., 1 + i], sums[..., 0]) for i, name in enumerate(NAMES)}

    def signatures(self) -> dict[str, str]:
        return dict.fromkeys(NAMES, f"by:{self.by}|stem:{'yes' if self.stem else 'no'}|refs:best")


def rouge(gold: Sequence[str], hypothesis: Sequence[str]) -> tuple[float, float, float]:
    """Return F1 of words, word pairs, and the longest common subsequence of two texts."""
    singles, pairs = Counter(gold) & Counter(hypothesis), Counter(_pairs(gold)) & Counter(_pairs(hypothesis))
    return (
        _f1(singles.total(), len(gold), len(hypothesis)),
        _f1(pairs.total(), len(gold) - 1, len(hypothesis) - 1),
        _f1(lcs_length(gold, hypothesis), len(gold), len(hypothesis)),
    )


def lcs_length(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the longest common subsequence; rows of the table are bits of one number (Hyyrö 2004)."""
    where: dict[str, int] = {}
    for place, word in enumerate(a):
        where[word] = where.get(word, 0) | 1 << place
    full = (1 << len(a)) - 1
    row = full
    for word in b:
        hit = row & where.get(word, 0)
        row = ((row + hit) | (row - hit)) & full
    return len(a) - row.bit_count()


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    return list(pairwise(words))


def _f1(both: int, gold: int, predicted: int) -> float:
    return 2 * both / (gold + predicted) if both else 0.0


def _stemmer() -> Callable[[str], list[str]]:
    try:
        from rouge_score.tokenizers import DefaultTokenizer
    except ImportError:
        raise ValueError("stem=True needs a package; run pip install 'multihead[scores]'") from None
    stems: Callable[[str], list[str]] = DefaultTokenizer(use_stemmer=True).tokenize
    return stems
