"""Word and character error rates (WER, CER): edits between recognized text and reference, per reference word.

Texts are normalized first, and the signature says how. "none": as they are, words divided by whitespace. "basic": NFKC,
lower case, punctuation and symbols to spaces. "english": basic, and apostrophes stay inside words (don't). Chinese,
Japanese and Thai have no spaces: read their CER.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

from multihead.metrics.bootstrap import percentile
from multihead.metrics.metric import Floats, Score
from multihead.metrics.precision_recall import ratio
from multihead.metrics.text_metric import TextMetric

Normalization = Literal["none", "basic", "english"]


class SpeechErrors(TextMetric):
    """wer and cer in percent, lower is better, and the share of sentences with an error; sums over the whole set.

    Of several references, the one with the fewest word edits counts.
    """

    def __init__(self, normalization: Normalization = "basic", *, replicates: int = 1000, seed: int = 0) -> None:
        if normalization not in ("none", "basic", "english"):
            raise ValueError(f"normalization={normalization!r}: none, basic or english")
        self.normalization: Normalization = normalization
        super().__init__(6, replicates, seed)

    def counts(self, references: Sequence[str], said: str) -> Sequence[float]:
        text = normalize_speech(said, self.normalization)
        rows = [self._compare(normalize_speech(reference, self.normalization), text) for reference in references]
        return min(rows, key=lambda row: row[0])

    @staticmethod
    def _compare(gold: str, text: str) -> list[float]:
        words, wrong = gold.split(), count_edits(gold.split(), text.split())
        return [wrong, len(words), count_edits(gold, text), len(gold), float(wrong > 0), 1.0]

    def merge(self, other: SpeechErrors) -> None:
        if self.normalization != other.normalization:
            raise ValueError(f"one normalizes as {self.normalization}, the other as {other.normalization}")
        self.bootstrap.merge(other.bootstrap)

    def values(self, sums: Floats) -> dict[str, Floats]:
        names = ("wer", "cer", "sentence_errors")
        return {name: 100 * ratio(sums[..., 2 * i], sums[..., 2 * i + 1]) for i, name in enumerate(names)}

    def signatures(self) -> dict[str, str]:
        return dict.fromkeys(("wer", "cer", "sentence_errors"), f"normalization:{self.normalization}")

    def result(self) -> dict[str, Score]:
        drawn, signed = self.replicates(), self.signatures()
        return {
            name: Score(float(value), "percent", "lower", percentile(drawn[name]) if drawn else None, signed[name])
            for name, value in self.values(self.bootstrap.total).items()
        }


def normalize_speech(text: str, normalization: Normalization = "basic") -> str:
    """Return the text as it is compared, with single spaces."""
    if normalization != "none":
        text = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
        text = "".join(sign if _counts(sign, normalization) else " " for sign in text)
        if normalization == "english":
            text = re.sub(r"(?<!\w)'|'(?!\w)", " ", text)
    return " ".join(text.split())


def _counts(sign: str, normalization: Normalization) -> bool:
    return unicodedata.category(sign)[0] not in "PSC" or (sign == "'" and normalization == "english")


def count_edits(gold: Sequence[str], text: Sequence[str]) -> int:
    """Return the fewest insertions, deletions and substitutions between two sequences (Levenshtein)."""
    if len(gold) < len(text):
        gold, text = text, gold
    row = list(range(len(text) + 1))
    for i, item in enumerate(gold, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(text, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (item != other))
    return row[-1]
