"""`multihead check`: check the data before training, with an exit code."""

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
COLORS = {"stop": "bold red", "warn": "yellow", "note": "dim"}


@app.command()
def check(
    file: Annotated[str, typer.Argument(help="A run file, or the name of a bundled recipe.")],
    changes: Annotated[list[str] | None, typer.Argument(help="Keys to change: data.train=other.csv")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Check the data of a run for faults that would spoil training or its scores. Exits with 1 on an error.

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
    config = run.read(run_file(file), changes or [])
    task_configs = {block.name: config.for_task(block) for block in config.tasks} or {"": config}
    screen = console.is_terminal  # lines in a file are not shortened
    auxiliary = {block.name for block in config.tasks if block.auxiliary}  # these are not evaluated
    readings: dict[str, Any] = {}
    issues: dict[str, list[DataIssue]] = {}
    with console.status("reading the data"):
        for name, task_config in task_configs.items():
            readings[name], _ = make_splits(task_config)
            sides = (readings[name].get(side) for side in ("train", "valid", "test"))
            issues[name] = missing_models(task_config)
            held_out = task_config.data.hold_out and name not in auxiliary
            if (unlabeled := unlabeled_split(task_config)) is not None:
                readings[name]["unlabelled"] = unlabeled.reading
            issues[name] += checks.check(
                *sides,
                task=task_config.task,
                hold_out=held_out,
                scores=task_config.section.numeric_labels,
                unlabelled=readings[name].get("unlabelled"),
            )
    if not has_errors(issues):
        with console.status("setting up, as training would"):
            for name, more in try_setup(config).items():
                issues[name] += more
    for name, task_issues in {} if json else issues.items():
        for side, reading in readings[name].items():
            console.print(escape(f"{f'{name}/' if name else ''}{side}: {reading}"), soft_wrap=True)
        for issue in task_issues:
            place = "" if issue.file is None else f" ({Path(issue.file).name}:{issue.line})"
            color = COLORS[issue.level]
            console.print(f"[{color}]{issue.level}[/]  {escape(issue.message + place)}", soft_wrap=True)
            for example in issue.examples:
                console.print(f"      {escape(example)}", overflow="ellipsis", no_wrap=True, soft_wrap=not screen)
        console.print("nothing found" if not task_issues else "")
    if json:
        records = [
            asdict(issue) | ({"task": name} if name else {})
            for name, task_issues in issues.items()
            for issue in task_issues
        ]
        print(jsons.dumps(records, allow_nan=False))
    raise typer.Exit(1 if has_errors(issues) else 0)
