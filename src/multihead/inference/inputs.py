"""Prediction inputs from lines, JSON and tables, shared by the command line, Python and the server.

An input that cannot be parsed keeps its place as a `RejectedInput` with a code, so that prediction n belongs to input
n.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from multihead.data.readers.columns import missing_column_error
from multihead.data.readers.csv import HEADER
from multihead.data.readers.detect import detect
from multihead.data.readers.json import parse
from multihead.data.readers.lines import LONGEST_LINE, guess_encoding, is_wide_encoding
from multihead.data.readers.read import LISTS, read_records
from multihead.data.readers.record import ReadOptions, Record, RejectedRow, RepairedRow
from multihead.inference.engine import RejectedInput
from multihead.inference.input_lines import InputLines
from multihead.tasks.ner import Ner
from multihead.tasks.task import EmptyInput, Task, Values

KNOWING = ("conll", "squad")  # formats that define their columns
# JSON, or intended as JSON: an object, or an array of them, which is not an input; a text may begin {so} or [so] too.
OBJECT = re.compile(r"[\s\ufeff]*(\[\s*)?\{\s*([\"'}]|$)")
EMPTY = "empty_input"  # error code of an input without text, in any format


class InputCounter:
    """Counter of inputs; every one of them has a prediction."""

    def __init__(self) -> None:
        self.inputs = 0

    def count(self, rows: Iterable[Values]) -> Iterator[Values]:
        for values in rows:
            self.inputs += 1
            yield values


def holds_rows(path: Path, task: Task, settings: dict[str, str]) -> bool:
    """Whether a file holds something else than one input per line: CoNLL columns with an empty line after each
    sentence, or one JSON document."""
    json = path.name.removesuffix(".gz").endswith(".json")
    if not task.spec.tags_words and not json:
        return False
    format_ = detect(path, ReadOptions(encoding=settings.get("encoding", "utf-8")))
    return format_ in KNOWING or (json and format_ == "json")


def find_columns(
    task: Task, files: list[Path], requested: Sequence[str], named: dict[str, str], settings: dict[str, str]
) -> dict[str, str]:
    """Return the names of the requested columns: as named, as in the training data if present, or the default."""
    usual = {role: named.get(role, role) for role in requested}
    trained = usual | {role: name for role, name in task.options.get("columns", {}).items() if role in usual} | named
    if trained != usual:
        with suppress(ValueError):  # missing columns, or a fault of the file that is reported later
            next(iter(read_records(files, columns=trained, task=task.name, **settings)), None)
            return trained
    return usual


def roles_in(path: Path, task: Task, named: dict[str, str], settings: dict[str, str]) -> dict[str, str] | None:
    """Return the column names of a table; None: defined by the format. For a tagger, columns with lists of words if
    present, else text. A table that can only be read with the columns of the training data is read with them."""
    if (settings.get("format") or detect(path, ReadOptions(encoding=settings.get("encoding", "utf-8")))) in KNOWING:
        return None
    if task.spec.tags_words and not named:
        with suppress(ValueError):  # no such column
            roles = find_columns(task, [path], ("tokens",), {}, settings)
            first = next(iter(read_records(path, columns=roles, **settings)), None)
            if first is not None and isinstance(first.values["tokens"], list):
                return roles
    requested = (tuple(named) or ("text",)) if task.spec.tags_words else task.inputs
    roles = find_columns(task, [path], requested, named, settings)
    if named or task.spec.tags_words:
        return roles
    try:
        next(iter(read_records(path, columns=roles, **settings)), None)
    except ValueError:
        with suppress(ValueError):
            columns = find_columns(task, [path], task.columns(), {}, settings)
            next(iter(read_records(path, columns=columns, **settings)), None)
            return columns
    return roles


def read_table(
    path: Path, task: Task, named: dict[str, str], settings: dict[str, str], on_note: Callable[[str], None]
) -> Iterator[Values]:
    """Yield rows of a table by its columns; an unusable row becomes a RejectedInput in its place."""
    reading = read_records(path, columns=roles_in(path, task, named, settings), task=task.name, gold=False, **settings)
    for _, _, rows in reading.sources:
        for row in rows({}):
            if isinstance(row, Record):
                try:
                    yield {**task.validate(task.map_columns(row.values), f"line {row.line}"), "line": row.line}
                except EmptyInput as error:
                    yield RejectedInput(EMPTY, str(error))
                except ValueError as error:
                    yield RejectedInput("bad_input", str(error))
            elif isinstance(row, RejectedRow):
                yield RejectedInput(
                    EMPTY if row.code.startswith("empty") else "bad_row", f"line {row.line}: {row.reason}"
                )
            elif isinstance(row, RepairedRow) and row.code == HEADER:
                on_note(f"multihead: {row}")  # otherwise predictions would silently be one row off


def survey_tags(path: Path, task: Task, settings: dict[str, str]) -> None:
    """Make a tagger predict in the notation of the tags in a file, if it has any."""
    if not isinstance(task, Ner):
        return
    with suppress(ValueError):  # a fault of the file is reported later
        reading = read_records(path, columns=None, gold=False, **settings)
        if reading.sources[0][1] == "conll":
            next(iter(reading), None)
            task.write_as(reading.notation)
        elif reading.sources[0][1] in LISTS:
            task.survey(record.values for record in reading)


def iterate_inputs(source: InputLines, task: Task, named: dict[str, str], settings: dict[str, str]) -> Iterator[Values]:
    """Yield one input per line: JSON objects as such (every line of a .jsonl file is JSON), any other line as text.
    Prediction n belongs to line n: an empty line yields an error too."""
    encoding = settings.get("encoding", "utf-8")
    if is_wide_encoding(encoding):  # its line ends are not single bytes
        raise ValueError(f"lines in {encoding} are not supported; convert the file to UTF-8")
    for number, line in enumerate(source, 1):
        bare = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).rstrip(b"\r\n")
        where = f"line {number}"
        if not bare.strip():
            yield RejectedInput(EMPTY, f"{where}: empty line")
            continue
        if len(line) > LONGEST_LINE:
            yield RejectedInput("too_long", f"{where}: more than {LONGEST_LINE >> 20} MiB in one line; is this text?")
            continue
        try:
            row = parse_input(bare.decode(encoding), source.json)
            mapped = task.map_columns(row)
            for role, column in named.items() if isinstance(row, dict) else ():
                if column not in row:
                    raise ValueError(missing_column_error(role, column, list(row), where, numbered=False))
                mapped[role] = row[column]
            yield {**task.validate(mapped, where), "line": number}
        except UnicodeDecodeError as error:
            byte = f"byte {bare[error.start]:#04x} at {error.start + 1}"
            yield RejectedInput(
                "bad_encoding",
                f"{where}: {byte} is not {encoding.upper()}; set encoding={guess_encoding(bare)}, or convert it",
            )
        except InvalidLine as error:
            yield RejectedInput("bad_json", f"{where}: {error}")
        except EmptyInput as error:
            yield RejectedInput(EMPTY, str(error))
        except ValueError as error:
            yield RejectedInput("bad_input", str(error))


class InvalidLine(ValueError):
    """Line that should be JSON and is not."""


def parse_input(text: str, json: bool) -> Any:
    if not json and not OBJECT.match(text):
        return text
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidLine(error) from None
