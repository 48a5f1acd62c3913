"""Rows of files whose values hang together: words with tags, contexts with answers, labels that may be none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from multihead.data.readers.read import read_records

WORDS = ["Ada", "saw", "Rome"]
TEXT = "Ada saw Rome."


def read(path: Path, rows: list[dict[str, Any]], **options: Any) -> Any:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reading = read_records(path, **options)
    return [record.values for record in reading], reading.rejected


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"tokens": WORDS, "tags": ["O", "O"]}, "3 tokens and 2 tags; every token has one"),
        ({"tokens": WORDS, "tags": ["O"] * 4}, "3 tokens and 4 tags"),
        ({"tokens": WORDS, "tags": [1, 0, 3]}, "write the tags' names, not their numbers"),
        ({"tokens": "Ada saw Rome", "tags": ["O", "O", "O"]}, "use a list of strings"),
        ({"question": "Who?", "context": TEXT, "answers": [{"text": "Rome", "start": 3}]}, "fix answer_start"),
        ({"question": "Who?", "context": TEXT, "answers": [{"text": "Rome"}]}, "answer_start None is not a position"),
        ({"question": "Who?", "context": TEXT, "answers": {"text": ["Rome"]}}, "no lists text and answer_start"),
        ({"question": "Who?", "context": TEXT, "answers": "Rome"}, r"use a list of \{text, start\}"),
        ({"question": "Who?", "context": TEXT, "answers": ["Rome"]}, "an answer is a str"),
    ],
)
def test_what_does_not_fit_is_rejected(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    good = {key: value for key, value in row.items() if key in ("question", "context")} | (
        {"answers": []} if "answers" in row else {"tokens": ["Bo"], "tags": ["O"]}
    )
    used, rejected = read(tmp_path / "rows.jsonl", [row, good])
    assert len(used) == 1
    assert rejected.total == 1
    assert rejected[0].line == 1
    assert re.search(reason, rejected[0].reason)


def test_answers_in_every_public_form(tmp_path: Path) -> None:
    forms = [
        [{"text": "Rome", "start": 8}],
        [{"text": "Rome", "answer_start": 8}],
        {"text": ["Rome"], "answer_start": [8]},
    ]
    rows = [{"question": "Where?", "context": TEXT, "answers": form} for form in forms]
    used, rejected = read(tmp_path / "rows.jsonl", rows)
    assert not rejected.total
    assert [row["answers"] for row in used] == [[{"text": "Rome", "start": 8}]] * 3


def test_a_scheme_is_taken_up_in_json_too(tmp_path: Path) -> None:
    rows = [{"tokens": WORDS, "tags": ["U-PER", "O", "U-LOC"]}, {"tokens": WORDS, "tags": ["B-PER", "O", "U-LOC"]}]
    used, rejected = read(tmp_path / "rows.jsonl", rows, scheme="BILOU")
    assert [row["tags"] for row in used] == [["B-PER", "O", "B-LOC"]]
    assert rejected.total == 1  # an entity that is opened and not closed


def test_no_label_may_be_the_truth(tmp_path: Path) -> None:
    rows = [{"text": "fine", "label": ["x"]}, {"text": "dull", "label": []}]
    used, rejected = read(tmp_path / "rows.jsonl", rows, columns={"text": "text", "label": "label"})
    assert [row["label"] for row in used] == [["x"], []]
    assert not rejected.total


def test_cells_of_tables_hold_no_lists(tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("tokens,tags\nAda ran,B-PER O\n")
    (tmp_path / "questions.csv").write_text("question,context,answers\nWho?,Ada saw Rome.,Ada\n")
    for name, columns in (("words", ("tokens", "tags")), ("questions", ("question", "context", "answers"))):
        reading = read_records(tmp_path / f"{name}.csv", columns={column: column for column in columns})
        assert list(reading) == []
        assert "cells of tables hold no lists: give JSONL or Parquet" in reading.rejected[0].reason


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ({"a": 1}, "label is an object; use a string, a number, or a list of them"),
        (["a", ["b"]], "label is a list with a list"),
        (["a", None], "label is a list with an empty label"),
        ([" "], "label is a list with an empty label"),
        (None, "empty label"),
    ],
)
def test_what_is_no_class_is_no_label(tmp_path: Path, label: Any, reason: str) -> None:
    used, rejected = read(tmp_path / "rows.jsonl", [{"text": TEXT, "label": "a"}, {"text": TEXT, "label": label}])
    assert [row["label"] for row in used] == ["a"]
    assert (rejected[0].line, rejected[0].reason.startswith(reason)) == (2, True)


def test_bytes_are_no_label(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "b"], "label": [b"good", None]}), tmp_path / "rows.parquet")
    reading = read_records(tmp_path / "rows.parquet", columns={"text": "text", "label": "label"})
    assert list(reading) == []
    assert [(fault.line, fault.reason[:14]) for fault in reading.rejected] == [
        (1, "label is bytes"),
        (2, "empty label"),
    ]


def test_one_class_has_one_spelling(tmp_path: Path) -> None:
    numbers, _ = read(tmp_path / "rows.jsonl", [{"text": TEXT, "label": label} for label in (1, 1.0, 1.5, [2.0], True)])
    assert [str(row["label"]) for row in numbers] == ["1", "1", "1.5", "[2]", "True"]
    (tmp_path / "rows.csv").write_text("text, label\n one, pos\ntwo,pos\nthree,\n")
    reading = read_records(tmp_path / "rows.csv", columns={"text": "text", "label": "label"})
    assert [record.values for record in reading] == [{"text": " one", "label": "pos"}, {"text": "two", "label": "pos"}]
    assert str(reading.repaired[0]).endswith("rows.csv:2: white space around the label ' pos'")
    assert reading.rejected.reasons == {"empty label": 1}


@pytest.mark.parametrize(
    ("row", "fix"),
    [
        ({"id": 1, "tokens": WORDS, "ner_tags": ["B-PER", "O", "B-LOC"]}, 'set data.tags = "ner_tags"'),
        ({"id": 1, "tokens": WORDS, "ner_tags": [1, 0, 5]}, 'set data.tags = "ner_tags"'),
        (
            {"pos_tags": ["N", "V", "N"], "words": WORDS, "spans": ["U-PER", "O", "U-LOC"]},
            'set data.tokens = "words" and data.tags = "spans"',
        ),
        (
            {"text": TEXT, "label": "a"},
            "name another file, or another task; for one word and tag per line, data.format",
        ),
    ],
)
def test_tags_in_another_column_are_named(tmp_path: Path, row: dict[str, Any], fix: str) -> None:
    with pytest.raises(ValueError, match=rf"rows\.jsonl:1: the task needs tokens and tags, .*; {fix}"):
        read(tmp_path / "rows.jsonl", [row], task="ner")


def test_schemes_of_lists_are_named(tmp_path: Path) -> None:
    row = {"tokens": WORDS, "tags": ["S-PER", "O", "S-LOC"]}
    assert read(tmp_path / "rows.jsonl", [row], task="ner", scheme="bioes")[0][0]["tags"] == ["B-PER", "O", "B-LOC"]
    with pytest.raises(ValueError, match="unknown scheme 'other'; use IOB1, BIO, BILOU, BMES, plain"):
        read(tmp_path / "rows.jsonl", [row], task="ner", scheme="other")
