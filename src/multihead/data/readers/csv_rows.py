"""Rows with quoted fields (RFC 4180), where an unclosed quote costs its own line and no later row."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MOST_LINES, MOST_CHARACTERS = 1_000, 1 << 20  # limits of one row; beyond them a quote is unclosed
csv.field_size_limit(1 << 27)  # the module's own limit of 128 KiB rejects long documents


@dataclass(frozen=True, slots=True)
class CsvRow:
    line: int
    last: int  # the row's last line
    cells: list[str]


@dataclass(frozen=True, slots=True)
class CsvError:
    line: int
    reason: str
    code: str


class _LineBuffer:
    """Lines for csv.reader, buffered until their row is complete, so that all but the first can be pushed back."""

    def __init__(self, source: Iterable[tuple[int, str]]) -> None:
        self.source = iter(source)
        self.back: deque[tuple[int, str]] = deque()
        self.taken: list[tuple[int, str]] = []
        self.characters = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if len(self.taken) >= MOST_LINES or (self.taken and self.characters > MOST_CHARACTERS):
            raise StopIteration
        item = self.back.popleft() if self.back else next(self.source)
        self.taken.append(item)
        self.characters += len(item[1])
        return item[1] + "\n"

    def take_row(self) -> list[tuple[int, str]]:
        """Return the lines of the row just read, and start a new row."""
        taken, self.taken, self.characters = self.taken, [], 0
        return taken

    def push_back(self) -> int:
        """Push back all but the first line of the row; return its number."""
        (line, _), *rest = self.take_row()
        self.back.extendleft(reversed(rest))
        return line


def quoted_rows(
    source: Iterable[tuple[int, str]], delimiter: str, widths: frozenset[int] | None
) -> Iterator[CsvRow | CsvError]:
    """Yield the cells of every row; `widths`: allowed numbers of fields of a row over several lines (None: any)."""
    feed = _LineBuffer(source)
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            spans = len(feed.taken)
            line = feed.push_back()
            reader = csv.reader(feed, delimiter=delimiter, strict=True)
            yield _quote_error(line, spans, str(error))
            continue
        if len(feed.taken) > 1 and widths is not None and len(cells) not in widths:
            spans = len(feed.taken)
            yield _quote_error(feed.push_back(), spans, f"{len(cells)} fields")
            continue
        taken = feed.take_row()
        if not cells or (not any(cells) and not any(text.strip() for _, text in taken)):
            yield CsvError(taken[0][0], "an empty line", "empty line")
        else:
            yield CsvRow(taken[0][0], taken[-1][0], cells)


def _quote_error(line: int, spans: int, error: str) -> CsvError:
    if "new-line character" in error:
        return CsvError(line, "a carriage return inside an unquoted field; quote the field or remove it", "stray \\r")
    over = f" over {spans} lines" if spans > 1 else ""
    return CsvError(
        line,
        f'an unclosed or misplaced quote{over} ({error}); double quotes inside a field (""), '
        "or write the rows as JSONL",
        "unclosed quote",
    )
