"""Raw text is laid out as files of words are, so that a model sees the same of both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.tasks.words import apart, joined, laid_out


@pytest.mark.parametrize(
    ("raw", "tokens"),
    [
        ("Bob visited Rome today.", ["Bob", "visited", "Rome", "today", "."]),
        ("Bob, Alice saw Rome!", ["Bob", ",", "Alice", "saw", "Rome", "!"]),
        ("王伟去了北京。", ["王", "伟", "去", "了", "北", "京", "。"]),
        ('He said "no" (twice).', ["He", "said", '"', "no", '"', "(", "twice", ")", "."]),
        ("don't pay 3.5", ["don't", "pay", "3.5"]),
        ("the U.S team", ["the", "U.S", "team"]),
        ("  spaced   out ", ["spaced", "out"]),
    ],
)
def test_raw_text_is_laid_out_as_words_are(raw: str, tokens: list[str]) -> None:
    _, text, places = laid_out({"text": raw})
    assert apart(text, places)[0] == joined(tokens)[0]


@given(st.text(alphabet="ab1 .,'-北京。(\n", max_size=30))
def test_every_word_is_still_there(raw: str) -> None:
    words, text, places = laid_out({"text": raw})
    spread, moved = apart(text, places)
    assert [spread[a:b] for a, b in moved] == words
    assert spread.split() == spread.split(" ") or not spread
