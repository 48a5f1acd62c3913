"""How much of some texts a vocabulary cannot spell: Chinese in an English one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from multihead.text.tokenizer import Tokenizer

ROWS, CHARACTERS = 1_000, 1 << 19  # that are looked at, which takes a part of a second


def unknown_share(tokenizer: Tokenizer, texts: Iterable[str]) -> float:
    """The share of their characters, white space aside, in unknown tokens; of the first texts. Characters are counted
    since an unknown token can be one of them, a word, or all that stands together."""
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
    seen = 0
    for text in islice(texts, ROWS):
        yield text[: CHARACTERS - seen]
        seen += len(text)
        if seen >= CHARACTERS:
            return


def _count_characters(text: str) -> int:
    return sum(map(len, text.split()))
