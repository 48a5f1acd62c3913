"""Overlap of passages between splits: texts may all differ and still be parts of the same documents."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

WORDS = 5
FLATTERS = 0.5  # share of a split's n-grams that also occur in train
ENOUGH = 50  # n-grams, for a share to be meaningful
GLANCE, ROWS = 1 << 19, 1 << 17  # n-grams and texts of a split that are examined before training
MOST = 1 << 18  # stored, in about 20 MB; beyond it, those with the lowest hashes
UNIT = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]|\\w+")  # a word, or a character of scripts without spaces


@dataclass(slots=True)
class NgramSet:
    """The distinct 5-grams of some texts, as hashes; of very many, an unbiased sample."""

    hashes: set[int] = field(default_factory=set)
    below: int = 1 << 32
    read: int = 0

    def add(self, text: str) -> None:
        units = UNIT.findall(text.casefold())
        self.read += max(0, len(units) - WORDS + 1)
        for at in range(len(units) - WORDS + 1):
            place = zlib.crc32(" ".join(units[at : at + WORDS]).encode("utf-8", "surrogatepass"))
            if place < self.below:
                self.hashes.add(place)
        while len(self.hashes) > MOST:
            self.below //= 2
            self.hashes = {place for place in self.hashes if place < self.below}

    def shared_ratio(self, *others: NgramSet) -> float:
        """Return the share of these n-grams that also occur in any of the others."""
        below = min(ngrams.below for ngrams in (self, *others))
        sampled = {place for place in self.hashes if place < below}
        return len(sampled & set().union(*(ngrams.hashes for ngrams in others))) / max(1, len(sampled))

    def warning(self, name: str, *train: NgramSet) -> str:
        """Return a warning about the overlap with train, or ""."""
        share = self.shared_ratio(*train)
        if share <= FLATTERS or len(self.hashes) < ENOUGH:
            return ""
        return (
            f"{name}: {share:.0%} of its 5-grams also occur in train: parts of the same documents are in both splits, "
            "so its scores are too high; use files of other documents"
        )


def sample_ngrams(texts: Iterable[str]) -> NgramSet:
    """Return the n-grams of the first texts, which at most underestimate the overlap."""
    ngrams = NgramSet()
    for text in islice(texts, ROWS):
        ngrams.add(text)
        if ngrams.read > GLANCE:
            break
    return ngrams
