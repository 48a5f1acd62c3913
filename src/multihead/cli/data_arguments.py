"""Data arguments of commands: FILE, more files, text=review, format=tsv."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from multihead.data.readers.read import DataReader
    from multihead.inference import Pipeline
    from multihead.tasks import Task, Values


SETTINGS = ("format", "encoding")


def parse_columns(columns: list[str], settings: Sequence[str] = SETTINGS) -> tuple[dict[str, str], dict[str, str]]:
    """Split `label=category`, `format=tsv` … into column names and reader settings."""
    named = dict(column.split("=", 1) for column in columns if "=" in column)
    return named, {name: named.pop(name) for name in settings if name in named}


def override_generation(task: Task, arguments: list[str]) -> list[str]:
    """Apply `decode.beam=1` … to the generation settings of this command; return the other arguments."""
    from multihead.config import read
    from multihead.config.decode_sections import DecodeSection
    from multihead.config.toml import format_toml
    from multihead.tasks.generate import Generate
    from multihead.tasks.translate import Translate

    overrides = [argument for argument in arguments if argument.startswith("decode.")]
    if overrides:
        if not isinstance(task, Generate | Translate):
            raise typer.BadParameter(f"{overrides[0]!r}: {task.name} does not generate text; remove it")
        known = {"beam": 1} | {
            name: value for name, value in task.settings.items() if name in DecodeSection.model_fields
        }
        lines = [f"{name} = {format_toml(value)}" for name, value in known.items() if value is not None]
        toml = [
            "from = 'here'",
            f"task = {format_toml(task.name)}",
            "[data]",
            "train = 'rows'",
            "[decode]",
            *lines,
            "",
        ]
        changed = read("\n".join(toml), overrides).decode.model_dump()
        names = [argument.partition("=")[0].removeprefix("decode.").strip() for argument in overrides]
        task.options["decode"] = task.settings | {name: changed[name] for name in names}
    return [argument for argument in arguments if argument not in overrides]


def open_reader(task: Task, data: Path, columns: list[str]) -> DataReader:
    """Return a reader of files by the task's columns; SQuAD and CoNLL files define their own."""
    from multihead.data.readers.read import has_column, read_records
    from multihead.data.readers.tag_schemes import SCHEMES
    from multihead.inference.inputs import find_columns

    files = [data, *(Path(column) for column in columns if "=" not in column)]
    known = (*SETTINGS, "scheme") if task.spec.tags_words else SETTINGS
    # The error about a file with mixed schemes names the run file's key, ner.scheme.
    named, settings = parse_columns([column.removeprefix("ner.") for column in columns], known)
    if wrong := next((file for file in files[1:] if not file.exists()), None):
        raise typer.BadParameter(f"{str(wrong)!r} is neither a file nor of the form label=category")
    if odd := next((name for name in named if name not in (*task.columns(), *task.judges)), None):
        raise typer.BadParameter(f"{task.name} has no {odd!r}; it has: {', '.join((*task.columns(), *known))}")
    if settings.get("scheme", SCHEMES[0]) not in SCHEMES:
        raise typer.BadParameter(f"unknown scheme {settings['scheme']!r}; use one of: {', '.join(SCHEMES)}")
    judges = [role for role in task.judges if role in named or has_column(files, role, **settings)]
    roles = find_columns(task, files, (*task.columns(), *judges), named, settings)
    usual = task.spec.self_describing and all(role == name for role, name in roles.items())
    return read_records(files, columns=None if usual else roles, task=task.name, **settings)


def rows_to_score(reading: DataReader) -> Iterator[Values]:
    """Yield the examples with their places; raise ValueError with the reading statistics where none can be used."""
    for record in reading:
        yield record.placed
    if not reading.used:
        files = ", ".join(file for file, _, _ in reading.sources)
        raise ValueError(f"{files}: no example to score\n{reading}")


def print_faults(reading: DataReader) -> None:
    """Print rejected and repaired examples to stderr, with the reason, as stdout may be read by a program."""
    if reading.rejected or reading.repaired:
        print(reading, file=sys.stderr)


def rows_of(loaded: Pipeline, data: Path, columns: list[str] | None, limit: int | None, gold: bool) -> Iterator[Values]:
    """Return at most `limit` examples of a file; gold: with the labels of the model's task."""
    from multihead.data.readers.read import read_records
    from multihead.inference.inputs import find_columns
    from multihead.tasks import SPECS

    if gold or any("=" not in column for column in columns or []):  # a source and its target, as two files
        reading = open_reader(loaded.make_task(), data, columns or [])
    else:
        named, settings = parse_columns(columns or [])
        if loaded.options.get("columns"):
            task = loaded.make_task()
            named = find_columns(task, [data], task.inputs, named, settings)
        # As for training: plain text is one document, JSON may hold conversations.
        kind = loaded.task if loaded.task and SPECS[loaded.task].documents else ""
        reading = read_records(data, columns=named or None, task=kind, **settings)
    return islice((record.values for record in reading), limit)


def by_task(
    model: str, names: Sequence[str], arguments: list[str], limit: int | None
) -> dict[str, tuple[Pipeline, Iterator[Values]]]:
    """Parse `sst2=dev.tsv text=sentence trec=TREC.test …`: return for each task its model and its examples."""
    from multihead.pretrained import load

    parts: dict[str, list[str]] = {}
    for argument in arguments:
        name, _, rest = argument.partition("=")
        if name in names:
            parts[name] = [rest]
        else:
            parts[next(reversed(parts))].append(argument)
    opened = {name: load(model, task=name) for name in parts}
    return {
        name: (opened[name], rows_of(opened[name], Path(file), columns, limit, gold=True))
        for name, (file, *columns) in parts.items()
    }
