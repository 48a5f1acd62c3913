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


def read_squad(path: Path, options: ReadOptions, found: FileFacts) -> Iterator[Row]:
    """Questions as {id, title, question, context, answers: [{text, start}], impossible}; offsets in code points."""
    with JsonStream(path, options.encoding) as stream:
        seen = False
        for key in _members(stream):
            if key == "data" and stream.peek() == "[":
                seen = True
                for _ in stream.items():
                    yield from _article(stream, str(path), options.gold)
            else:
                _, value, _ = stream.value()
                if key == "version":
                    found["version"] = value
        if not seen:
            raise ValueError(f'{path}:1: no "data" list at the top, so this is not SQuAD\'s JSON; pass format="json"')
        stream.end()


def _members(stream: JsonStream) -> Iterator[str]:
    """Stands before each value of the top object in turn."""
    stream.take("{")
    while stream.peek() != "}":
        _, key, _ = stream.value()
        stream.take(":")
        yield str(key)
        if stream.peek() == ",":
            stream.take(",")
        elif stream.peek() != "}":
            stream.take("}")  # says what is there instead
    stream.take("}")


def _article(stream: JsonStream, file: str, gold: bool) -> Iterator[Row]:
    try:
        line, article, text = stream.value()
    except InvalidJson as error:
        yield RejectedRow(file, stream.began, f"{error}; the whole article is refused", error.code)
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
            # The question's own line: its id stands in the article's text, after that of the question before. An id
            # that is not found is written otherwise (a\/b), as all are: each search would go to the article's end.
            if marked and isinstance(question, dict) and question.get("id") is not None:
                to = text.find(json.dumps(question["id"], ensure_ascii=False), at)
                marked = to >= 0
                at, here = (to, here + text.count("\n", at, to)) if marked else (at, here)
            about = {"context": paragraph.get("context"), "title": article.get("title")}
            yield from _question(question, about, (file, here), gold)


def _question(question: Any, about: dict[str, Any], place: tuple[str, int], gold: bool) -> Iterator[Row]:
    file, line = place
    if not isinstance(question, dict):
        yield RejectedRow(file, line, "a question that is no object", "not SQuAD")
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
    given = question.get("answers")
    if not isinstance(given, list):
        yield RejectedRow(file, line, f'{name} has no list "answers"', "no answers")
        return
    if bool(given) == bool(impossible):
        what = "is impossible but has answers" if given else "has no answer and is not marked is_impossible"
        yield RejectedRow(file, line, f"{name} {what}", "no answers" if not given else "contradiction")
        return
    answers, reasons = [], []
    for answer in given:
        one = answer if isinstance(answer, dict) else {}
        found = {"text": one.get("text"), "start": one.get("answer_start")}
        reason = find_answer_fault(found, values["context"])
        if reason is None:
            answers.append(found)
            continue
        reasons.append(reason)
        if len(given) > 1:
            yield RepairedRow(file, line, f"{name}: an answer is dropped: {reason}", "answer not in its place")
    if reasons and not answers:
        yield RejectedRow(file, line, f"{name}: {reasons[0]}", "answer not in its place")
        return
    values |= {"answers": answers, "impossible": bool(impossible)}
    yield Record(values, file, line)
