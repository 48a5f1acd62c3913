"""A plain-text file as one document, with its line ends, read in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from multihead.data.readers.columns import pick_columns
from multihead.data.readers.lines import iterate_lines
from multihead.data.readers.record import FileFacts, ReadOptions, Record, RejectedRow, Row

PIECE = 1 << 16  # characters per chunk; cut at a line end where there is one, else before a space


def read_document(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Yield chunks with their position: `at` characters precede one, the document has `of`."""
    roles = pick_columns(options.columns, ["text"], f"{path}:1")
    total = sum(len(text) for _, text in iterate_lines(path, options.encoding, bare=False) if "\0" not in text)
    facts.update(columns=roles, characters=total)
    buffer, line, at = "", 1, 0

    def record(text: str) -> Record:
        return Record({**dict.fromkeys(roles, text), "at": at, "of": total}, str(path), line)

    for number, text in iterate_lines(path, options.encoding, bare=False):
        if "\0" in text:
            yield RejectedRow(str(path), number, "a NUL character in text", "NUL character")
            continue
        buffer += text
        while len(buffer) >= PIECE:
            cut = len(buffer) if len(buffer) < 2 * PIECE else max(buffer.rfind(" ", 0, PIECE), 0) or PIECE
            yield record(buffer[:cut])
            buffer, at, line = buffer[cut:], at + cut, number + 1
    if buffer:
        yield record(buffer)
