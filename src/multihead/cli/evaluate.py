"""`multihead evaluate`: score a model on a labeled dataset."""

from __future__ import annotations

import json as jsons
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.app import DEVICE, PRECISION, verb
from multihead.cli.data_arguments import open_reader, override_generation, print_faults, rows_to_score

app = verb()


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="A model directory.")],
    data: Annotated[Path, typer.Argument(help="A file with gold labels.")],
    columns: Annotated[
        list[str] | None,
        typer.Argument(
            help="Columns with other names than in training: label=category; more files; format=pairs; scheme=IOB1; "
            "decode.beam=1"
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--task", help="The task to score, if the model has several.")] = None,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
    precision: Annotated[str, typer.Option(help=PRECISION)] = "fp32",
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

    from multihead.inference import engine
    from multihead.metrics import to_json
    from multihead.pretrained import load
    from multihead.report.console import scores_grid, table_views
    from multihead.report.status import track

    loaded = load(model, task=name).to(device, precision)
    task = loaded.make_task()
    console = Console(highlight=False, stderr=json)
    reading = open_reader(task, data, override_generation(task, columns or []))
    rows = track(rows_to_score(reading), f"scoring {data.name}", console)
    scorer = engine.evaluate(loaded.model, task, rows, precision=loaded.precision)
    if json:
        print_faults(reading)
        print(jsons.dumps(to_json(scorer.result()), allow_nan=False))
        return
    console.print(str(reading), markup=False)  # a file may be called [old].csv
    console.print(scores_grid(scorer.result(), console.width))
    for view in table_views(scorer.tables(), console.width):
        console.print(view)
