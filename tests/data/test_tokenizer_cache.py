"""A learnt tokenizer is kept, and is the same one when it is opened again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from multihead.data.tokenizer_cache import load_or_train
from multihead.text.tokenizer import Tokenizer
from multihead.text.training import KINDS

TEXTS = ["the cat sat on the mat", "a dog runs over the green hill", "猫坐在垫子上", "</s> is no end"] * 5


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("\n".join(TEXTS))
    return tmp_path / "text.txt"


def once(cache: Path, file: Path, kind: str = "char", **settings: object) -> tuple[Tokenizer, int]:
    read = 0

    def texts() -> Iterable[str]:
        nonlocal read
        read += 1
        return TEXTS

    return load_or_train(cache, [file], settings, texts, kind, 300, lowercase=False), read


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_learnt_once_and_the_same_afterwards(tmp_path: Path, file: Path, kind: str) -> None:
    first, read = once(tmp_path / "cache", file, kind)
    again, more = once(tmp_path / "cache", file, kind)
    assert (read, more) == (1, 0)
    assert again.inner.to_str() == first.inner.to_str()
    assert (again.named, again.special, again.control) == (first.named, first.special, first.control)
    plain = Tokenizer.train(TEXTS, kind, 300)
    for text in TEXTS[:4]:
        assert again.encode(text) == first.encode(text) == plain.encode(text)


def test_other_texts_and_settings_are_learnt_anew(tmp_path: Path, file: Path) -> None:
    cache = tmp_path / "cache"
    once(cache, file)
    assert once(cache, file, names=["source"])[1] == 1
    assert once(cache, file, "wordpiece")[1] == 1
    file.write_text("other")
    assert once(cache, file)[1] == 1
    assert once(cache, file)[1] == 0


@pytest.mark.parametrize(
    "content", ["", "{", "{}", '{"named": [], "tokenizer": "{}"}', '{"named": {}, "tokenizer": 1}']
)
def test_a_damaged_one_is_learnt_again(tmp_path: Path, file: Path, content: str) -> None:
    cache = tmp_path / "cache"
    first, _ = once(cache, file)
    (kept,) = cache.iterdir()
    kept.write_text(content)
    again, read = once(cache, file)
    assert read == 1
    assert again.inner.to_str() == first.inner.to_str()
    assert once(cache, file)[1] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_alone_are_those_of_the_whole_encoding(kind: str) -> None:
    tokenizer = Tokenizer.train(TEXTS, kind, 300)
    for text in [*TEXTS[:4], "", "a </s><s> b <mask>", "\ud800 x", "[SEP]"]:
        assert tokenizer.ids(text) == tokenizer.encode(text, special=False).ids
