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
UNSPACED = re.compile(rf"[{HAN}\u2e80-\u2fdf\u3000-\u303f\uff00-\uff9f]")
# Marks that stand without a space behind a word, before one, and what a word is shortened to.
CLOSING = re.compile(r"[.,;:?!%)\]}\u2019\u201d\u00bb\u2026]+|\.\.\.|''")
OPENING = re.compile(r"[(\[{$\u00a3\u20ac#\u2018\u201c\u00ab]|``")
CONTRACTION = re.compile(r"(?:['\u2019](?:s|m|d|ll|re|ve)?|n['\u2019]t)", re.IGNORECASE)
PAUSES = ",;:.?!"  # behind them, the next word stands apart
# How a word is written, as a token type. Type 0 stands for lower case, so that nothing changes for such words; type 1
# is BERT's second sentence.
CAPITAL, CAPITALS, MIXED, DIGITS = 2, 3, 4, 5


class Word(str):
    """A word that knows whether a space stands before it; None: as the script has it."""

    spaced: bool | None = None


def layout_words(values: Values) -> tuple[list[str], str, list[tuple[int, int]]]:
    """Words, the text, and where in it each word stands. Tokens are joined to the text that a user would type, and its
    words are found as those of raw text are, so that a model reads the same of both."""
    text = join_tokens(values["tokens"], values.get("spaces"))[0] if "tokens" in values else values["text"]
    found = list(WORDS.finditer(text))
    return [m.group() for m in found], text, [m.span() for m in found]


def separate_marks(text: str, places: Sequence[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """Text as a model reads it, and its words' places there: marks stand apart from the word that they follow or open
    ("Rome." is "Rome ."), unless they stand within one (U.S, don't, 3.5); nothing stands apart from a character of a
    script without spaces."""
    found, moved = "", []
    for number, (start, end) in enumerate(places):
        if number:
            last = places[number - 1]
            inside = last[1] == start and (_is_within(text, start, end) or _is_within(text, *last))
            if not inside and not _is_unspaced(text[last[1] - 1], text[start]):
                found += " "
        moved.append((len(found), len(found) + end - start))
        found += text[start:end]
    return found, moved


def readable_words(values: Values) -> list[Word]:
    """The words of a row with their spaces, as the model reads them: what is joined with other rows."""
    text, places = separate_marks(*layout_words(values)[1:])
    words = [Word(text[start:end]) for start, end in places]
    for word, (start, _) in zip(words[1:], places[1:], strict=True):
        word.spaced = text[start - 1] == " "
    return words


def _is_within(text: str, start: int, end: int) -> bool:
    """Is a mark of one sign between two letters or digits?"""
    sides = text[start - 1 : start], text[end : end + 1]
    return end - start == 1 and not text[start].isalnum() and all(side.isalnum() for side in sides)


def _is_unspaced(before: str, after: str) -> bool:
    """Does one of two neighboring characters belong to a script that is written without spaces?"""
    return bool(UNSPACED.match(before) or UNSPACED.match(after))


def join_tokens(tokens: Sequence[str], spaces: Sequence[bool] | None = None) -> tuple[str, list[tuple[int, int]]]:
    """Tokens as their language writes them, and where each stands.

    spaces: whether a space follows each token, where the file says so. Otherwise there is none beside Chinese or
    Japanese characters and full-width marks, none beside marks in a text of such characters, none between the letters
    of a file that is cut into characters, and marks and contractions stand as English has them.
    """
    if spaces is not None and (not isinstance(spaces, list) or len(spaces) != len(tokens)):
        raise ValueError(f"'spaces' is a list of true or false, one for each of the {len(tokens)} tokens")
    text, places = "", []
    others = UNSPACED.sub("", whole := "".join(tokens))
    unspaced = len(whole) - len(others)
    characters = all(len(token) == 1 for token in tokens) and unspaced > 0
    # In a text of such a script, marks and numbers stand without spaces too; its language is told by its letters.
    mostly = unspaced > sum(map(str.isalpha, others))
    quoted = False
    for number, token in enumerate(tokens):
        space = bool(number)
        if spaces is not None and number:
            space = bool(spaces[number - 1])
        elif isinstance(token, Word) and token.spaced is not None:
            space = token.spaced
        elif number:
            before = tokens[number - 1]
            closes = token == '"' and quoted
            opened = before == '"' and quoted
            space = not (characters or closes or opened or _is_attached(before, token, mostly))
        quoted ^= token == '"'
        text += " " if space else ""
        places.append((len(text), len(text) + len(token)))
        text += token
    return text, places


def _is_attached(before: str, token: str, unspaced: bool) -> bool:
    """Is a token written without a space behind the one before it? unspaced: in a text of a script without spaces."""
    if not before or not token or _is_unspaced(before[-1], token[0]):
        return True
    if unspaced and not (token[0].isalnum() and (before[-1].isalnum() or before[-1] in PAUSES)):
        return True
    return bool(CLOSING.fullmatch(token) or OPENING.fullmatch(before) or CONTRACTION.fullmatch(token))


def tags_of_words(
    tags: Sequence[str], tokens: Sequence[tuple[int, int]], words: Sequence[tuple[int, int]]
) -> list[str]:
    """Tags of tokens as tags of the words of the same text; a word inside a token continues its entity."""
    owner = _holders([start for start, _ in words], tokens)
    found: list[str] = []
    for (start, _), at in zip(words, owner, strict=True):
        tag = tags[at] if start == tokens[at][0] else continue_tag(tags[at])
        begun = at and tags[at - 1][1:] == tag[1:] and tag.startswith("I-")
        if begun and (not found or found[-1][1:] != tag[1:]):  # its entity begins within the word before
            tag = f"B-{tag[2:]}"
        found.append(tag)
    return found


def tags_of_tokens(
    tags: Sequence[str], words: Sequence[tuple[int, int]], tokens: Sequence[tuple[int, int]]
) -> list[str]:
    """Tags of words as tags of the tokens of the same text: each has that of the first word which begins in it, or
    continues the one that it stands in."""
    if not words:
        return ["O"] * len(tokens)
    starts = np.array([start for start, _ in words])
    found = []
    for start, end in tokens:
        first = int(np.searchsorted(starts, start))
        if first < len(words) and words[first][0] < end and (words[first][0] == start or not first):
            found.append(tags[first])
        elif first and words[first - 1][1] > start:
            inside = first < len(words) and words[first][0] < end and "-" not in tags[first][1:2]
            found.append(tags[first] if inside else continue_tag(tags[first - 1]))
        else:
            found.append("O")
    return found


def continue_tag(tag: str) -> str:
    return f"I-{tag[2:]}" if tag.startswith("B-") else tag


def _holders(starts: Sequence[int], tokens: Sequence[tuple[int, int]]) -> NDArray[Any]:
    return np.searchsorted(np.array([start for start, _ in tokens]), np.array(starts), side="right") - 1


def word_of(offsets: Sequence[tuple[int, int]], places: Sequence[tuple[int, int]]) -> NDArray[Any]:
    """The word that each token stands in, -1: none."""
    if not places or not offsets:
        return np.full(len(offsets), -1)
    starts, ends = (np.array(side) for side in zip(*places, strict=True))
    # The middle of a token: some tokenizers count the space before a word as part of its first token.
    last = np.array([max(b - 1, a) for a, b in offsets])
    word = np.searchsorted(starts, last, side="right") - 1
    return np.where((word >= 0) & (last < ends[word]), word, -1)


def case_of(word: str) -> int:
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


def gold_of_words(values: Values) -> list[str]:
    """The tags that a row has, for the words of its text."""
    return tags_of_words(
        values["tags"], join_tokens(values["tokens"], values.get("spaces"))[1], layout_words(values)[2]
    )


@dataclass(eq=False)
class ContextWindow:
    """Sentences of a document that are read together, amid the words before and after them."""

    before: list[str]
    words: list[str] = field(default_factory=list)
    tags: list[str] | None = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    windows: list[Window] | None = None  # encoded once for all of them

    def take(self, values: Values) -> int:
        """A sentence more; where its words begin."""
        at = len(self.words)
        self.words += readable_words(values)
        self.tags = None if self.tags is None or "tags" not in values else [*self.tags, *gold_of_words(values)]
        return at


def add_context(rows: Iterable[Values], count: int) -> Iterator[Values]:
    """Each sentence with at least `count` words of its document before and after it, where there are as many.

    Sentences that stand together, up to `count` words of them, are shown together: `shown` is the same for all of
    them, and their own words begin `at` a place in it. So a word is read about three times, however short sentences
    are. Sentences that name no document are all of one; a row whose document is None, or that is raw text, stands
    alone.
    """
    past: list[str] = []
    waiting: deque[tuple[ContextWindow, list[Values]]] = deque()
    document: object = object()

    def flush_ready(everything: bool) -> Iterator[Values]:
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
            yield from flush_ready(True)
            past, document = [], object() if alone else mine
        if alone:
            yield values  # at once: a person may be waiting for it
            continue
        if not waiting or len(waiting[-1][0].words) + len(values["tokens"]) > count:
            waiting.append((ContextWindow(past[-count:]), []))
        shown, held = waiting[-1]
        held.append({**values, "shown": shown, "at": shown.take(values)})
        past = (past + readable_words(values))[-count:]
        yield from flush_ready(False)
    yield from flush_ready(True)


def join_sentences(rows: Iterable[Values], count: int) -> Iterator[Values]:
    """Tagged sentences of a document joined into rows of up to `count` words; a longer sentence is one by itself.

    What is a document, and what stands alone, is as with `add_context`.
    """
    held: list[Values] = []
    document, words = object(), 0

    def join_held() -> Values:
        together: dict[str, Any] = {"tokens": [word for values in held for word in readable_words(values)]}
        if "tags" in held[0]:
            together["tags"] = [tag for values in held for tag in gold_of_words(values)]
        if "belief" in held[0]:  # of words already
            together["belief"] = [part for values in held for part in values["belief"]]
        return {**{name: value for name, value in held[0].items() if name != "spaces"}, **together}

    for values in rows:
        alone, mine = _document(values)
        if held and (alone or mine != document or words + len(values["tokens"]) > count):
            yield join_held()
            held, words = [], 0
        if alone:
            yield values
        else:
            held.append(values)
            document, words = mine, words + len(values["tokens"])
    if held:
        yield join_held()
