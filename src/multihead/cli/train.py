"""`multihead train`: train and evaluate a model from a run file."""

from __future__ import annotations

import json as jsons
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from multihead.cli.app import verb

if TYPE_CHECKING:
    from multihead.config import RunConfig

app = verb()


@app.command()
def train(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="A run file, or a recipe's name; keys to change: train.lr=3e-5")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Without a run file: ner, translate …")] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="Without a run file: the training file; repeat it for two parallel files.")
    ] = None,
    start: Annotated[str | None, typer.Option("--from", help="Without a run file: the model to start from.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over, even if there is a checkpoint to resume from.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON at the end.")] = False,
) -> None:
    """Train a model. Running it again with the same `out` resumes where it stopped.

    \b
    Example:
      multihead train run.toml train.lr=3e-5      (multihead init TASK > run.toml writes one)
      multihead train shakespeare      (comes with its data: also banking77, uner_zh, tatoeba_en_zh …)
      multihead train --task classify --data reviews.csv out=runs/reviews
      multihead train --task translate --data train.en --data train.de
      multihead train several.toml tasks.trec.weight=2      (several [[tasks]] with a shared encoder)
    """
    run = run_of(arguments or [], task, data, start)
    code = run_training(run, fresh=fresh, json=json)
    raise typer.Exit(code)


def run_of(arguments: list[str], task: str | None, data: list[str] | None, start: str | None) -> RunConfig:
    """Return the run of a run file, or one made of flags; further arguments change its keys."""
    from multihead import config as run
    from multihead.recipes import run_file

    files = None if not data else data[0] if len(data) == 1 else jsons.dumps(data)
    if arguments and "=" not in arguments[0]:
        flags = {"--task": ("task", task), "--data": ("data.train", files), "--from": ("from", start)}
        for flag, (key, value) in flags.items():
            if value is not None:
                override = f"{key}={shlex.quote(value)}"
                raise typer.BadParameter(f"{flag} is for runs without a run file; change the file's key: {override}")
        return run.read(run_file(arguments[0]), arguments[1:])
    if task is None or not (data or any(change.startswith("data.train=") for change in arguments)):
        raise typer.BadParameter("name a run file, or give --task and --data; `multihead init TASK` writes a run file")
    named = [f"data.train={jsons.dumps(data[0] if len(data) == 1 else data)}"] if data else []
    changes = [*named, *([f"from={jsons.dumps(start)}"] if start else []), *arguments]
    return run.read(f"task = {jsons.dumps(task)}\n", changes)


def run_training(run: RunConfig, *, fresh: bool = False, json: bool = False) -> int:
    """Train with a progress line, score, write the report; return the exit code."""
    from rich.console import Console

    from multihead.cli.training_output import announce, machine_line, run_steps
    from multihead.io.files import write_bytes
    from multihead.report.build import build_report, collector_of, combine_reports
    from multihead.report.console import show
    from multihead.report.html import render_report
    from multihead.report.progress import show_reading_status
    from multihead.training.run import TrainingRun

    console = Console(stderr=json, highlight=False)
    with show_reading_status(console):
        training = TrainingRun(run, fresh=fresh)
    announce(training, console)
    stopped = run_steps(training, console)
    if stopped:
        # The absolute path on one line: the command may be copied into another directory.
        command = shlex.join(["multihead", "train", str((training.out / "run.toml").absolute())])
        console.print(f"stopped and saved; to resume: {command}", markup=False, soft_wrap=True)
        return 128 + stopped
    mistakes = {
        subject.qualified_name(side): collector_of(subject)
        for subject in training.subjects
        for side in ("valid", "test")
    }
    with console.status("scoring the model"):
        scorers = training.finish(on_row=mistakes)
        scored = [subject for subject in training.subjects if {"valid", "test"} & subject.sides.keys()]
        line = shlex.join(sys.argv), machine_line()
        reports = {subject.name: build_report(training, subject, scorers, mistakes, *line) for subject in scored}
        if several := len(training.subjects) > 1:
            for name, facts in reports.items():
                write_bytes(training.out / f"report-{name}.html", render_report(facts).encode())
        report = combine_reports(training, reports) if several else reports[""]
        write_bytes(training.out / "report.html", render_report(report).encode())
    if json:
        print((training.out / "metrics.json").read_text(encoding="utf-8"))
    else:
        for facts in reports.values():
            show(facts, console)
        places = f"\nmodel   {training.out / 'model'}\nreport  {training.out / 'report.html'}"
        console.print(places, markup=False, soft_wrap=True)
    return 0
