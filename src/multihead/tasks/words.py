"""Words and where they stand: in raw text, in text made of words, among tokens, and among their neighbours."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multihead.tasks.task import Values, Window

# A word of raw text: letters and digits together, any other sign and every Han, kana or hangul character alone.
HAN = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORDS = re.compile(rf"[^\W{HAN}]+|\S")
# How a word is written, as a token type. Type 0 stands for lower case, so that nothing changes for such words; type 1
# is BERT's second sentence.
CAPITAL, CAPITALS, MIXED, DIGITS = 2, 3, 4, 5


def laid_out(values: Values) -> tuple[list[str], str, list[tuple[int, int]]]:
    """Words, the text, and where in it each word stands. Raw text is cut into words, words are joined to text."""
    if "tokens" in values:
        words = list(values["tokens"])
        text, places = joined(words)
        return words, text, places
    text = values["text"]
    found = list(WORDS.finditer(text))
    return [m.group() for m in found], text, [m.span() for m in found]


def apart(text: str, places: Sequence[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """Raw text as files of words give it, and its words' places there: marks stand apart from the word that they
    follow or open ("Rome." is "Rome ."), unless they stand within one (U.S, don't, 3.5)."""
    found, moved = "", []
    for number, (start, end) in enumerate(places):
        if number:
            last = places[number - 1]
            inside = last[1] == start and (_within(text, start, end) or _within(text, *last))
            if not inside and not _unspaced(text[last[1] - 1], text[start]):
                found += " "
        moved.append((len(found), len(found) + end - start))
        found += text[start:end]
    return found, moved


def _within(text: str, start: int, end: int) -> bool:
    """Is a mark of one sign between two letters or digits?"""
    sides = text[start - 1 : start], text[end : end + 1]
    return end - start == 1 and not text[start].isalnum() and all(side.isalnum() for side in sides)


def _unspaced(before: str, after: str) -> bool:
    return bool(re.match(f"[{HAN}]", before) and re.match(f"[{HAN}]", after))


def joined(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Words with a space between them, but none between two Chinese or Japanese ones."""
    text, places = "", []
    for word in words:
        if text and not _unspaced(text[-1], word):
            text += " "
        places.append((len(text), len(text) + len(word)))
        text += word
    return text, places


def word_of(offsets: Sequence[tuple[int, int]], places: Sequence[tuple[int, int]]) -> NDArray[Any]:
    """The word that each token stands in, -1: none."""
    if not places or not offsets:
        return np.full(len(offsets), -1)
    starts, ends = (np.array(side) for side in zip(*places, strict=True))
    # The middle of a token: some tokenizers count the space before a word as part of its first token.
    last = np.array([max(b - 1, a) for a, b in offsets])
    word = np.searchsorted(starts, last, side="right") - 1
    return np.where((word >= 0) & (last < ends[word]), word, -1)


def written(word: str) -> int:
    if any(c.isdigit() for c in word):
        return DIGITS
    if word.lower() == word:
        return 0
    if word.upper() == word and len(word) > 1:
        return CAPITALS
    return CAPITAL if word[0].isupper() and word[1:] == word[1:].lower() else MIXED


def _document(values: Values) -> tuple[bool, object]:
    """Whether a row stands alone, and what it is a part of: a document of its file."""
    alone = "tokens" not in values or values.get("document", 0) is None
    return alone, (values.get("file"), values.get("document", 0))


@dataclass(eq=False)
class Shown:
    """Sentences of a document that are read together, amid the words before and after them."""

    before: list[str]
    words: list[str] = field(default_factory=list)
    tags: list[str] | None = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    windows: list[Window] | None = None  # encoded once for all of them

    def take(self, values: Values) -> int:
        """A sentence more; where its words begin."""
        at = len(self.words)
        self.words += values["tokens"]
        self.tags = None if self.tags is None or "tags" not in values else [*self.tags, *values["tags"]]
        return at


def neighbours(rows: Iterable[Values], count: int) -> Iterator[Values]:
    """Each sentence with at least `count` words of its document before and after it, where there are as many.

    Sentences that stand together, up to `count` words of them, are shown together: `shown` is the same for all of
    them, and their own words begin `at` a place in it. So a word is read about three times, however short sentences
    are. Sentences that name no document are all of one; a row whose document is None, or that is raw text, stands
    alone.
    """
    past: list[str] = []
    waiting: deque[tuple[Shown, list[Values]]] = deque()
    document: object = object()

    def ready(everything: bool) -> Iterator[Values]:
        while waiting:
            shown, held = waiting[0]
            after = [word for later, _ in islice(waiting, 1, None) for word in later.words]
            if len(after) < count and not everything:
                return
            shown.after = after[:count]
            waiting.popleft()
            yield from held

    for values in rows:
        alone, mine = _document(values)
        if alone or mine != document:
            yield from ready(True)
            past, document = [], object() if alone else mine
        if alone:
            yield values  # at once: a person may be waiting for it
            continue
        if not waiting or len(waiting[-1][0].words) + len(values["tokens"]) > count:
            waiting.append((Shown(past[-count:]), []))
        shown, held = waiting[-1]
        held.append({**values, "shown": shown, "at": shown.take(values)})
        past = (past + list(values["tokens"]))[-count:]
        yield from ready(False)
    yield from ready(True)


def stretches(rows: Iterable[Values], count: int) -> Iterator[Values]:
    """Tagged sentences of a document joined into rows of up to `count` words; a longer sentence is one by itself.

    What is a document, and what stands alone, is as with `neighbours`.
    """
    held: list[Values] = []
    document, words = object(), 0

    def joint() -> Values:
        names = [name for name in ("tokens", "tags", "belief") if name in held[0]]
        together = {name: [part for values in held for part in values[name]] for name in names}
        return {**held[0], **together}

    for values in rows:
        alone, mine = _document(values)
        if held and (alone or mine != document or words + len(values["tokens"]) > count):
            yield joint()
            held, words = [], 0
        if alone:
            yield values
        else:
            held.append(values)
            document, words = mine, words + len(values["tokens"])
    if held:
        yield joint()
