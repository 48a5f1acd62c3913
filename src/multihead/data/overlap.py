"""Passages that two sides of the data share: texts may all differ, and still be pieces of the same ones."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

WORDS = 5
FLATTERS = 0.5  # of a side's runs of words, that stand in train too
ENOUGH = 50  # runs of words, for a share of them to mean something
GLANCE, ROWS = 1 << 19, 1 << 17  # runs of words and texts of a side that are looked at before training begins
MOST = 1 << 18  # that are kept, in about 20 MB; of more, those with the lowest hashes
UNIT = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]|\\w+")  # a word, or a sign of scripts without spaces


@dataclass(slots=True)
class NgramSet:
    """The different runs of five words of some texts, as hashes; of very many, a sample that has as many of any
    other texts' runs as all of them would."""

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
        """The share of these that stand in any of the others too."""
        below = min(some.below for some in (self, *others))
        mine = {place for place in self.hashes if place < below}
        return len(mine & set().union(*(other.hashes for other in others))) / max(1, len(mine))

    def warning(self, name: str, *train: NgramSet) -> str:
        """What is to be told of them, or nothing."""
        share = self.shared_ratio(*train)
        if share <= FLATTERS or len(self.hashes) < ENOUGH:
            return ""
        return (
            f"{name}: {share:.0%} of its runs of five words also stand in train: pieces of the same texts lie on both "
            "sides, and scores on them flatter; name files of other texts"
        )


def sample_ngrams(texts: Iterable[str]) -> NgramSet:
    """Those of the first texts: what they share with others is at most too low."""
    found = NgramSet()
    for text in islice(texts, ROWS):
        found.add(text)
        if found.read > GLANCE:
            break
    return found
