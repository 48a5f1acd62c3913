"""`multihead heads rank`: how much a task needs each head."""

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
    metric: Annotated[str | None, typer.Option(help="The score to look at, if not the task's main one.")] = None,
    early: Annotated[
        bool, typer.Option("--early", help="Measure no head on that is clear: a third of the cost.")
    ] = False,
    limit: Limit = None,
    task: Task = None,
    json: Json = False,
) -> None:
    """How much the model's task needs each head.

    By ablation: every head is switched off in turn, and the loss of the score is given with its paired interval. Only
    the layers behind the head are computed again. By gradient: mean |d loss / d gate| of a gate on each head.

    With --early a head is clear, and measured no more, once its interval lies on one side of 0, or so close about it
    that no more than ten of all rows can hang on the head.

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
        raise typer.BadParameter(f"{by!r} is none of ablation, gradient, both")
    console = Console(highlight=False, stderr=json)
    loaded = load(model, task=task)
    loaded.make_task()
    with progress_bar(console, "measuring heads") as told:
        found = ranked(
            loaded,
            rows_of(loaded, data, columns, limit, gold=True),
            ("ablation", "gradient") if by == "both" else (by,),
            metric=metric,
            early=early,
            on_progress=told,
        )
    if json:
        print(jsons.dumps(to_json(found), allow_nan=False))
        return
    print_ranking(found, console)


def progress_bar(console: Console, what: str) -> Any:
    """`with progress_bar(…) as on_progress: on_progress(0.3)`"""

    from rich.progress import Progress

    @contextmanager
    def open_bar() -> Any:
        with Progress(console=console, transient=True) as progress:
            line = progress.add_task(what, total=1.0)
            yield lambda share: progress.update(line, completed=share)

    return open_bar()
