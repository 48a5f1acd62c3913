"""CSV and TSV files: delimiter, quoting and header are detected or given, and reported; a broken row affects no other.

pyarrow's CSV reader neither names the line of a bad row nor survives an unclosed quote, so the csv module parses here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from multihead.data.readers.columns import FILLED, pick_columns
from multihead.data.readers.csv_rows import CsvError, quoted_rows
from multihead.data.readers.headers import find_header
from multihead.data.readers.lines import iterate_lines
from multihead.data.readers.normalize import normalize_rows
from multihead.data.readers.record import FileFacts, ReadOptions, RejectedRow, RepairedRow, Row

HEADER = "first row taken as the header"
DELIMITERS = ("\t", ",", ";", "|")
NAMES = {"comma": ",", "tab": "\t", "semicolon": ";", "bar": "|"}
SAID = re.compile(r"sep=(\W)", re.IGNORECASE)  # Excel's first line, which names the delimiter
FEWER = 10  # times fewer uneven rows: quotes are delimiters
COMMON = 0.01  # share of rows that makes a number of fields a shape of the file, not a slip
WELL_QUOTED = re.compile(r'"(?:[^"]|"")*"')


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How a delimited file is laid out. `widths`: the numbers of fields that a row may have."""

    delimiter: str
    quoting: bool
    header: bool
    names: list[str]
    widths: frozenset[int]
    guessed: bool = False  # nothing in the file proves a header


def read_csv(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Yield the rows of a CSV or TSV file, one Record each."""
    shape = detect_dialect(path, options)
    roles = pick_columns(options.columns, shape.names, f"{path}:1")
    numbers = {role: shape.names.index(name) for role, name in roles.items()}
    facts.update(
        delimiter=shape.delimiter,
        quoting=shape.quoting,
        header=shape.header,
        names=shape.names,
        columns=roles,
    )
    least = 1 + max(numbers.values()) if options.columns else 0
    rows = iterate_cells(path, shape, options.encoding)
    header = shape.header
    for row in rows:
        if isinstance(row, RejectedRow | RepairedRow):
            yield row
            continue
        line, cells = row
        if header:
            header = False
            if shape.guessed:
                reason = "taken as names of columns; if it is a row, write a line of names above it"
                yield RepairedRow(str(path), line, reason, HEADER)
            continue
        if len(cells) not in shape.widths or len(cells) < least:
            expected = " or ".join(str(n) for n in sorted(shape.widths))
            reason = f"{len(cells)} fields instead of {expected} (delimiter {shape.delimiter!r})"
            yield RejectedRow(str(path), line, reason, "wrong number of fields")
            continue
        if options.columns is None:  # columns beyond the named ones are called by their number
            values = {shape.names[i] if i < len(shape.names) else str(i + 1): cell for i, cell in enumerate(cells)}
        else:
            values = {role: cells[i] for role, i in numbers.items()}
        if not FILLED.intersection(values) and not any(cell.strip() for cell in cells):
            yield RejectedRow(str(path), line, "every field is empty", "empty line")
        else:
            yield from normalize_rows(values, options, str(path), line)


def iterate_cells(
    path: Path, shape: CsvDialect, encoding: str
) -> Iterator[tuple[int, list[str]] | RejectedRow | RepairedRow]:
    """Yield (line, cells) of every row, or why a line is not one."""
    if not shape.quoting:
        for line, text in _lines(path, encoding):
            if not text.strip():
                yield RejectedRow(str(path), line, "an empty line", "empty line")
            elif "\0" in text:
                yield RejectedRow(str(path), line, "a NUL character", "NUL character")
            else:
                yield line, text.split(shape.delimiter)
        return
    for row in quoted_rows(_lines(path, encoding), shape.delimiter, shape.widths):
        if isinstance(row, CsvError):
            yield RejectedRow(str(path), row.line, row.reason, row.code)
        elif any("\0" in cell for cell in row.cells):
            yield RejectedRow(str(path), row.line, "a NUL character", "NUL character")
        else:
            if row.last > row.line:
                reason = (
                    f"one row over lines {row.line} to {row.last}: quoted line ends, or a quote not closed in its line"
                )
                yield RepairedRow(str(path), row.line, reason, "row over several lines")
            yield row.line, row.cells


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield the file's lines without Excel's `sep=;`."""
    return ((line, text) for line, text in iterate_lines(path, encoding) if line > 1 or not SAID.fullmatch(text))


def detect_dialect(path: Path, options: ReadOptions) -> CsvDialect:
    """Detect the layout of the file; options take precedence."""
    head = [text for _, text in islice(_lines(path, options.encoding), 200) if text.strip()]
    if not head:
        raise ValueError(f"{path}:1: nothing but empty lines; write it again")
    sep_line = SAID.fullmatch(next(iterate_lines(path, options.encoding))[1])
    delimiter = sep_line[1] if sep_line and options.delimiter is None else _delimiter(options, head)
    counts: Counter[int] = Counter()
    quoting = options.quoting
    if delimiter == "\t":
        counts, quoted = _survey(path, options.encoding)
        quoting = quoted if quoting is None else quoting
    quoting = True if quoting is None else quoting
    if quoting:
        parsed = quoted_rows(enumerate(head, 1), delimiter, None)
        first = next((row.cells for row in parsed if not isinstance(row, CsvError)), None)
        if first is None:
            raise ValueError(
                f"{path}:1: no whole row in the first lines: an unclosed quote? close it, or write the rows as JSONL"
            )
    else:
        first = head[0].split(delimiter)
    first = [cell.strip() for cell in first]
    header, guessed = options.header, False
    if header is None:
        rows = iterate_cells(
            path, CsvDialect(delimiter, quoting, True, first, frozenset({len(first)})), options.encoding
        )
        later = (row[1] for row in rows if not isinstance(row, RejectedRow | RepairedRow))
        header, guessed = find_header(first, later, options.columns, f"{path}:1")
    names = [name or str(i) for i, name in enumerate(first, 1)] if header else [str(i + 1) for i in range(len(first))]
    if twice := next((name for name, count in Counter(names).items() if count > 1), None):
        raise ValueError(f"{path}:1: two columns are named {twice!r}; rename one")
    widths = frozenset({len(names)})
    if not header:
        names = _named_by_role(names, options)
        if counts and not quoting:
            total = counts.total()
            widths |= {n for n, count in counts.items() if count >= COMMON * total and n >= len(names)}
    return CsvDialect(delimiter, quoting, header, names, widths, guessed)


def _named_by_role(names: list[str], options: ReadOptions) -> list[str]:
    """Return the roles as column names where a file without header has as many columns as roles."""
    columns = options.columns or {}
    if len(columns) == len(names) and not any(column.isdecimal() for column in columns.values()):
        return list(columns.values())
    return names


def _delimiter(options: ReadOptions, head: list[str]) -> str:
    if options.delimiter is not None:
        delimiter = NAMES.get(options.delimiter, options.delimiter)
        if len(delimiter) != 1:
            raise ValueError(f"delimiter is one character, not {options.delimiter!r}; or tab, comma, semicolon, bar")
        return delimiter
    # The delimiter that splits every row into the most fields; tabs are counted without quoting.
    least = {"\t": min(text.count("\t") for text in head)}
    for delimiter in DELIMITERS[1:]:
        rows = [row for row in quoted_rows(enumerate(head, 1), delimiter, None) if not isinstance(row, CsvError)]
        least[delimiter] = min((len(row.cells) - 1 for row in rows), default=0)
    best = max(DELIMITERS, key=lambda delimiter: least[delimiter])
    if least[best]:
        return best
    # No delimiter is in every row: use the first line's, and reject the other rows.
    return max(DELIMITERS, key=lambda delimiter: (head[0].count(delimiter), delimiter == ","))


def _survey(path: Path, encoding: str) -> tuple[Counter[int], bool]:
    """Numbers of fields by tabs, and whether quotes are marks: all quoted fields well formed, some with \"\" inside; or
    they hold together lines that tabs alone cut unevenly."""
    counts: Counter[int] = Counter()
    doubled, plain = 0, 0
    for _, text in _lines(path, encoding):
        if not text.strip():
            continue
        counts[text.count("\t") + 1] += 1
        if '"' in text:
            for cell in text.split("\t"):
                if cell.startswith('"'):
                    if WELL_QUOTED.fullmatch(cell):
                        doubled += '""' in cell[1:-1]
                    else:
                        plain += 1
    uneven = counts.total() - max(counts.values())
    if plain and uneven:
        return counts, _is_better_quoted(path, encoding, uneven)
    return counts, doubled > 0 and plain == 0


def _is_better_quoted(path: Path, encoding: str, uneven: int) -> bool:
    """Return whether far fewer rows are uneven with quoting; a cell with line ends and tabs means merged rows."""
    width, count = 0, 0
    for row in quoted_rows(_lines(path, encoding), "\t", None):
        if isinstance(row, CsvError):
            count += row.code != "empty line"
        else:
            width = width or len(row.cells)
            count += len(row.cells) != width or any("\n" in cell and "\t" in cell for cell in row.cells)
        if FEWER * count > uneven:
            return False
    return True
