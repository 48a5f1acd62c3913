"""SQuAD's JSON, 1.1 and 2 (questions without an answer), article by article."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from multihead.data.readers.columns import find_fault
from multihead.data.readers.json import InvalidJson, JsonStream
from multihead.data.readers.normalize import find_answer_fault
from multihead.data.readers.record import FileFacts, ReadOptions, Record, RejectedRow, RepairedRow, Row


def read_squad(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Yield questions as {id, title, question, context, answers: [{text, start}], impossible}; offsets in code
    points.
    """
    with JsonStream(path, options.encoding) as stream:
        has_data = False
        for key in _members(stream):
            if key == "data" and stream.peek() == "[":
                has_data = True
                for _ in stream.items():
                    yield from _article(stream, str(path), options.gold)
            else:
                _, value, _ = stream.value()
                if key == "version":
                    facts["version"] = value
        if not has_data:
            raise ValueError(f'{path}:1: no "data" list at the top, so this is not SQuAD\'s JSON; pass format="json"')
        stream.end()


def _members(stream: JsonStream) -> Iterator[str]:
    """Yield at the position of each value of the top object."""
    stream.take("{")
    while stream.peek() != "}":
        _, key, _ = stream.value()
        stream.take(":")
        yield str(key)
        if stream.peek() == ",":
            stream.take(",")
        elif stream.peek() != "}":
            stream.take("}")  # raises with what is there instead
    stream.take("}")


def _article(stream: JsonStream, file: str, gold: bool) -> Iterator[Row]:
    try:
        line, article, text = stream.value()
    except InvalidJson as error:
        yield RejectedRow(file, stream.began, f"{error}; the whole article is rejected", error.code)
        return
    paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
    if not isinstance(paragraphs, list):
        yield RejectedRow(file, line, 'an article without a list "paragraphs"', "not SQuAD")
        return
    at, here, marked = 0, line, True
    for paragraph in paragraphs:
        if not isinstance(paragraph, dict) or not isinstance(paragraph.get("qas"), list):
            yield RejectedRow(file, line, 'a paragraph without a list "qas"', "not SQuAD")
            continue
        for question in paragraph["qas"]:
            # The question's own line: its id is in the article's text, after that of the previous question. An id
            # that is not found is escaped differently (a\/b), as all are: each search would scan the full article.
            if marked and isinstance(question, dict) and question.get("id") is not None:
                to = text.find(json.dumps(question["id"], ensure_ascii=False), at)
                marked = to >= 0
                at, here = (to, here + text.count("\n", at, to)) if marked else (at, here)
            about = {"context": paragraph.get("context"), "title": article.get("title")}
            yield from _question(question, about, (file, here), gold)


def _question(question: Any, about: dict[str, Any], place: tuple[str, int], gold: bool) -> Iterator[Row]:
    file, line = place
    if not isinstance(question, dict):
        yield RejectedRow(file, line, "a question that is not an object", "not SQuAD")
        return
    name = f"question {question.get('id')!r}"
    values = {"question": question.get("question"), "context": about["context"]}
    if fault := find_fault(values):
        yield RejectedRow(file, line, f"{name}: {fault[1]}", fault[0])
        return
    values |= {"id": question.get("id"), "title": about["title"]}
    if not gold:
        yield Record(values, file, line)
        return
    impossible = question.get("is_impossible", False)
    raw_answers = question.get("answers")
    if not isinstance(raw_answers, list):
        yield RejectedRow(file, line, f'{name} has no list "answers"', "no answers")
        return
    if bool(raw_answers) == bool(impossible):
        what = "is impossible but has answers" if raw_answers else "has no answer and is not marked is_impossible"
        yield RejectedRow(file, line, f"{name} {what}", "no answers" if not raw_answers else "contradiction")
        return
    answers, reasons = [], []
    for raw_answer in raw_answers:
        fields = raw_answer if isinstance(raw_answer, dict) else {}
        answer = {"text": fields.get("text"), "start": fields.get("answer_start")}
        reason = find_answer_fault(answer, values["context"])
        if reason is None:
            answers.append(answer)
            continue
        reasons.append(reason)
        if len(raw_answers) > 1:
            yield RepairedRow(file, line, f"{name}: an answer is dropped: {reason}", "answer not in its place")
    if reasons and not answers:
        yield RejectedRow(file, line, f"{name}: {reasons[0]}", "answer not in its place")
        return
    values |= {"answers": answers, "impossible": bool(impossible)}
    yield Record(values, file, line)
