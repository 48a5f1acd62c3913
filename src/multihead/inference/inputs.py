"""Inputs of a prediction, from lines, JSON and tables: what the command line, Python and the server have in common.

An input that cannot be read keeps its place as a `RejectedInput` with a code, so that answer n is that of input n.
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

KNOWING = ("conll", "squad")  # formats that say themselves what their columns are
# JSON, or meant to be: an object, or an array of them, which is no input; {so} a text may begin, and [so] too.
OBJECT = re.compile(r"[\s\ufeff]*(\[\s*)?\{\s*([\"'}]|$)")
EMPTY = "empty_input"  # the code of an input without text, whatever the format


class InputCounter:
    """How many inputs were read; every one of them has to be answered."""

    def __init__(self) -> None:
        self.inputs = 0

    def count(self, rows: Iterable[Values]) -> Iterator[Values]:
        for values in rows:
            self.inputs += 1
            yield values


def holds_rows(path: Path, task: Task, settings: dict[str, str]) -> bool:
    """Does a file hold something else than an input a line: words with an empty line after each sentence, as taggers
    are given, or one JSON text?"""
    json = path.name.removesuffix(".gz").endswith(".json")
    if not task.spec.tags_words and not json:
        return False
    found = detect(path, ReadOptions(encoding=settings.get("encoding", "utf-8")))
    return found in KNOWING or (json and found == "json")


def find_columns(
    task: Task, files: list[Path], wanted: Sequence[str], named: dict[str, str], settings: dict[str, str]
) -> dict[str, str]:
    """What the wanted columns are called in files: as is said, as in the training data if they are there, as usual."""
    usual = {role: named.get(role, role) for role in wanted}
    trained = usual | {role: name for role, name in task.options.get("columns", {}).items() if role in usual} | named
    if trained != usual:
        with suppress(ValueError):  # those names are not there, or the file has a fault, which is told in its turn
            next(iter(read_records(files, columns=trained, task=task.name, **settings)), None)
            return trained
    return usual


def roles_in(path: Path, task: Task, named: dict[str, str], settings: dict[str, str]) -> dict[str, str] | None:
    """What a table's columns are called; None: the format says it. For a tagger, those with lists of words if there are
    some, else those with text. A table that only reads with the columns of the training data is read with them."""
    if (settings.get("format") or detect(path, ReadOptions(encoding=settings.get("encoding", "utf-8")))) in KNOWING:
        return None
    if task.spec.tags_words and not named:
        with suppress(ValueError):  # there is no such column
            roles = find_columns(task, [path], ("tokens",), {}, settings)
            first = next(iter(read_records(path, columns=roles, **settings)), None)
            if first is not None and isinstance(first.values["tokens"], list):
                return roles
    wanted = (tuple(named) or ("text",)) if task.spec.tags_words else task.inputs
    roles = find_columns(task, [path], wanted, named, settings)
    if named or task.spec.tags_words:
        return roles
    try:
        next(iter(read_records(path, columns=roles, **settings)), None)
    except ValueError:
        with suppress(ValueError):
            whole = find_columns(task, [path], task.columns(), {}, settings)
            next(iter(read_records(path, columns=whole, **settings)), None)
            return whole
    return roles


def read_table(
    path: Path, task: Task, named: dict[str, str], settings: dict[str, str], on_note: Callable[[str], None]
) -> Iterator[Values]:
    """Rows of a table by its columns; one that cannot be used is answered in its place."""
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
                on_note(f"multihead: {row}")  # else answers would be one row off without a word


def survey_tags(path: Path, task: Task, settings: dict[str, str]) -> None:
    """Let a tagger answer in the notation of the tags that a file has, if it has some."""
    if not isinstance(task, Ner):
        return
    with suppress(ValueError):  # a fault of the file is told in its turn
        reading = read_records(path, columns=None, gold=False, **settings)
        if reading.sources[0][1] == "conll":
            next(iter(reading), None)
            task.write_as(reading.notation)
        elif reading.sources[0][1] in LISTS:
            task.survey(record.values for record in reading)


def iterate_inputs(source: InputLines, task: Task, named: dict[str, str], settings: dict[str, str]) -> Iterator[Values]:
    """A line that is a JSON object is taken as one, and any line of a .jsonl file is JSON; any other is the text.
    Answer n is that of line n: an empty one is answered with an error too."""
    encoding = settings.get("encoding", "utf-8")
    if is_wide_encoding(encoding):  # whose lines do not end where bytes say so
        raise ValueError(f"lines of {encoding} are not read here; convert them to UTF-8")
    for number, line in enumerate(source, 1):
        bare = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).rstrip(b"\r\n")
        where = f"line {number}"
        if not bare.strip():
            yield RejectedInput(EMPTY, f"{where}: an empty line")
            continue
        if len(line) > LONGEST_LINE:
            yield RejectedInput("too_long", f"{where}: more than {LONGEST_LINE >> 20} MiB in one line; is this text?")
            continue
        try:
            row = parse_input(bare.decode(encoding), source.json)
            said = task.map_columns(row)
            for role, column in named.items() if isinstance(row, dict) else ():
                if column not in row:
                    raise ValueError(missing_column_error(role, column, list(row), where, numbered=False))
                said[role] = row[column]
            yield {**task.validate(said, where), "line": number}
        except UnicodeDecodeError as error:
            byte = f"byte {bare[error.start]:#04x} at {error.start + 1}"
            yield RejectedInput(
                "bad_encoding",
                f"{where}: {byte} is not {encoding.upper()}; say encoding={guess_encoding(bare)}, or convert it",
            )
        except InvalidLine as error:
            yield RejectedInput("bad_json", f"{where}: {error}")
        except EmptyInput as error:
            yield RejectedInput(EMPTY, str(error))
        except ValueError as error:
            yield RejectedInput("bad_input", str(error))


class InvalidLine(ValueError):
    """A line that is not the JSON it should be."""


def parse_input(text: str, json: bool) -> Any:
    if not json and not OBJECT.match(text):
        return text
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidLine(error) from None
