"""`multihead heads rank`: rank heads by how much a task needs them."""

from __future__ import annotations

import json as jsons
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multihead.cli.data_arguments import rows_of
from multihead.cli.heads.arguments import Columns, Data, Json, Limit, Model, Task

if TYPE_CHECKING:
    from rich.console import Console


def rank(
    model: Model,
    data: Data,
    columns: Columns = None,
    by: Annotated[str, typer.Option(help="ablation, gradient or both.")] = "both",
    metric: Annotated[str | None, typer.Option(help="The score to use, if not the task's main one.")] = None,
    early: Annotated[
        bool, typer.Option("--early", help="Stop measuring a head once it is clear: a third of the cost.")
    ] = False,
    limit: Limit = None,
    task: Task = None,
    json: Json = False,
) -> None:
    """Rank heads by how much the model's task needs them.

    By ablation: every head is switched off in turn, and the loss of the score is reported with its paired confidence
    interval. Only the layers after the head are recomputed. By gradient: mean |d loss / d gate| of a gate on each head.

    With --early a head is clear, and not measured further, once its interval lies on one side of 0, or so close around
    it that at most ten of all examples can depend on the head.

    \b
    Example:
      multihead heads rank runs/ner/model valid.txt --limit 500
    """
    from rich.console import Console

    from multihead.metrics import to_json
    from multihead.pretrained import load
    from multihead.pruning import rank as ranked
    from multihead.report.head_tables import print_ranking

    if by not in ("ablation", "gradient", "both"):
        raise typer.BadParameter(f"{by!r} is unknown; use ablation, gradient or both")
    console = Console(highlight=False, stderr=json)
    loaded = load(model, task=task)
    loaded.make_task()
    with progress_bar(console, "measuring heads") as on_progress:
        ranking = ranked(
            loaded,
            rows_of(loaded, data, columns, limit, gold=True),
            ("ablation", "gradient") if by == "both" else (by,),
            metric=metric,
            early=early,
            on_progress=on_progress,
        )
    if json:
        print(jsons.dumps(to_json(ranking), allow_nan=False))
        return
    print_ranking(ranking, console)


def progress_bar(console: Console, what: str) -> Any:
    """Return a context manager that shows a bar: `with progress_bar(…) as on_progress: on_progress(0.3)`."""

    from rich.progress import Progress

    @contextmanager
    def open_bar() -> Any:
        with Progress(console=console, transient=True) as progress:
            line = progress.add_task(what, total=1.0)
            yield lambda share: progress.update(line, completed=share)

    return open_bar()
