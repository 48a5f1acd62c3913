"""`multihead heads prune`: prune heads into a smaller model."""

from __future__ import annotations

import json as jsons
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multihead.cli.data_arguments import rows_of
from multihead.cli.heads.arguments import Columns, Data, Json, Limit, Model

if TYPE_CHECKING:
    from rich.console import Console

    from multihead.pruning.search import PruningStep


def prune(
    model: Model,
    data: Data,
    columns: Columns = None,
    out: Annotated[Path | None, typer.Option(help="Directory to write; it must be new or empty.")] = None,
    budget: Annotated[str | None, typer.Option(help='Allowed loss, in points of 100: "f1 -0.5".')] = None,
    keep: Annotated[
        str | None, typer.Option(help="How much remains: 60% of the heads; with --ffn or --head-width, of the FLOPs.")
    ] = None,
    ffn: Annotated[bool, typer.Option("--ffn", help="Prune feed-forward units too.")] = False,
    head_width: Annotated[
        bool, typer.Option("--head-width", help="Make heads narrower too: columns of keys and values.")
    ] = False,
    compensate: Annotated[
        bool,
        typer.Option(
            "--compensate/--no-compensate", help="Adjust the remaining weights to compensate for the pruned ones."
        ),
    ] = True,
    heldout: Annotated[Path | None, typer.Option(help="A file to evaluate on; default: half of DATA.")] = None,
    finetune: Annotated[
        Path | None, typer.Option(help="A run file to fine-tune the pruned model with, briefly.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the score against the number of heads: a PNG.")] = None,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """Prune heads into a smaller dense model, and print the savings and the loss.

    Half of DATA selects what is pruned, the other half evaluates it. The selection is conservative: about twice the
    confidence interval of a step must lie within the budget, so that similar examples stay within it by their full
    interval in nine of ten cases. Every attention layer retains at least one head, and heads retain their numbers. If
    the budget is exceeded on the evaluation half, nothing is written and the exit code is 1.

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
        raise typer.BadParameter("give the directory to write: --out runs/ner/small")
    console = Console(highlight=False, stderr=json)
    loaded = load(model)
    if loaded.tasks:
        raise ValueError(
            f"{', '.join(loaded.tasks)} share the heads of this model; to prune for one of them, export it "
            f"first: multihead export {model} --task {loaded.tasks[0]} --to multihead --out FOLDER"
        )
    loaded.make_task()
    with console.status("selecting heads"):

        def print_step(point: PruningStep) -> None:
            console.print(
                f"{point.heads:4.0%} of the heads, {point.flops:4.0%} of the arithmetic: "
                f"{point.score.value:.4f}, lost {spread(point.loss, point.score)}"
            )

        rows = list(rows_of(loaded, data, columns, limit, gold=True))
        heldout_rows = None if heldout is None else list(rows_of(loaded, heldout, columns, limit, gold=True))
        result = pruned(
            model,
            rows,
            out,
            allowed,
            heldout=heldout_rows,
            ffn=ffn,
            head_width=head_width,
            compensate=compensate,
            on_step=print_step,
        )
    if json:
        steps = [
            {"heads": p.heads, "flops": p.flops, "score": to_json(p.score), "loss": to_json(p.loss)}
            for p in result.curve
        ]
        print(jsons.dumps({**to_json(result), "curve": to_json(steps)}, allow_nan=False))
    else:
        print_bill(result, console)
    if plot is not None:
        draw_curve(result, plot, allowed.points)
    if result.held == "broken":
        console.print(f"[red]the budget is exceeded on held-out examples[/red]: {out} was not written")
        raise typer.Exit(1)
    console.print(f"written: {out}; undo with: multihead heads undo {out} --out FOLDER")
    if finetune is not None:
        trained = finetune_pruned(out, finetune, console)
        bill = compare_models(
            model, trained, split_halves(rows)[1] if heldout_rows is None else heldout_rows, allowed.metric
        )
        console.print("after fine-tuning:")
        print_bill(replace(result, bill=bill, held=verdict(bill, allowed)), console)
        console.print(f"written: {trained}; it was fine-tuned after pruning, so it cannot be undone")


def finetune_pruned(pruned: Path, run: Path, console: Console) -> Path:
    """Fine-tune a pruned model, print its scores, and return its directory."""
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
