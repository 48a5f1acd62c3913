"""Normalize rows for their tasks: labels, tokens with tags, contexts with answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from multihead.data.readers.columns import Fault, find_fault, is_string_list, type_name
from multihead.data.readers.record import ReadOptions, Record, RejectedRow, RepairedRow, Row
from multihead.data.readers.tag_schemes import to_bio

# Names that are added to a row on its way to a model; a user's columns with these names are dropped.
RESERVED = frozenset(("file", "line", "at", "of", "shown", "belief", "notation", "raw_text"))
LISTS = "cells of tables hold no lists: give JSONL or Parquet, or the task's own format (CoNLL, SQuAD)"


def normalize_row(values: Mapping[str, Any], options: ReadOptions) -> dict[str, Any] | Fault:
    """Return a row as its task needs it, or its fault."""
    values = {name: value for name, value in values.items() if name not in RESERVED}
    if fault := find_fault(values):
        return fault
    row: dict[str, Any] | Fault = dict(values)
    if "tokens" in values and "tags" in values:
        row = _normalize_tags(values, options.scheme)
    if "answers" in values and isinstance(values.get("context"), str):
        row = _normalize_answers(values)
    if isinstance(row, dict) and "label" in row:
        label = row["label"]
        row["label"] = [_class(item) for item in label] if isinstance(label, list | tuple) else _class(label)
    return row


def normalize_rows(values: Mapping[str, Any], options: ReadOptions, file: str, line: int) -> Iterator[Row]:
    """Yield a row as `normalize_row` returns it, with what was tolerated; or why it is not used."""
    row = normalize_row(values, options)
    if not isinstance(row, dict):
        yield RejectedRow(file, line, row[1], row[0])
        return
    if "label" in row and row["label"] != values["label"]:
        yield RepairedRow(file, line, f"white space around the label {values['label']!r}", "white space around a label")
    yield Record(row, file, line)


def _class(label: Any) -> Any:
    """Return a label without surrounding white space; 1.0 becomes 1, as JSON has one kind of number."""
    if isinstance(label, str):
        return label.strip()
    return int(label) if isinstance(label, float) and label.is_integer() else label


def _normalize_tags(values: Mapping[str, Any], scheme: str | None) -> dict[str, Any] | Fault:
    tokens, tags = values["tokens"], values["tags"]
    for role, value in (("tokens", tokens), ("tags", tags)):
        if not is_string_list(value):
            what = "a list of other things" if isinstance(value, list) else type_name(value)
            hint = "; write the tags' names, not their numbers" if role == "tags" and isinstance(value, list) else ""
            hint = f"; {LISTS}" if isinstance(value, str) else hint
            return f"{role} is no list of strings", f"{role} is {what}; use a list of strings{hint}"
    if len(tokens) != len(tags):
        return "tokens and tags differ", f"{len(tokens)} tokens and {len(tags)} tags; every token has one"
    if scheme is None:
        return dict(values)
    bio, _, fault = to_bio(tags, scheme)
    return {**values, "tags": bio} if fault is None else (fault[1], f"token {fault[0] + 1}: {fault[2]}")


def _normalize_answers(values: Mapping[str, Any]) -> dict[str, Any] | Fault:
    """Convert answers from [{text, start}], SQuAD's [{text, answer_start}], or {text: […], answer_start: […]}."""
    answers = values["answers"]
    if isinstance(answers, Mapping):
        columns = [answers.get("text"), answers.get("answer_start", answers.get("start"))]
        if not all(isinstance(column, list) for column in columns) or len(columns[0]) != len(columns[1]):
            return "not answers", "answers has no lists text and answer_start of one length"
        answers = [{"text": text, "start": start} for text, start in zip(*columns, strict=True)]
    if not isinstance(answers, list):
        hint = f"; {LISTS}" if isinstance(answers, str) else ""
        return "not answers", f"answers is {type_name(answers)}; use a list of {{text, start}}{hint}"
    normalized = []
    for item in answers:
        if not isinstance(item, Mapping):
            return "not answers", f"an answer is {type_name(item)}; use {{text, start}}"
        answer = {"text": item.get("text"), "start": item.get("answer_start", item.get("start"))}
        if reason := find_answer_fault(answer, values["context"]):
            return "answer not in its place", reason
        normalized.append(answer)
    return {**values, "answers": normalized}


def find_answer_fault(answer: Mapping[str, Any], context: str) -> str | None:
    """Return why an answer {text, start} is not at its position, or None."""
    text, start = answer["text"], answer["start"]
    if not isinstance(text, str):
        return "an answer without text"
    if not isinstance(start, int) or isinstance(start, bool) or start < 0:
        return f"answer_start {start!r} is not a position"
    if not text.strip():
        return "an empty answer"
    here = context[start : start + len(text)]
    if here != text:
        return f"the context has {here[:40]!r} at {start}, not {text[:40]!r}; fix answer_start"
    return None
