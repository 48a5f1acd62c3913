"""Conversations: both forms are read, the broken ones are named with their place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from multihead.data.readers.read import read_records
from multihead.data.split_statistics import split_key
from multihead.data.splits import is_valid
from multihead.data.validation import check

ASKED, ANSWERED = {"role": "user", "content": "你好"}, {"role": "assistant", "content": "hello"}
GOOD = [ASKED, ANSWERED]


def written(path: Path, *rows: Any) -> Path:
    text = json.dumps(rows) if path.suffix == ".json" else "".join(f"{json.dumps(row)}\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["chats.jsonl", "chats.json"])
@pytest.mark.parametrize("answer", ["messages", "response", "completion"])
def test_both_forms_are_seen(tmp_path: Path, name: str, answer: str) -> None:
    row = {"messages": GOOD} if answer == "messages" else {"prompt": "你好", answer: "hello"}
    path = written(tmp_path / name, *[{"id": 3, "label": None, **row}] * 2)
    reading = read_records(path, columns={"text": "text"}, task="generate")
    assert [record.values for record in reading] == [{"conversation": GOOD}] * 2
    assert [found["format"] for found in reading.found.values()] == ["chat"]


def test_texts_stay_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", {"text": "one", "messages": GOOD})
    assert [record.values for record in read_records(path, columns={"text": "text"}, task="generate")] == [
        {"text": "one"}
    ]
    (record,) = read_records(path, columns={"text": "text"}, task="generate", format="chat")
    assert record.values == {"conversation": GOOD}
    path = written(tmp_path / "b.jsonl", {"prompt": "x", "answer": "y"})
    with pytest.raises(ValueError, match="no column 'text' for text; the file has: prompt, answer"):
        list(read_records(path, columns={"text": "text"}, task="generate"))
    with pytest.raises(ValueError, match=r"b\.jsonl:1: .*prompt and response or completion.*the file has: prompt, ans"):
        list(read_records(path, format="chat"))


BROKEN = {
    "no list of messages": ("hello", "messages is a JSON str; use a list of {role: …, content: …}"),
    "not a message": ([ASKED, "hello"], "message 2 is a JSON str"),
    "unknown role": ([ASKED, {"role": "bot", "content": "x"}], "message 2 has the role 'bot'; known: system, user"),
    "empty content": ([ASKED, {"role": "assistant", "content": " "}], "message 2 (assistant) is empty"),
    "content is not text": (
        [{"role": "user", "content": [1]}, ANSWERED],
        "message 1 (user): its content is a JSON list",
    ),
    "no assistant turn": ([ASKED, ASKED], "no message is the assistant's"),
    "NUL character": ([ASKED, {"role": "assistant", "content": "a\0b"}], "a NUL character in message 2 (assistant)"),
}


@pytest.mark.parametrize("code", BROKEN)
def test_broken_conversations_are_named_and_counted(tmp_path: Path, code: str) -> None:
    messages, reason = BROKEN[code]
    path = written(tmp_path / "chats.jsonl", {"messages": GOOD}, {"messages": messages}, {"other": 1})
    reading = read_records(path, columns={"text": "text"}, task="generate")
    assert len(list(reading)) == 1
    assert reading.rejected.reasons == {code: 1, "missing key": 1}
    assert str(reading.rejected[0]).startswith(f"{path}:2: {reason}")
    findings = check(reading, task="generate")
    (finding,) = [one for one in findings if code in one.message]
    assert (finding.level, finding.line) == ("stop", 2)
    assert reason in finding.examples[0]


def test_an_empty_answer_of_a_pair_is_told(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "response": "b"}, {"prompt": "", "response": "b"}, {"prompt": "a", "response": None}]
    reading = read_records(written(tmp_path / "chats.jsonl", *rows), task="generate")
    assert len(list(reading)) == 1
    told = ["message 1 (user) is empty", "message 2 (assistant) is empty"]
    assert [reject.reason for reject in reading.rejected] == told


def test_equal_conversations_stay_together_and_are_told(tmp_path: Path) -> None:
    loud = [{"content": "你好", "role": "user", "id": 7}, {"role": "assistant", "content": "HELLO"}]
    rows = [{"messages": GOOD}, {"messages": loud}, {"messages": [*GOOD, ASKED]}]
    reading = read_records(written(tmp_path / "chats.jsonl", *rows), task="generate")
    first, second, third = (split_key(record.values) for record in reading)
    assert first.casefold() == second.casefold() != third.casefold()
    assert is_valid(first) == is_valid(second)
    (finding,) = check(reading, task="generate")
    assert (finding.code, finding.line) == ("duplicates", 2)
    assert finding.examples[0].endswith("chats.jsonl:2: user: 你好 assistant: HELLO")
