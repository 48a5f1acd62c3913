"""`multihead evaluate`: how good a model is on data."""

from __future__ import annotations

import json as jsons
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multihead.cli.verb import DEVICE, verb

if TYPE_CHECKING:
    from multihead.data.read import Reading
    from multihead.tasks import Task

app = verb()


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="A model directory.")],
    data: Annotated[Path, typer.Argument(help="A file with gold labels.")],
    columns: Annotated[
        list[str] | None, typer.Argument(help="Columns of other names: label=category; more files; format=pairs")
    ] = None,
    name: Annotated[str | None, typer.Option("--task", help="Of a model with several tasks, the name of one.")] = None,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Score a model on a file, with confidence intervals.

    \b
    Example:
      multihead evaluate runs/intents/model test.csv label=category
      multihead evaluate runs/translate/model test.en test.de
      multihead evaluate runs/several/model questions.csv --task trec
    """
    from rich.console import Console

    from multihead.build import load
    from multihead.report.console import scores_grid, table_views
    from multihead.report.waiting import watched
    from multihead.scores import plain
    from multihead.tasks import predict

    loaded = load(model, task=name).to(device)
    task = loaded.ready()
    console = Console(highlight=False, stderr=json)
    reading = reading_of(task, data, columns or [])
    rows = watched((record.placed for record in reading), f"scoring {data.name}", console)
    scorer = predict.evaluate(loaded.model, task, rows)
    if json:
        print(jsons.dumps(plain(scorer.result())))
        return
    console.print(str(reading))
    console.print(scores_grid(scorer.result(), console.width))
    for view in table_views(scorer.tables(), console.width):
        console.print(view)


def named_of(columns: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Of `label=category`, `format=tsv` …: what columns are called, and how the file is read."""
    named = dict(column.split("=", 1) for column in columns if "=" in column)
    return named, {name: named.pop(name) for name in ("format", "encoding") if name in named}


def reading_of(task: Task, data: Path, columns: list[str]) -> Reading:
    """The rows of files by the task's columns; SQuAD and CoNLL files know theirs."""
    from multihead.data.read import records

    files = [data, *(Path(column) for column in columns if "=" not in column)]
    named, settings = named_of(columns)
    if wrong := next((file for file in files[1:] if not file.exists()), None):
        raise typer.BadParameter(f"{str(wrong)!r} is no file, nor of the form label=category")
    if odd := next((name for name in named if name not in task.columns()), None):
        raise typer.BadParameter(f"{task.name} has no {odd!r}; it has: {', '.join(task.columns())}, format, encoding")
    roles = roles_of(task, files, task.columns(), named, settings)
    known = task.name in ("ner", "answer") and all(role == name for role, name in roles.items())
    return records(files, columns=None if known else roles, task=task.name, **settings)


def roles_of(
    task: Task, files: list[Path], wanted: Sequence[str], named: dict[str, str], settings: dict[str, str]
) -> dict[str, str]:
    """What the wanted columns are called in files: as is said, as in the training data if they are there, as usual."""
    from multihead.data.read import records

    usual = {role: named.get(role, role) for role in wanted}
    trained = usual | {role: name for role, name in task.options.get("columns", {}).items() if role in usual} | named
    if trained != usual:
        with suppress(ValueError):  # those names are not there, or the file has a fault, which is told in its turn
            next(iter(records(files, columns=trained, task=task.name, **settings)), None)
            return trained
    return usual
