"""`multihead compare`: two models on the same data: which answers flipped, and is it more than chance."""

from __future__ import annotations

import json as jsons
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multihead.cli.verb import verb

if TYPE_CHECKING:
    from multihead.build import Loaded

app = verb()


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="A model directory.")],
    second: Annotated[str, typer.Argument(help="Another one, for the same task.")],
    data: Annotated[Path, typer.Argument(help="A file with gold labels.")],
    columns: Annotated[list[str] | None, typer.Argument(help="Columns of other names: label=category")] = None,
    show: Annotated[int, typer.Option(help="How many flipped answers to print.")] = 5,
    name: Annotated[str | None, typer.Option("--task", help="Of models with several tasks, the name of one.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Compare two models on the same rows.

    \b
    Example:
      multihead compare runs/a/model runs/b/model test.csv
    """
    from rich.console import Console
    from rich.markup import escape

    from multihead.cli.evaluate import reading_of
    from multihead.scores import flips, plain
    from multihead.tasks.predict import answers

    console = Console(highlight=False, stderr=json)
    models = [opened(first, name), opened(second, name)]
    tasks = [model.ready() for model in models]
    if tasks[0].name != tasks[1].name:
        raise ValueError(f"{first} was trained for {tasks[0].name}, {second} for {tasks[1].name}; compare equals")
    rights: list[list[bool]] = [[], []]
    scorers = [task.scorer() for task in tasks]
    flipped: list[dict[str, Any]] = []
    with console.status(f"reading {data}"):
        both = zip(
            *(
                answers(m.model, task, (r.values for r in reading_of(tasks[0], data, columns or [])))
                for m, task in zip(models, tasks, strict=True)
            ),
            strict=True,
        )
        for index, ((values, a), (_, b)) in enumerate(both):
            pair = [scorer.add(values, said, index) for scorer, said in zip(scorers, (a, b), strict=True)]
            for right, side in zip(pair, rights, strict=True):
                side.append(right)
            if pair[0] != pair[1] and len(flipped) < show:
                flipped.append({"row": index + 1, "better": "second" if pair[1] else "first", "first": a, "second": b})
    count = flips([True] * len(rights[0]), *rights)
    scores = [scorer.result()[scorer.main] for scorer in scorers]
    if json:
        print(jsons.dumps({"main": scorers[0].main, "scores": plain(scores), "flips": plain(count), "shown": flipped}))
        return
    console.print(f"{scorers[0].main}: {scores[0]:.4f} and {scores[1]:.4f} on {len(rights[0]):,} rows of {data}")
    verdict = "more than chance" if count.p_value < 0.05 else "may be chance"
    console.print(
        f"answers that only the second has right: {count.gained}, only the first: {count.lost}; "
        f"p = {count.p_value:.3g}: {verdict}"
    )
    for flip in flipped:
        console.print(escape(jsons.dumps(flip, ensure_ascii=False)), soft_wrap=True)  # a line each, for other programs


def opened(model: str, name: str | None) -> Loaded:
    """The named task of a model with several; a model with one task needs no name."""
    from multihead.build import load

    loaded = load(model)
    return (load(model, task=name) if loaded.tasks else loaded).to("auto")
