"""A file of plain text as one document: line ends are kept; it comes in pieces, so that its size does not matter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from multihead.data.readers.columns import pick_columns
from multihead.data.readers.lines import iterate_lines
from multihead.data.readers.record import FileFacts, ReadOptions, Record, RejectedRow, Row

PIECE = 1 << 16  # characters; cut at a line's end where there is one, else before a space


def read_document(path: Path, options: ReadOptions, found: FileFacts) -> Iterator[Row]:
    """Pieces with where they stand: `at` characters stand before one, the document has `of`."""
    roles = pick_columns(options.columns, ["text"], f"{path}:1")
    total = sum(len(text) for _, text in iterate_lines(path, options.encoding, bare=False) if "\0" not in text)
    found.update(columns=roles, characters=total)
    held, line, at = "", 1, 0

    def record(text: str) -> Record:
        return Record({**dict.fromkeys(roles, text), "at": at, "of": total}, str(path), line)

    for number, text in iterate_lines(path, options.encoding, bare=False):
        if "\0" in text:
            yield RejectedRow(str(path), number, "a NUL character in text", "NUL character")
            continue
        held += text
        while len(held) >= PIECE:
            cut = len(held) if len(held) < 2 * PIECE else max(held.rfind(" ", 0, PIECE), 0) or PIECE
            yield record(held[:cut])
            held, at, line = held[cut:], at + cut, number + 1
    if held:
        yield record(held)
