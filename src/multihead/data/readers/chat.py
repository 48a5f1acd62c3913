"""Conversations from JSON Lines or an array: {messages: [{role, content}, …]} each, or {prompt, response} or {prompt,
completion}, which are two messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from multihead.data.readers.columns import Fault
from multihead.data.readers.detect import detect
from multihead.data.readers.json import read_json_array, read_jsonl
from multihead.data.readers.record import FileFacts, ReadOptions, Record, RejectedRow, Row

ROLES = ("system", "user", "assistant")
ANSWERS = ("response", "completion")


def read_conversations(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Yield records with the messages as `conversation`."""
    names = _keys(path, options)
    roles = _pick_keys(names)
    if not roles:
        shown = ", ".join(names[:20]) or "nothing"
        raise ValueError(
            f"{path}:1: not a conversation; use the key messages, or prompt and {' or '.join(ANSWERS)}; "
            f"the file has: {shown}"
        )
    for row in _rows(path, replace(options, columns=roles), facts):
        yield _conversation(row) if isinstance(row, Record) else row


def has_conversations(path: Path, options: ReadOptions) -> bool:
    """Return whether a JSON file holds conversations; not if it has the requested text column."""
    names = _keys(path, options)
    return (options.columns or {}).get("text", "text") not in names and bool(_pick_keys(names))


def _rows(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    read = read_json_array if detect(path, options) == "json" else read_jsonl
    return read(path, options, facts)


def _keys(path: Path, options: ReadOptions) -> list[str]:
    """Return the keys of the first rows together."""
    facts: FileFacts = {}
    next(_rows(path, replace(options, columns=None), facts), None)
    return list(facts.get("names", []))


def _pick_keys(names: Sequence[str]) -> dict[str, str]:
    """Return role -> key; in a file with both forms, the messages."""
    if "messages" in names:
        return {"messages": "messages"}
    answer = next((name for name in ANSWERS if name in names), None)
    return {"asked": "prompt", "answered": answer} if answer and "prompt" in names else {}


def _conversation(row: Record) -> Row:
    values = row.values
    messages = values.get("messages")
    if "asked" in values:
        pair = (("user", values["asked"]), ("assistant", values["answered"]))
        messages = [{"role": role, "content": content} for role, content in pair]
    if fault := find_chat_fault(messages):
        return RejectedRow(row.file, row.line, fault[1], fault[0])
    return replace(row, values={"conversation": messages})


def find_chat_fault(messages: Any) -> Fault | None:
    """Return the fault of a training conversation, or None."""
    if not isinstance(messages, list) or not messages:
        what = "empty" if messages == [] else f"a JSON {type(messages).__name__}"
        return "no list of messages", f"messages is {what}; use a list of {{role: …, content: …}}"
    for number, message in enumerate(messages, 1):
        if fault := _fault_of_one(message, f"message {number}"):
            return fault
    if all(message["role"] != "assistant" for message in messages):
        return "no assistant turn", "no message is the assistant's, so there is nothing to learn"
    return None


def _fault_of_one(message: Any, name: str) -> Fault | None:
    if not isinstance(message, dict):
        return "not a message", f"{name} is a JSON {type(message).__name__}; use {{role: …, content: …}}"
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        return "unknown role", f"{name} has the role {role!r}; known: {', '.join(ROLES)}"
    if content is None or (isinstance(content, str) and not content.strip()):
        return "empty content", f"{name} ({role}) is empty"
    if not isinstance(content, str):
        kind = type(content).__name__
        return "content is not text", f"{name} ({role}): its content is a JSON {kind}; use a string"
    return ("NUL character", f"a NUL character in {name} ({role})") if "\0" in content else None
