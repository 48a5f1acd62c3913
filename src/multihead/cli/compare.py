"""`multihead compare`: compare two models on the same data, with a significance test."""

from __future__ import annotations

import json as jsons
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multihead.cli.app import DEVICE, PRECISION, verb
from multihead.cli.data_arguments import open_reader, print_faults, rows_to_score

if TYPE_CHECKING:
    from multihead.inference import Pipeline

app = verb()


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="A model directory.")],
    second: Annotated[str, typer.Argument(help="Another one, for the same task.")],
    data: Annotated[Path, typer.Argument(help="A file with gold labels.")],
    columns: Annotated[
        list[str] | None,
        typer.Argument(help="Columns with other names than in training: label=category; scheme=IOB1"),
    ] = None,
    show: Annotated[int, typer.Option(help="How many flipped answers to print.")] = 5,
    name: Annotated[str | None, typer.Option("--task", help="The task to compare, if the models have several.")] = None,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
    precision: Annotated[str, typer.Option(help=PRECISION)] = "fp32",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Compare two models on the same examples, with a paired significance test.

    \b
    Example:
      multihead compare runs/a/model runs/b/model test.csv
    """
    from rich.console import Console
    from rich.markup import escape

    from multihead.inference.engine import scored_predictions
    from multihead.metrics import count_flips, to_json
    from multihead.report.comparison import check_comparable, difference_of, same_tokens, shorten_prediction, verdict
    from multihead.report.status import track

    console = Console(highlight=False, stderr=json)
    models = [open_task(model, name).to(device, precision) for model in (first, second)]
    tasks = [model.make_task() for model in models]
    if tasks[0].name != tasks[1].name:
        raise ValueError(
            f"{first} was trained for {tasks[0].name}, {second} for {tasks[1].name}; give two models of one task"
        )
    # If only one model was trained with labels, it defines the positive label of both.
    teller = next((task for task in tasks if task.gold), tasks[0])
    for task in tasks:
        if task.judges and teller.gold and "positive" in teller.options:
            task.options["positive"] = teller.options["positive"]
    scorers = [task.scorer() for task in tasks]
    if scorers[0].main != scorers[1].main:
        raise ValueError(
            f"{first} is scored by {scorers[0].main}, {second} by {scorers[1].main}: {teller.name} in two ways that "
            f"share no score; train both with the same [{teller.name}] section, or score each by itself: multihead "
            "evaluate MODEL FILE"
        )
    readings = [open_reader(teller, data, columns or []) for _ in models]
    runs = zip(models, tasks, readings, strict=True)
    predictions = [scored_predictions(m.model, task, rows_to_score(reading), m.precision) for m, task, reading in runs]
    next_token = (
        tasks[0].score_rows(models[0].model, ()) is not None
    )  # next-token prediction: no answers that could flip
    rights: list[list[bool]] = [[], []]
    flipped: list[dict[str, Any]] = []
    what = f"comparing on {data.name}"
    if next_token:
        for scorer, predicted in zip(scorers, predictions, strict=True):
            for index, (values, statistics) in enumerate(track(predicted, what, console)):
                scorer.add(values, statistics, index)
    else:
        for index, ((values, a), (_, b)) in enumerate(track(zip(*predictions, strict=True), what, console)):
            pair = [scorer.add(values, prediction, index) for scorer, prediction in zip(scorers, (a, b), strict=True)]
            for right, side in zip(pair, rights, strict=True):
                side.append(right)
            if pair[0] != pair[1] and len(flipped) < show:
                better = "second" if pair[1] else "first"
                shown = {name: values[name] for name in teller.columns() if name in values}
                place = {"line": values["line"], "better": better}
                flipped.append({**place, **shown, "first": shorten_prediction(a), "second": shorten_prediction(b)})
    print_faults(readings[0])
    count = None if next_token else count_flips([True] * len(rights[0]), *rights)
    main = check_comparable(tasks, scorers) if next_token else scorers[0].main
    scores = [scorer.result()[main] for scorer in scorers]
    running = next_token and readings[0].sources[0][1] != "chat"  # then a sample is a window, not an example
    apart = (next_token and not same_tokens(tasks)) or (running and tasks[0].size != tasks[1].size)
    change = None if apart else difference_of(scorers[0], scorers[1], main)
    if json:
        record = {"main": main, "scores": to_json(scores), "difference": to_json(change)}
        print(jsons.dumps({**record, "flips": to_json(count), "shown": flipped}, allow_nan=False))
        return
    console.print(f"{main}: {scores[0]:.4f} and {scores[1]:.4f} on {data}")
    if change is None:
        console.print(
            f"{scores[0].better} is better; the two cut the text into different tokens or windows, so their scores "
            "cannot be paired"
        )
    else:
        low, high = change.interval.low, change.interval.high
        console.print(
            f"difference {change.value:+.4f}, {low:+.4f} to {high:+.4f} (95 %), {scores[0].better} is better; "
            f"p = {change.p_value:.3g}: {verdict(change.p_value)}"
        )
    if count is not None:
        console.print(
            f"answers that only the second has right: {count.gained}, only the first: {count.lost}, of "
            f"{len(rights[0]):,}; p = {count.p_value:.3g}: {verdict(count.p_value)}"
        )
    for flip in flipped:
        console.print(
            escape(jsons.dumps(flip, ensure_ascii=False, allow_nan=False)), soft_wrap=True
        )  # one line each, for other programs


def open_task(model: str, name: str | None) -> Pipeline:
    """Return the named task of a multi-task model; a model with one task needs no name."""
    from multihead.pretrained import load

    loaded = load(model)
    return load(model, task=name) if loaded.tasks else loaded
