"""The letters that entity tags are written with, so that answers can be given as the user's own data has them.

| letters | begin, inside, last, single | known as |
|---|---|---|
| BIIB | B I I B | BIO, IOB2 |
| IIII | I I I I, and B behind an entity of the same type | IOB1 |
| BILU | B I L U | BILOU |
| BIES | B I E S | BIOES, IOBES |
| BMES, BMEW | B M E S, B M E W | BMES, BMEWO |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from multihead.data.readers.tag_schemes import CLOSERS, TagCounts, is_span_tag, split_tag

BIO, IOB1 = "BIIB", "IIII"
CLOSED = ("BILU", "BIES", "BMES", "BMEW")  # those that mark where an entity ends
NOTATIONS = (BIO, IOB1, *CLOSED)


@dataclass(frozen=True, slots=True)
class TagNotation:
    """How the tags of an entity are written: the letters of its begin, inside, last and only token."""

    letters: str = BIO

    def __post_init__(self) -> None:
        if self.letters not in NOTATIONS:
            raise ValueError(f"unknown notation {str(self.letters)[:40]!r}; there are: {', '.join(NOTATIONS)}")

    def write(self, bio: Sequence[str]) -> list[str]:
        """Return BIO tags in these letters; an I- that continues nothing begins an entity, as conlleval reads it."""
        parts = [("O", ""), *(split_tag(tag) for tag in bio), ("O", "")]
        written = []
        for tag, before, (letter, kind), after in zip(bio, parts, parts[1:], parts[2:], strict=False):
            if letter not in ("B", "I"):
                written.append(tag)
                continue
            adjoins = before[0] in ("B", "I") and before[1] == kind
            begins, ends = letter == "B" or not adjoins, after != ("I", kind)
            chosen = self.letters[(3 if ends else 0) if begins else (2 if ends else 1)]
            if self.letters == IOB1 and begins and adjoins:
                chosen = "B"
            written.append(f"{chosen}-{kind}" if kind else chosen)
        return written


def choose_notation(survey: TagCounts, default: str = BIO) -> str:
    """Return the letters of most surveyed tags; `default` where they are not conclusive."""
    if not survey.letters:
        return default
    if survey.evidence["closed"] > survey.evidence["left open"]:
        if CLOSERS & set(default) and set(survey.letters) <= set(default):
            return default
        return max(CLOSED, key=lambda letters: sum(survey.letters[letter] for letter in letters))
    return IOB1 if survey.evidence["I opens"] > survey.evidence["B opens"] else BIO


def are_bio(tags: Sequence[str]) -> bool:
    """Return whether these are BIO span tags, with types or without, and not parts of speech or similar."""
    return all(is_span_tag(tag) and split_tag(tag)[0] in ("O", "B", "I") for tag in tags)
