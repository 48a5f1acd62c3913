"""`multihead heads`: see what every head does, ask what a task loses without it, cut out what it can spare."""

from __future__ import annotations

import json as jsons
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multihead.cli.app import verb
from multihead.cli.data_arguments import by_task, rows_of

if TYPE_CHECKING:
    from rich.console import Console

    from multihead.pruning.search import PruningStep

app = verb()

Model = Annotated[str, typer.Argument(help="A model directory, or hub:owner/name.")]
Data = Annotated[Path, typer.Argument(help="Any file that `train` reads.")]
Columns = Annotated[
    list[str] | None, typer.Argument(help="Columns named otherwise than for training: text=review label=verdict")
]
Limit = Annotated[int | None, typer.Option(help="Read only so many rows.")]
Task = Annotated[str | None, typer.Option(help="Of a model with several tasks, the name of one.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@app.callback()
def heads() -> None:
    """Look into a model's heads, rank them, cut them out.

    A head's address is stack.layer.kind.head: encoder.2.self.3, decoder.0.cross.5.

    \b
    Example:
      multihead heads show runs/ner/model "Angela Merkel visited Beijing." --html heads.html
      multihead heads stats runs/ner/model test.txt
      multihead heads rank runs/ner/model valid.txt --early
      multihead heads prune runs/ner/model valid.txt --budget "f1 -0.5" --out runs/ner/small
      multihead heads undo runs/ner/small --out runs/ner/whole
    """


@app.command(short_help="what the heads look at in a text: terminal, PNG, HTML page")
def show(
    model: Model,
    text: Annotated[str, typer.Argument(help="A sentence; - reads it from stdin, @FILE from a file.")],
    head: Annotated[str | None, typer.Option(help="One head, by its address: encoder.2.self.3")] = None,
    second: Annotated[str | None, typer.Option(help="The second text of a pair; of a translation, the target.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that opens in any browser, on its own.")] = None,
    rows: Annotated[
        str | None, typer.Option(help="Of a long text: words whose exact rows the page has, 100:150")
    ] = None,
    window: Annotated[int | None, typer.Option(help="Which part of a text that is longer than the model.")] = None,
) -> None:
    """Show what the heads look at in a text: in the terminal, as a picture, as a page.

    Pieces of words are joined to words. Of more than 256 words, maps are coarse and rows exact: some of every head,
    those of --rows, or all of one --head.

    \b
    Example:
      multihead heads show runs/ner/model "Angela Merkel visited Beijing." --head encoder.2.self.3
      multihead heads show runs/ner/model @article.txt --html heads.html
    """
    from rich.console import Console

    from multihead.inspection.attention_maps import attention_maps
    from multihead.io.files import write_bytes
    from multihead.pretrained import load
    from multihead.report.attention_html import render_attention
    from multihead.report.attention_terminal import draw_png, show_map

    console = Console(highlight=False)
    given = text_of(text)
    loaded = load(model)
    with console.status("reading the text"):
        drawn = attention_maps(
            loaded, given, second, window=window, head=head, rows=span(rows), title=Path(model).resolve().parent.name
        )
    if png is not None:
        draw_png(drawn, png, head)
    if html is not None:
        write_bytes(html, render_attention(drawn, head).encode())
    for path in (png, html):
        if path is not None:
            console.print(f"written: {path}")
    if png is None and html is None:
        show_map(drawn, console, head)


@app.command(short_help="what every head does over a file, with a name for it")
def stats(
    model: Model,
    data: Data,
    columns: Columns = None,
    limit: Limit = None,
    task: Task = None,
    json: Json = False,
) -> None:
    """What every head does over a file: where it looks, how widely, which heads do the same, and a name for it.

    The model may be one without a task. Names follow rules: a head that gives at least half of its attention to one
    kind of place is named for it, from three tenths on "partly"; "broad" is nearly even, "near" within two tokens.

    Of a model with several tasks, a file for each: which heads each task uses.

    \b
    Example:
      multihead heads stats runs/ner/model test.txt --limit 500
      multihead heads stats runs/both/model mood=mood.csv type=type.csv text=question
    """
    from rich.console import Console

    from multihead.inspection.head_profile import stats as measured
    from multihead.inspection.head_usage import measure_head_usage
    from multihead.metrics import to_json
    from multihead.pretrained import load
    from multihead.report.head_tables import print_profile, print_uses

    console = Console(highlight=False, stderr=json)
    loaded = load(model, task=task)
    if str(data).partition("=")[0] in loaded.tasks:
        with console.status("reading the files"):
            used = measure_head_usage(by_task(model, loaded.tasks, [str(data), *(columns or [])], limit))
        if json:
            print(jsons.dumps(to_json(used), allow_nan=False))
        else:
            print_uses(used, console)
        return
    with console.status(f"reading {data}") as status:
        found = measured(
            loaded,
            rows_of(loaded, data, columns, limit, gold=False),
            on_progress=lambda inputs: status.update(f"reading {data}: {inputs:,} inputs"),
        )
    if json:
        lines = {a: {"name": n, **to_json(found[a])} for a, n in zip(found.addresses, found.names, strict=True)}
        told = {"inputs": found.inputs, "tokens": found.tokens, "heads": lines, "clusters": found.clusters}
        print(
            jsons.dumps(
                told | {"similarity": to_json(found.similarity), "rollout": to_json(found.rollout)}, allow_nan=False
            )
        )
        return
    print_profile(found, console)


@app.command(short_help="how much the model's task needs each head")
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


@app.command(short_help="cut heads out into a smaller model, with a bill")
def prune(
    model: Model,
    data: Data,
    columns: Columns = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write; it must be new or empty.")] = None,
    budget: Annotated[str | None, typer.Option(help='What may be lost, in points of 100: "f1 -0.5".')] = None,
    keep: Annotated[
        str | None, typer.Option(help="How much stays: 60% of the heads; with --ffn or --head-width, of the FLOPs.")
    ] = None,
    ffn: Annotated[bool, typer.Option("--ffn", help="Cut out feed-forward units too.")] = False,
    head_width: Annotated[
        bool, typer.Option("--head-width", help="Make heads narrower too: columns of keys and values.")
    ] = False,
    compensate: Annotated[
        bool, typer.Option("--compensate/--no-compensate", help="What is left takes over what it can of what goes.")
    ] = True,
    heldout: Annotated[Path | None, typer.Option(help="A file that judges; else half of DATA does.")] = None,
    finetune: Annotated[Path | None, typer.Option(help="A run file to train the pruned model on, shortly.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw how the score falls while heads go: a PNG.")] = None,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """Cut heads out of a model, into a smaller dense one, and print the bill.

    Half of DATA chooses what goes, the other half judges it. The choice is wary: about twice the interval of a step
    must lie within the budget, so that rows like these hold it by their whole interval in nine of ten cases. Every
    attention keeps at least one head, and heads keep their numbers. If the budget is broken on the rows that judge,
    nothing is written and the exit code is 1.

    \b
    Example:
      multihead heads prune runs/ner/model valid.txt --budget "f1 -0.5" --ffn --out runs/ner/small
    """
    from dataclasses import replace

    from rich.console import Console

    from multihead.metrics import to_json
    from multihead.pretrained import load
    from multihead.pruning import PruningBudget
    from multihead.pruning import prune as pruned
    from multihead.pruning.prune import compare_models, split_halves, verdict
    from multihead.report.head_tables import print_bill, spread
    from multihead.report.pruning_curve import draw_curve

    allowed = PruningBudget.read(budget, keep)
    if out is None:
        raise typer.BadParameter("say where to write: --out runs/ner/small")
    console = Console(highlight=False, stderr=json)
    loaded = load(model)
    if loaded.tasks:
        raise ValueError(
            f"{', '.join(loaded.tasks)} share the heads of this model; to prune for one of them, write it out on its "
            f"own first: multihead export {model} --task {loaded.tasks[0]} --to multihead --out FOLDER"
        )
    loaded.make_task()
    with console.status("choosing what goes"):

        def print_step(point: PruningStep) -> None:
            console.print(
                f"{point.heads:4.0%} of the heads, {point.flops:4.0%} of the arithmetic: "
                f"{point.score.value:.4f}, lost {spread(point.loss, point.score)}"
            )

        rows = list(rows_of(loaded, data, columns, limit, gold=True))
        judging = None if heldout is None else list(rows_of(loaded, heldout, columns, limit, gold=True))
        done = pruned(
            model,
            rows,
            out,
            allowed,
            heldout=judging,
            ffn=ffn,
            head_width=head_width,
            compensate=compensate,
            on_step=print_step,
        )
    if json:
        steps = [
            {"heads": p.heads, "flops": p.flops, "score": to_json(p.score), "loss": to_json(p.loss)} for p in done.curve
        ]
        print(jsons.dumps({**to_json(done), "curve": to_json(steps)}, allow_nan=False))
    else:
        print_bill(done, console)
    if plot is not None:
        draw_curve(done, plot, allowed.points)
    if done.held == "broken":
        console.print(f"[red]the budget is broken on rows that chose nothing[/red]: {out} was not written")
        raise typer.Exit(1)
    console.print(f"written: {out}; undo with: multihead heads undo {out} --out FOLDER")
    if finetune is not None:
        trained = finetune_pruned(out, finetune, console)
        bill = compare_models(model, trained, split_halves(rows)[1] if judging is None else judging, allowed.metric)
        console.print("after training on:")
        print_bill(replace(done, bill=bill, held=verdict(bill, allowed)), console)
        console.print(f"written: {trained}; it was trained after pruning, so it cannot be undone")


@app.command(short_help="make a pruned model's parent again, byte for byte")
def undo(
    model: Annotated[Path, typer.Argument(help="A directory that `heads prune` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder to write; it must be new or empty.")],
) -> None:
    """Make a pruned model's parent again, byte for byte; the parent itself is not needed.

    \b
    Example:
      multihead heads undo runs/ner/small --out runs/ner/whole
    """
    from multihead.pruning import undo as undone

    files = undone(model, out)
    print(f"{out}: {len(files)} files, every one with the sha256 that the parent's had")


def text_of(given: str) -> str:
    """The text itself, or where to read it."""
    import sys

    from multihead.io.files import read_text

    if given == "-":
        return sys.stdin.read().strip()
    return read_text(Path(given[1:])).strip() if given.startswith("@") else given


def span(rows: str | None) -> range:
    """100:150, or 7"""
    if rows is None:
        return range(0)
    first, _, last = rows.partition(":")
    if not first.isdigit() or (last and not last.isdigit()):
        raise typer.BadParameter(f"{rows!r} is not of the form 100:150")
    return range(int(first), int(last) if last else int(first) + 1)


def progress_bar(console: Console, what: str) -> Any:
    """`with progress_bar(…) as on_progress: on_progress(0.3)`"""
    from contextlib import contextmanager

    from rich.progress import Progress

    @contextmanager
    def open_bar() -> Any:
        with Progress(console=console, transient=True) as progress:
            line = progress.add_task(what, total=1.0)
            yield lambda share: progress.update(line, completed=share)

    return open_bar()


def finetune_pruned(pruned: Path, run: Path, console: Console) -> Path:
    """Train on, say how good it then is, and where it is."""
    from multihead.pruning import finetuning_run
    from multihead.report import Progress
    from multihead.training.loop import StepRecord

    training = finetuning_run(pruned, run)
    with Progress(training.order.steps, console=console) as line:
        for event in training:
            if isinstance(event, StepRecord):
                line.update(event.step, loss=event.loss, tokens=event.tokens, places=event.padded)
    for side, scorer in training.finish().items():
        console.print(f"recovered, {side}: {scorer.main} {scorer.result()[scorer.main]:.4f}")
    return training.out / "model"
