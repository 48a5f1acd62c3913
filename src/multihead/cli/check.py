"""`multihead check`: look at the data before training; a gate with an exit code."""

from __future__ import annotations

import json as jsons
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multihead.cli.verb import verb

if TYPE_CHECKING:
    from multihead.data.check import Finding
    from multihead.run import RunFile

app = verb()
COLOURS = {"stop": "bold red", "warn": "yellow", "note": "dim"}


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A run file.")],
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

    from multihead import run
    from multihead.data import check as checks
    from multihead.train.given import data_of

    console = Console(highlight=False, stderr=json)
    whole = run.read(file, changes or [])
    every = {block.name: whole.alone(block) for block in whole.tasks} or {"": whole}
    screen = console.is_terminal  # a line that is kept is kept whole
    auxiliary = {block.name for block in whole.tasks if block.auxiliary}
    told, stop = [], False
    for name, chosen in every.items():
        readings, _ = data_of(chosen)
        with console.status("reading the data"):
            sides = (readings["train"], readings.get("valid"), readings.get("test"))
            found = missing(chosen) + checks.check(*sides, task=str(chosen.task), hold_out=chosen.data.hold_out)
            if not any(finding.level == "stop" for finding in found):
                found += refused(chosen, name in auxiliary)
        stop = stop or any(finding.level == "stop" for finding in found)
        told += [asdict(finding) | ({"task": name} if name else {}) for finding in found]
        if json:
            continue
        for side, reading in readings.items():
            console.print(escape(f"{f'{name}/' if name else ''}{side}: {reading}"), soft_wrap=True)
        for finding in found:
            place = "" if finding.file is None else f" ({Path(finding.file).name}:{finding.line})"
            colour = COLOURS[finding.level]
            console.print(f"[{colour}]{finding.level}[/]  {escape(finding.message + place)}", soft_wrap=True)
            for example in finding.examples:
                console.print(f"      {escape(example)}", overflow="ellipsis", no_wrap=True, soft_wrap=not screen)
        console.print("nothing found" if not found else "")
    if json:
        print(jsons.dumps(told))
    raise typer.Exit(1 if stop else 0)


def refused(run: RunFile, auxiliary: bool) -> list[Finding]:
    """What training itself would refuse before its first step."""
    from multihead.data.check import Finding
    from multihead.train.given import read_one

    try:
        read_one(run, auxiliary=auxiliary)
    except ValueError as error:
        return [Finding("stop", "refused", str(error))]
    return []


def missing(run: RunFile) -> list[Finding]:
    """Models to start from that are not there; those on the hub are not asked for."""
    from multihead.data.check import Finding
    from multihead.models.hub import PREFIX

    named = run.from_.values() if isinstance(run.from_, dict) else [run.from_ or PREFIX]
    fix = f"name a directory or hub:owner/name, or begin anew: multihead init {run.task} --scratch"
    gone = [str(one) for one in named if not str(one).startswith(PREFIX) and not Path(one).exists()]
    return [Finding("stop", "no model", f"from = {one!r}: no such model; {fix}") for one in gone]
