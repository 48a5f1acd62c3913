"""Tag schemes: detect the scheme of a file, and convert it to BIO.

| scheme | an entity of one token | of three | two adjacent of one type |
|---|---|---|---|
| IOB1 | I | I I I | B opens the second |
| BIO (IOB2) | B | B I I | B |
| BILOU, BIOES | U, S | B I L, B I E | |
| BMES | S (or W) | B M E | |
| plain | no prefixes: parts of speech and similar | | |
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

TAG = re.compile(r"([A-Z])[-_](.+)")
ALPHABETS = {"BIO": "BI", "BILOU": "BILU", "BIOES": "BIES", "BMES": "BMESW"}
SCHEMES = ("IOB1", "BIO", "BILOU", "BMES", "plain")
LETTERS = frozenset("BILUESMW")
SAME = {"L": "L", "E": "L", "U": "U", "S": "U", "W": "U", "B": "B", "I": "I", "M": "I"}
RARE = 0.05  # of all entity starts: fewer than this written the other way are slips, more are a mixed file
CLOSERS = frozenset("LEUSW")  # letters that end an entity in schemes that mark its end
COVERED = 0.99  # of the tags, by the letters of one scheme


def named_scheme(name: str) -> str:
    """Return a scheme by one of its names, in any case."""
    names = {scheme.casefold(): scheme for scheme in SCHEMES} | {"iob2": "BIO", "bioes": "BILOU", "iobes": "BILOU"}
    if name.casefold() not in names:
        raise ValueError(f"unknown scheme {name!r}; use {', '.join(SCHEMES)}")
    return names[name.casefold()]


@lru_cache(1 << 16)
def split_tag(tag: str) -> tuple[str, str]:
    """Split B-LOC -> (B, LOC); O -> (O, ''); B, I, M … alone (word segmentation) -> (B, '')."""
    if match := TAG.fullmatch(tag):
        return match[1], match[2]
    return tag, ""


@lru_cache(1 << 16)
def is_span_tag(tag: str) -> bool:
    return tag == "O" or split_tag(tag)[0] in LETTERS


@dataclass(slots=True)
class TagCounts:
    """Counts over all tags of a file; `first`: the line of the first evidence of each kind."""

    letters: Counter[str] = field(default_factory=Counter)
    evidence: Counter[str] = field(default_factory=Counter)  # 'I opens', 'B opens': see `add`
    first: dict[str, int] = field(default_factory=dict)
    tags: int = 0
    spans: int = 0

    def add(self, tags: Iterable[tuple[int, str]]) -> None:
        """Add one sentence of (line, tag)."""
        before = ("O", "")
        for line, tag in tags:
            letter, kind = split_tag(tag)
            self.tags += 1
            self.spans += is_span_tag(tag)
            if letter in LETTERS:
                self.letters[letter] += 1
                self.first.setdefault(letter, line)
                # After O, the border or another type: IOB1 opens with I, BIO with B.
                if (before[0] == "O" or before[1] != kind) and letter in "BI":
                    self.evidence[f"{letter} opens"] += 1
                    self.first.setdefault(f"{letter} opens", line)
            self._close(before[0], letter, line)
            before = (letter, kind)
        self._close(before[0], "O", 0)

    def _close(self, before: str, letter: str, line: int) -> None:
        """Count entities that end without a marker, as in BIO, and end markers of BILOU or BMES."""
        if before in ("B", "I", "M") and letter not in ("I", "M", "L", "E"):
            self.evidence["left open"] += 1
        if letter in CLOSERS:
            self.evidence["closed"] += 1
            self.first.setdefault("closed", line)


def detect_scheme(survey: TagCounts, file: str) -> str:
    """Return the scheme that explains the file; a file that mixes two raises with both places."""
    if survey.spans < survey.tags / 2:
        return "plain"
    total = survey.letters.total()
    if not total:
        return "BIO"
    open_ends, closed = survey.evidence["left open"], survey.evidence["closed"]
    if closed <= RARE * (open_ends + closed):  # a few sentences of another scheme are rejected, each with its line
        return _iob1_or_bio(survey, file)
    if open_ends > closed:  # where fewer do not close, their sentences are rejected: `check` and training count them
        raise _mixed_schemes_error(survey, file, survey.first["closed"])
    covered = {name: sum(survey.letters[c] for c in alphabet) / total for name, alphabet in ALPHABETS.items()}
    name = max(covered, key=lambda name: covered[name])  # the first, so the smallest, among equals
    if covered[name] < COVERED:
        raise _mixed_schemes_error(
            survey, file, min(survey.first[c] for c in survey.letters if c not in ALPHABETS[name])
        )
    if name == "BIO":
        return _iob1_or_bio(survey, file)
    return "BILOU" if name == "BIOES" else name


def _mixed_schemes_error(survey: TagCounts, file: str, line: int) -> ValueError:
    places = ", ".join(f"{c}- ({n}, first at {file}:{survey.first[c]})" for c, n in survey.letters.most_common())
    return ValueError(
        f"{file}:{line}: the tags mix schemes: {places}; fix the file, or set "
        'ner.scheme = "BIO", "BILOU" or "BMES" (sentences with other tags are then rejected)'
    )


def _iob1_or_bio(survey: TagCounts, file: str) -> str:
    inside, begin = survey.evidence["I opens"], survey.evidence["B opens"]
    if inside <= RARE * (inside + begin):
        return "BIO"
    if begin <= RARE * (inside + begin):
        return "IOB1"
    raise ValueError(
        f"{file}:{survey.first['I opens']}: IOB1 or BIO? {inside} entities open with I- (first here) and {begin} "
        f"with B- where IOB1 would write I- (first at {file}:{survey.first['B opens']}); fix the file, "
        'or set ner.scheme = "IOB1" or "BIO" (both are then read as conlleval does)'
    )


TagError = tuple[int, str, str]  # position in the sentence, code, reason


def to_bio(tags: Sequence[str], scheme: str) -> tuple[list[str], list[TagError], TagError | None]:
    """Return BIO tags, the tolerated slips, and the fault that makes the sentence unusable, if any.

    conlleval's tolerance: I- that continues nothing opens an entity. In IOB1 that is the rule, in BIO a slip.
    """
    if scheme == "plain":
        return list(tags), [], None
    alphabet = {"IOB1": "BI", "BIO": "BI", "BILOU": "BILUES", "BMES": "BMESW"}[scheme]
    for i, tag in enumerate(tags):
        letter, kind = split_tag(tag)
        if tag != "O" and letter not in alphabet:
            expected = ", ".join(alphabet if len(letter) == 1 else [f"{c}-TYPE" for c in alphabet])
            return (
                [],
                [],
                (i, "unknown tag prefix", f"unknown tag {tag!r} in a {scheme} file; a tag is O or {expected}"),
            )
        if letter in alphabet and len(tag) > 1 and not kind.strip():
            return [], [], (i, "unknown tag prefix", f"the tag {tag!r} has no type")
    if scheme in ("IOB1", "BIO"):
        return (*_from_iob(tags, scheme), None)
    return _from_closed(tags)


def _join(letter: str, kind: str) -> str:
    return f"{letter}-{kind}" if kind else letter


def _from_iob(tags: Sequence[str], scheme: str) -> tuple[list[str], list[TagError]]:
    bio, slips, before = [], [], ("O", "")
    for i, tag in enumerate(tags):
        letter, kind = split_tag(tag)
        opens = letter == "I" and (before[0] == "O" or before[1] != kind)
        if opens and scheme == "BIO":
            slips.append((i, "I- opens an entity", f"{tag} after {_join(*before)} in a BIO file, read as B-{kind}"))
        bio.append("O" if tag == "O" else _join("B" if opens else letter, kind))
        before = (letter, kind)
    return bio, slips


def _from_closed(tags: Sequence[str]) -> tuple[list[str], list[TagError], TagError | None]:
    """Convert BILOU and similar; an entity that is not opened or not closed is a fault, since its extent is unknown."""
    bio: list[str] = []
    open_kind: str | None = None
    for i, tag in enumerate([*tags, "O"]):
        letter, kind = split_tag(tag)
        letter = SAME.get(letter, letter)
        continues = letter in "IL"
        if continues != (open_kind is not None) or (continues and kind != open_kind):
            at = min(i, len(tags) - 1)
            what = f"{tag} without its B" if open_kind is None else f"B-{open_kind} is not closed before {tag}"
            if i == len(tags):
                what = f"B-{open_kind} is not closed at the sentence's end"
            return [], [], (at, "broken tag sequence", f"{what}; fix the tags")
        bio.append("O" if tag == "O" else _join("I" if continues else "B", kind))
        open_kind = kind if letter in "BI" else None
    return bio[:-1], [], None
