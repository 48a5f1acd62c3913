"""Raw text is laid out as files of words are, so that a model sees the same of both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.tasks.word_spans import (
    join_tokens,
    layout_words,
    readable_words,
    separate_marks,
    tags_of_tokens,
    tags_of_words,
)


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
    _, text, places = layout_words({"text": raw})
    assert separate_marks(text, places)[0] == separate_marks(*layout_words({"tokens": tokens})[1:])[0]


@given(st.text(alphabet="ab1 .,'-北京。(\n", max_size=30))
def test_every_word_is_still_there(raw: str) -> None:
    words, text, places = layout_words({"text": raw})
    spread, moved = separate_marks(text, places)
    assert [spread[a:b] for a, b in moved] == words
    assert spread.split() == spread.split(" ") or not spread


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (list("1963年出生，工科学士"), "1963年出生，工科学士"),
        (["1963", "年", "出生", "，", "IBM", "的", "iPhone"], "1963年出生，IBM的iPhone"),
        (["每日", "0515", "-", "0545", "，", "藤子", "·", "F", "·", "不二雄", "的", "New", "York"],
         "每日0515-0545，藤子·F·不二雄的New York"),
        (["Bob", "does", "n't", "like", "Rome", "'s", "heat", "(", "35.5", "%", ")", "."],
         "Bob doesn't like Rome's heat (35.5%)."),
        (["He", "said", '"', "no", ",", "twice", '"', "."], 'He said "no, twice".'),
        (["New", "York", "-", "London"], "New York - London"),
    ],
)  # fmt: skip
def test_tokens_are_joined_as_they_are_written(tokens: list[str], text: str) -> None:
    made, places = join_tokens(tokens)
    assert made == text
    assert [made[a:b] for a, b in places] == tokens


def test_spaces_that_a_file_names_are_kept() -> None:
    assert join_tokens(["New", "-", "York", "."], [False, False, True, True])[0] == "New-York ."
    with pytest.raises(ValueError, match="one for each of the 2 tokens"):
        join_tokens(["New", "York"], [True])


def test_words_of_several_rows_keep_their_spaces() -> None:
    words = readable_words({"text": "He doesn't see U.S troops."})
    assert join_tokens(words)[0] == "He doesn't see U.S troops ."
    assert readable_words({"tokens": words}) == words


@pytest.mark.parametrize(
    ("text", "tokens", "tags", "words"),
    [
        ("U.S. won", ["U.S.", "won"], ["B-LOC", "O"], ["B-LOC", "I-LOC", "I-LOC", "I-LOC", "O"]),
        ("1963年", list("1963年"), ["B-D", "I-D", "I-D", "I-D", "I-D"], ["B-D", "I-D"]),
        ("don't", ["do", "n't"], ["VERB", "PART"], ["VERB", "PART", "PART"]),
        ("preObama x", ["pre", "Obama", "x"], ["O", "B-PER", "I-PER"], ["O", "B-PER"]),
    ],
)
def test_tags_of_tokens_and_of_words(text: str, tokens: list[str], tags: list[str], words: list[str]) -> None:
    places, at = [], 0
    for token in tokens:
        at = text.index(token, at)
        places.append((at, at + len(token)))
        at += len(token)
    own = layout_words({"text": text})[2]
    assert tags_of_words(tags, places, own) == words
    back = tags_of_tokens(words, own, places)
    assert back == (tags if text != "preObama x" else ["O", "O", "B-PER"])
