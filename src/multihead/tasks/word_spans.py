"""Words and their character spans: in raw text, in joined words, among tokens, and in document context."""

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

# A word of raw text: a run of letters and digits; any other symbol and every Han, kana or hangul character alone.
HAN = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORDS = re.compile(rf"[^\W{HAN}]+|\S")
UNSPACED = re.compile(rf"[{HAN}\u2e80-\u2fdf\u3000-\u303f\uff00-\uff9f]")
# Marks without a space before them, marks without a space after them, and contractions.
CLOSING = re.compile(r"[.,;:?!%)\]}\u2019\u201d\u00bb\u2026]+|\.\.\.|''")
OPENING = re.compile(r"[(\[{$\u00a3\u20ac#\u2018\u201c\u00ab]|``")
CONTRACTION = re.compile(r"(?:['\u2019](?:s|m|d|ll|re|ve)?|n['\u2019]t)", re.IGNORECASE)
PAUSES = ",;:.?!"  # followed by a space
# Casing of a word as a token type. Type 0 is lower case, so that nothing changes for such words; type 1
# is BERT's second sentence.
CAPITAL, CAPITALS, MIXED, DIGITS = 2, 3, 4, 5


class Word(str):
    """A word with a flag whether a space precedes it; None: by the script's convention."""

    spaced: bool | None = None


def layout_words(values: Values) -> tuple[list[str], str, list[tuple[int, int]]]:
    """Return words, the text, and the span of each word in it. Tokens are joined to the text that a user would type,
    and split into words like raw text, so that both are encoded alike."""
    text = join_tokens(values["tokens"], values.get("spaces"))[0] if "tokens" in values else values["text"]
    matches = list(WORDS.finditer(text))
    return [m.group() for m in matches], text, [m.span() for m in matches]


def separate_marks(text: str, places: Sequence[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """Return the text as the model encodes it, and its words' spans: punctuation is separated from the word that it
    follows or opens ("Rome." becomes "Rome ."), unless it is inside one (U.S, don't, 3.5); characters of a script
    without spaces are not separated."""
    separated, moved = "", []
    for number, (start, end) in enumerate(places):
        if number:
            last = places[number - 1]
            inside = last[1] == start and (_is_within(text, start, end) or _is_within(text, *last))
            if not inside and not _is_unspaced(text[last[1] - 1], text[start]):
                separated += " "
        moved.append((len(separated), len(separated) + end - start))
        separated += text[start:end]
    return separated, moved


def readable_words(values: Values) -> list[Word]:
    """Return the words of a row with their spaces, as the model encodes them, for joining with other rows."""
    text, places = separate_marks(*layout_words(values)[1:])
    words = [Word(text[start:end]) for start, end in places]
    for word, (start, _) in zip(words[1:], places[1:], strict=True):
        word.spaced = text[start - 1] == " "
    return words


def _is_within(text: str, start: int, end: int) -> bool:
    """Whether a one-character mark is between two letters or digits."""
    sides = text[start - 1 : start], text[end : end + 1]
    return end - start == 1 and not text[start].isalnum() and all(side.isalnum() for side in sides)


def _is_unspaced(before: str, after: str) -> bool:
    """Whether one of two neighboring characters belongs to a script without spaces."""
    return bool(UNSPACED.match(before) or UNSPACED.match(after))


def join_tokens(tokens: Sequence[str], spaces: Sequence[bool] | None = None) -> tuple[str, list[tuple[int, int]]]:
    """Join tokens as their language writes them, and return the text and the span of each token.

    spaces: whether a space follows each token, if the file specifies it. Otherwise there is no space next to Chinese or
    Japanese characters and full-width marks, next to marks in a text of such characters, or between the letters of a
    file that is split into characters; punctuation and contractions follow English.
    """
    if spaces is not None and (not isinstance(spaces, list) or len(spaces) != len(tokens)):
        raise ValueError(f"'spaces' must be a list of true or false, one for each of the {len(tokens)} tokens")
    text, places = "", []
    others = UNSPACED.sub("", joined := "".join(tokens))
    unspaced = len(joined) - len(others)
    characters = all(len(token) == 1 for token in tokens) and unspaced > 0
    # In a text of such a script, marks and numbers have no spaces either; letters decide the script.
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
    """Whether a token follows the previous one without a space. unspaced: in a text of a script without spaces."""
    if not before or not token or _is_unspaced(before[-1], token[0]):
        return True
    if unspaced and not (token[0].isalnum() and (before[-1].isalnum() or before[-1] in PAUSES)):
        return True
    return bool(CLOSING.fullmatch(token) or OPENING.fullmatch(before) or CONTRACTION.fullmatch(token))


def tags_of_words(
    tags: Sequence[str], tokens: Sequence[tuple[int, int]], words: Sequence[tuple[int, int]]
) -> list[str]:
    """Convert tags of tokens to tags of the words of the same text; a word inside a token continues its entity."""
    owner = _holders([start for start, _ in words], tokens)
    word_tags: list[str] = []
    for (start, _), at in zip(words, owner, strict=True):
        tag = tags[at] if start == tokens[at][0] else continue_tag(tags[at])
        begun = at and tags[at - 1][1:] == tag[1:] and tag.startswith("I-")
        if begun and (not word_tags or word_tags[-1][1:] != tag[1:]):  # its entity begins inside the previous word
            tag = f"B-{tag[2:]}"
        word_tags.append(tag)
    return word_tags


def tags_of_tokens(
    tags: Sequence[str], words: Sequence[tuple[int, int]], tokens: Sequence[tuple[int, int]]
) -> list[str]:
    """Convert tags of words to tags of the tokens of the same text: the tag of the first word that begins in the token,
    or the continuation of the word around it."""
    if not words:
        return ["O"] * len(tokens)
    starts = np.array([start for start, _ in words])
    token_tags = []
    for start, end in tokens:
        first = int(np.searchsorted(starts, start))
        if first < len(words) and words[first][0] < end and (words[first][0] == start or not first):
            token_tags.append(tags[first])
        elif first and words[first - 1][1] > start:
            inside = first < len(words) and words[first][0] < end and "-" not in tags[first][1:2]
            token_tags.append(tags[first] if inside else continue_tag(tags[first - 1]))
        else:
            token_tags.append("O")
    return token_tags


def continue_tag(tag: str) -> str:
    return f"I-{tag[2:]}" if tag.startswith("B-") else tag


def _holders(starts: Sequence[int], tokens: Sequence[tuple[int, int]]) -> NDArray[Any]:
    return np.searchsorted(np.array([start for start, _ in tokens]), np.array(starts), side="right") - 1


def word_of(offsets: Sequence[tuple[int, int]], places: Sequence[tuple[int, int]]) -> NDArray[Any]:
    """Return the index of the word that contains each token; -1: none."""
    if not places or not offsets:
        return np.full(len(offsets), -1)
    starts, ends = (np.array(side) for side in zip(*places, strict=True))
    # Use the middle of a token: some tokenizers count the space before a word as part of its first token.
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
    """Return whether a row has no context, and the key of its document within the file."""
    alone = "tokens" not in values or values.get("document", 0) is None
    return alone, (values.get("file"), values.get("document", 0))


def gold_of_words(values: Values) -> list[str]:
    """Return the gold tags of a row, for the words of its text."""
    return tags_of_words(
        values["tags"], join_tokens(values["tokens"], values.get("spaces"))[1], layout_words(values)[2]
    )


@dataclass(eq=False)
class ContextWindow:
    """Sentences of a document that are encoded together, with the words before and after them."""

    before: list[str]
    words: list[str] = field(default_factory=list)
    tags: list[str] | None = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    windows: list[Window] | None = None  # encoded once for all of them

    def take(self, values: Values) -> int:
        """Append a sentence and return the index of its first word."""
        at = len(self.words)
        self.words += readable_words(values)
        self.tags = None if self.tags is None or "tags" not in values else [*self.tags, *gold_of_words(values)]
        return at


def add_context(rows: Iterable[Values], count: int) -> Iterator[Values]:
    """Yield each sentence with at least `count` words of its document before and after it, where there are as many.

    Neighboring sentences, up to `count` words of them, share one context window: `shown` is the same for all of them,
    and their words begin `at` an index in it. A word is thus encoded about three times, however short sentences are.
    Sentences that name no document are all of one; a row whose document is None, or that is raw text, has no context.
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
        alone, key = _document(values)
        if alone or key != document:
            yield from flush_ready(True)
            past, document = [], object() if alone else key
        if alone:
            yield values  # at once: the input may be interactive
            continue
        if not waiting or len(waiting[-1][0].words) + len(values["tokens"]) > count:
            waiting.append((ContextWindow(past[-count:]), []))
        shown, held = waiting[-1]
        held.append({**values, "shown": shown, "at": shown.take(values)})
        past = (past + readable_words(values))[-count:]
        yield from flush_ready(False)
    yield from flush_ready(True)


def join_sentences(rows: Iterable[Values], count: int) -> Iterator[Values]:
    """Join tagged sentences of a document into rows of up to `count` words; a longer sentence is its own row.

    Documents and rows without context are defined as in `add_context`.
    """
    held: list[Values] = []
    document, words = object(), 0

    def join_held() -> Values:
        together: dict[str, Any] = {"tokens": [word for values in held for word in readable_words(values)]}
        if "tags" in held[0]:
            together["tags"] = [tag for values in held for tag in gold_of_words(values)]
        if "belief" in held[0]:  # already per word
            together["belief"] = [part for values in held for part in values["belief"]]
        return {**{name: value for name, value in held[0].items() if name != "spaces"}, **together}

    for values in rows:
        alone, key = _document(values)
        if held and (alone or key != document or words + len(values["tokens"]) > count):
            yield join_held()
            held, words = [], 0
        if alone:
            yield values
        else:
            held.append(values)
            document, words = key, words + len(values["tokens"])
    if held:
        yield join_held()
