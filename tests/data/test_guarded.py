"""Foreign tokenizers cannot take long or much memory: refused when loaded, or ended when they run."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from multihead.data.guarded import needs_guard
from multihead.data.tokenizer import Tokenizer


def write(folder: Path, **changes: Any) -> Path:
    inner = json.loads(Tokenizer.train(["a b c"], "char", 20).inner.to_str())
    (folder / "tokenizer.json").write_text(json.dumps({**inner, **changes}))
    return folder


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def test_a_slow_pattern_is_named(tmp_path: Path) -> None:
    """`a*a*c` took over a minute for 4,000 letters."""
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"tokenizer\.json: pre_tokenizer: the pattern a\*a\*c needs more than"):
        Tokenizer.load(write(tmp_path, pre_tokenizer=split("a*a*c")))
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    "changes",
    [
        {"pre_tokenizer": split("a+b")},
        {"normalizer": replace("", "x" * 200)},
        {"normalizer": replace("x*", "x" * 200)},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}] * 40}},
    ],
)  # fmt: skip
def test_what_passes_loading_is_bounded(tmp_path: Path, changes: dict[str, Any]) -> None:
    start = time.monotonic()
    try:
        tokenizer = Tokenizer.load(write(tmp_path, **changes))
        assert needs_guard(tokenizer.inner)
        reason = f"{len(tokenizer.encode('aé' * 50_000))}"
    except ValueError as error:
        reason = str(error)
    assert reason
    assert "\n" not in reason
    assert time.monotonic() - start < 20


def test_a_guarded_tokenizer_gives_the_same(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path, pre_tokenizer=split("[ab]+|c")))
    assert needs_guard(tokenizer.inner)
    found, wanted = tokenizer.encode("a b c ab"), tokenizer.inner.encode("a b c ab")
    assert (found.ids, found.offsets) == (wanted.ids, wanted.offsets)
    assert tokenizer.decode(found.ids) == tokenizer.inner.decode(wanted.ids)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char"])
def test_a_long_word_is_learnt_and_read_soon(kind: str) -> None:
    draw = random.Random(0)
    text = "".join(chr(draw.randint(0x4E00, 0x5000)) for _ in range(100_000))
    start = time.monotonic()
    tokenizer = Tokenizer.train([text], kind, 4000)
    assert not needs_guard(tokenizer.inner)
    assert len(tokenizer.encode(text)) > 0
    assert time.monotonic() - start < 15
