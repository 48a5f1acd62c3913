"""Passages that two sides of the data share: texts may all differ, and still be pieces of the same ones."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field

WORDS = 5
MOST = 1 << 18  # that are kept, in about 20 MB; of more, those with the lowest hashes
UNIT = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]|\\w+")  # a word, or a sign of scripts without spaces


@dataclass(slots=True)
class Passages:
    """The different runs of five words of some texts, as hashes; of very many, a sample that has as many of any
    other texts' runs as all of them would."""

    hashes: set[int] = field(default_factory=set)
    below: int = 1 << 32

    def add(self, text: str) -> None:
        units = UNIT.findall(text.casefold())
        for at in range(len(units) - WORDS + 1):
            place = zlib.crc32(" ".join(units[at : at + WORDS]).encode("utf-8", "surrogatepass"))
            if place < self.below:
                self.hashes.add(place)
        while len(self.hashes) > MOST:
            self.below //= 2
            self.hashes = {place for place in self.hashes if place < self.below}

    def shared(self, *others: Passages) -> float:
        """The share of these that stand in any of the others too."""
        below = min(some.below for some in (self, *others))
        mine = {place for place in self.hashes if place < below}
        return len(mine & set().union(*(other.hashes for other in others))) / max(1, len(mine))
