"""Vocabulary coverage: how much of some texts is unknown tokens, such as Chinese in an English vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from multihead.text.tokenizer import Tokenizer

ROWS, CHARACTERS = 1_000, 1 << 19  # examined at most; takes a fraction of a second


def unknown_share(tokenizer: Tokenizer, texts: Iterable[str]) -> float:
    """Return the share of the first texts' characters, without white space, that are in unknown tokens.

    Characters are counted, since an unknown token can be one character, a word, or a longer run.
    """
    if (unknown := tokenizer.special.get("unk")) is None:
        return 0.0
    lost = count = 0
    for text in _first(texts):
        encoding = tokenizer.encode(text, special=False)
        count += _count_characters(text)
        for (start, end), token in zip(encoding.offsets, encoding.ids, strict=True):
            lost += _count_characters(text[start:end]) if token == unknown else 0
    return lost / max(count, 1)


def _first(texts: Iterable[str]) -> Iterator[str]:
    count = 0
    for text in islice(texts, ROWS):
        yield text[: CHARACTERS - count]
        count += len(text)
        if count >= CHARACTERS:
            return


def _count_characters(text: str) -> int:
    return sum(map(len, text.split()))
