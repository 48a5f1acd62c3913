"""`multihead check`: look at the data before training; a gate with an exit code."""

from __future__ import annotations

import json as jsons
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multihead.cli.app import verb

if TYPE_CHECKING:
    from multihead.data.validation import DataIssue

app = verb()
COLOURS = {"stop": "bold red", "warn": "yellow", "note": "dim"}


@app.command()
def check(
    file: Annotated[str, typer.Argument(help="A run file, or the name of a bundled recipe.")],
    changes: Annotated[list[str] | None, typer.Argument(help="Keys to change: data.train=other.csv")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Look for what would spoil a run or its scores. Exit code 1 when training should not start.

    \b
    Example:
      multihead check run.toml && multihead train run.toml
    """
    from rich.console import Console
    from rich.markup import escape

    from multihead import config as run
    from multihead.data import validation as checks
    from multihead.recipes import run_file
    from multihead.training.preflight import has_errors, missing_models, try_setup
    from multihead.training.task_data import make_splits, unlabeled_split

    console = Console(highlight=False, stderr=json)
    whole = run.read(run_file(file), changes or [])
    every = {block.name: whole.for_task(block) for block in whole.tasks} or {"": whole}
    screen = console.is_terminal  # a line that is kept is kept whole
    auxiliary = {block.name for block in whole.tasks if block.auxiliary}  # of which nothing is held out
    readings: dict[str, Any] = {}
    found: dict[str, list[DataIssue]] = {}
    with console.status("reading the data"):
        for name, chosen in every.items():
            readings[name], _ = make_splits(chosen)
            sides = (readings[name].get(side) for side in ("train", "valid", "test"))
            found[name] = missing_models(chosen)
            held_out = chosen.data.hold_out and name not in auxiliary
            if (beside := unlabeled_split(chosen)) is not None:
                readings[name]["unlabelled"] = beside.reading
            found[name] += checks.check(
                *sides,
                task=chosen.task,
                hold_out=held_out,
                scores=chosen.section.numeric_labels,
                unlabelled=readings[name].get("unlabelled"),
            )
    if not has_errors(found):
        with console.status("setting up, as training would"):
            for name, more in try_setup(whole).items():
                found[name] += more
    for name, findings in {} if json else found.items():
        for side, reading in readings[name].items():
            console.print(escape(f"{f'{name}/' if name else ''}{side}: {reading}"), soft_wrap=True)
        for finding in findings:
            place = "" if finding.file is None else f" ({Path(finding.file).name}:{finding.line})"
            colour = COLOURS[finding.level]
            console.print(f"[{colour}]{finding.level}[/]  {escape(finding.message + place)}", soft_wrap=True)
            for example in finding.examples:
                console.print(f"      {escape(example)}", overflow="ellipsis", no_wrap=True, soft_wrap=not screen)
        console.print("nothing found" if not findings else "")
    if json:
        told = [asdict(one) | ({"task": name} if name else {}) for name, several in found.items() for one in several]
        print(jsons.dumps(told, allow_nan=False))
    raise typer.Exit(1 if has_errors(found) else 0)
