"""BLEU and chrF as sacreBLEU computes them (Post 2018; Popović 2015), streaming and with confidence intervals.

sacreBLEU tokenizes and counts n-grams sentence by sentence; sums of these counts are all that either score needs. Its
`signature` accompanies every number: without it, two BLEU scores cannot be compared.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from multihead.metrics.metric import Floats
from multihead.metrics.precision_recall import ratio
from multihead.metrics.text_metric import TextMetric

ORDERS, LETTERS, BETA = 4, 6, 2  # n-grams of words in BLEU, of characters in chrF; recall counts BETA times in chrF
TOKENIZERS = {"zh": "zh", "ja": "char", "ko": "char", "th": "char"}  # by target language; others: 13a
WIDTH = 2 + 2 * ORDERS


class BleuMetric(TextMetric):
    """BLEU and chrF in percent; a sample is a sentence with one or several references.

    language: the target language; it selects sacreBLEU's tokenizer, unless `tokenize` names it ("none": already split).
    lowercase: both scores ignore case.
    """

    def __init__(
        self,
        language: str = "",
        *,
        tokenize: str | None = None,
        lowercase: bool = False,
        replicates: int = 1000,
        seed: int = 0,
    ) -> None:
        self.tokenize = tokenize or TOKENIZERS.get(re.split(r"[-_]", language.lower())[0], "13a")
        self.lowercase = lowercase
        self._bleu, self._chrf = _counters(self.tokenize, lowercase)
        super().__init__(WIDTH + 3 * LETTERS, replicates, seed)
        self.references: set[int] = set()  # number of references of a sentence

    def counts(self, references: Sequence[str], hypothesis: str) -> Sequence[float]:
        self.references.add(len(references))
        return [*_statistics(self._bleu, references, hypothesis), *_statistics(self._chrf, references, hypothesis)]

    def merge(self, other: "BleuMetric") -> None:
        if (self.tokenize, self.lowercase) != (other.tokenize, other.lowercase):
            raise ValueError(f"one splits by {self.tokenize}, the other by {other.tokenize}, or one ignores case")
        self.bootstrap.merge(other.bootstrap)
        self.references |= other.references

    def values(self, sums: Floats) -> dict[str, Floats]:
        return {"bleu": bleu(sums[..., :WIDTH]), "chrf": chrf(sums[..., WIDTH:])}

    def signatures(self) -> dict[str, str]:
        signatures = {}
        for name, counter in (("bleu", self._bleu), ("chrf", self._chrf)):
            counter.num_refs = next(iter(self.references)) if len(self.references) == 1 else -1
            signatures[name] = str(counter.get_signature())
        return signatures


def bleu(sums: Floats) -> Floats:
    """Return BLEU in percent [...] from sums [..., 10]: length, reference length, matches and n-grams of orders 1 to 4.

    No match of an order counts as 1/2, 1/4, … of one (sacreBLEU's "exp" smoothing); no match at all is 0.
    """
    length, reference_length = sums[..., 0], sums[..., 1]
    right, total = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    halvings = np.cumsum((right == 0) & (total > 0), axis=-1)
    precisions = ratio(np.where(right == 0, 0.5**halvings, right), total)
    defined = (total > 0).all(-1) & (right > 0).any(-1)
    logs = np.log(np.where(precisions > 0, precisions, 1.0)).mean(-1)
    brevity = np.exp(np.minimum(0.0, 1 - ratio(reference_length, length)))
    return np.where(defined, 100 * brevity * np.exp(logs), 0.0)


def chrf(sums: Floats) -> Floats:
    """Return chrF in percent [...] from sums [..., 18]: per order, n-grams of the hypothesis, of the reference, of
    both.
    """
    generated, expected, both = np.moveaxis(sums.reshape(*sums.shape[:-1], LETTERS, 3), -1, 0)
    there = (generated > 0) & (expected > 0)
    orders = there.sum(-1)
    precision = ratio(np.where(there, ratio(both, generated), 0.0).sum(-1), orders)
    recall = ratio(np.where(there, ratio(both, expected), 0.0).sum(-1), orders)
    return 100 * ratio((1 + BETA**2) * precision * recall, BETA**2 * precision + recall)


def _statistics(counter: Any, references: Sequence[str], hypothesis: str) -> list[int]:
    """Return one sentence's counts, by sacreBLEU's own functions."""
    info = counter._extract_reference_info([counter._preprocess_segment(text) for text in references])
    counts: list[int] = counter._compute_segment_statistics(counter._preprocess_segment(hypothesis), info)
    return counts


def _counters(tokenize: str, lowercase: bool) -> tuple[Any, Any]:
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        raise ValueError("BLEU and chrF need a package; run pip install 'multihead[scores]'") from None
    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(
            f"tokenize={tokenize!r} is unknown to sacreBLEU; use one of {', '.join(sorted(BLEU.TOKENIZERS))}"
        )
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=True), CHRF(lowercase=lowercase)
