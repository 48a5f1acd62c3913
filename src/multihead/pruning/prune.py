"""Prune a model within a budget to a smaller dense one, with a cost report, in a directory that supports undo."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from multihead.data.splits import is_valid
from multihead.inference import Pipeline
from multihead.inspection import attentions, numbers
from multihead.inspection.inputs import row_texts
from multihead.io.html import html_table
from multihead.io.hub import resolve
from multihead.models import TaskModel
from multihead.pretrained import load, save
from multihead.pruning.compensation import MomentsByName
from multihead.pruning.cost import CostReport, ratio, size_of
from multihead.pruning.evaluation import (
    EncodedRow,
    encode_rows,
    evaluate_model,
    make_batches,
    named_score,
    score_loss,
    to_points,
)
from multihead.pruning.restore import save_parent
from multihead.pruning.search import PruningBudget, PruningSearch, PruningStep, select_step
from multihead.pruning.surgery import PruningPlan, apply_plan, widths_of
from multihead.tasks import Task, Values

TIMED = 4  # batches, spread over the lengths, for the latency measurement


@dataclass(frozen=True)
class PruningResult:
    """Result of pruning. held: whether the budget held on held-out rows: by the full interval ("held"), by the estimate
    alone ("likely"), or not ("broken"); with a share to keep there is no budget: ""."""

    off: tuple[str, ...]
    units: int  # removed feed-forward units
    columns: int  # removed key and value columns
    bill: CostReport
    curve: list[PruningStep]
    held: str

    def __repr__(self) -> str:
        parts = f"{len(self.off)} heads, {self.columns} columns, {self.units} units"
        return f"<PruningResult: {parts} removed, {self.held or 'no budget'}>"

    def _repr_html_(self) -> str:
        rows = [(f"{p.heads:.0%}", f"{p.flops:.0%}", f"{p.score.value:.4f}") for p in self.curve]
        return html_table(repr(self).strip("<>"), ("heads left", "FLOPs left", "score"), rows)


def split_halves(rows: Iterable[Values]) -> tuple[list[Values], list[Values]]:
    """Split rows by a hash of their text into rows for the search and held-out rows: equal texts stay in one split."""
    sides: tuple[list[Values], list[Values]] = ([], [])
    for values in rows:
        # A different hash than that of training's validation split, which would put all rows on one side.
        sides[is_valid("\n".join(("judges", *row_texts(values))), 0.5)].append(values)
    if not sides[0] or not sides[1]:
        raise ValueError("too few rows for a search half and a held-out half; add rows, or pass --heldout FILE")
    return sides


def prune(
    where: str | Path,
    rows: Iterable[Values],
    out: str | Path,
    budget: PruningBudget,
    *,
    heldout: Iterable[Values] | None = None,
    ffn: bool = False,
    head_width: bool = False,
    compensate: bool = True,
    on_step: Callable[[PruningStep], None] | None = None,
) -> PruningResult:
    """Prune the model in a directory into a new one. Without `check` rows, half of the rows are held out.

    ffn, columns: feed-forward units, and key and value columns of the heads, may be removed too.
    fold: the remaining parts take over, by least squares, what they can of the removed ones; otherwise those are
    ablated. Nothing is written if the budget is broken on the held-out rows.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out}: not an empty directory; give a new one")
    loaded = load(where)
    task, model = loaded.make_task(), loaded.model
    choosing, judging = split_halves(rows) if heldout is None else (list(rows), list(heldout))
    ready, others = encode_rows(task, choosing), encode_rows(task, judging)
    metric = named_score(task.scorer(1), budget.metric)
    search = PruningSearch(model, task, ready, metric, ffn=ffn, columns=head_width, fold=compensate)
    point, curve = select_step(search, budget, len(others), on_step)
    smaller, _ = apply_plan(model, point.plan, search.moments)
    bill = measure_cost(model, smaller, task, others, metric)
    held = verdict(bill, budget)
    wide = {name: sum(widths_of(a)) for name, a in attentions(model).items()}
    narrow = {name: (a.heads, sum(widths_of(a))) for name, a in attentions(smaller).items()}
    gone = sum(heads * (wide[name] - left) for name, (heads, left) in narrow.items())
    result = PruningResult(point.off, bill.before.units - bill.after.units, gone, bill, curve, held)
    if held != "broken":
        write(where, point.plan, out, search.moments)
    return result


def compare_models(
    where: str | Path, smaller: str | Path, rows: Iterable[Values], metric: str | None = None
) -> CostReport:
    """Compare a model with one derived from it (pruned, and perhaps fine-tuned), on held-out rows."""
    full, left = load(where), load(smaller)
    task = full.make_task()
    return measure_cost(full.model, left.model, task, encode_rows(task, rows), named_score(task.scorer(1), metric))


def measure_cost(
    model: TaskModel, smaller: TaskModel, task: Task, rows: Sequence[EncodedRow], metric: str
) -> CostReport:
    """Measure both models on the same rows."""
    batches = make_batches(task, rows)
    length = float(np.mean([len(window["tokens"]) for row in rows for window in row.windows]))
    before, after = (evaluate_model(candidate, task, batches, replicates=1000) for candidate in (model, smaller))
    some = make_batches(task, rows[:: max(1, len(rows) // 64)])
    some = replace(some, batches=some.batches[:: max(1, len(some.batches) // TIMED)])

    def read(candidate: TaskModel) -> None:
        if (text_scores := task.score_rows(candidate, (row.values for row in some.rows))) is not None:
            for _ in text_scores:
                pass
            return
        for _, batch in some.batches:
            task.forward(candidate, batch)

    return CostReport(
        size_of(model, length),
        size_of(smaller, length),
        ratio(lambda: read(model), lambda: read(smaller)),
        metric,
        (before.result()[metric], after.result()[metric]),
        score_loss(before, after, metric),
        len(rows),
    )


def verdict(bill: CostReport, budget: PruningBudget) -> str:
    if budget.points is None:
        return ""
    if to_points(bill.loss.interval.high, bill.scores[0]) <= budget.points:
        return "held"
    return "likely" if to_points(bill.loss.value, bill.scores[0]) <= budget.points else "broken"


def write(where: str | Path, plan: PruningPlan, out: Path, moments: MomentsByName | None) -> Pipeline:
    """Write the pruned model, in a directory that records its parent."""
    parent_pipeline = load(where, dtype=None)  # stored dtype, so that undo restores the same bytes
    model, removed = apply_plan(parent_pipeline.model, plan, moments)
    smaller = replace(parent_pipeline, model=model, unused_tensors={}, pruned={})
    out.mkdir(parents=True, exist_ok=True)
    parent = save_parent(resolve(where), parent_pipeline, smaller, plan, removed, out)
    every = numbers(parent_pipeline.model)
    record = {
        "heads": [f"{name}.{n}" for name, stay in plan.heads.items() for n in every[name] if n not in stay],
        "family": parent_pipeline.pruned.get(
            "family", parent_pipeline.config
        ),  # the family whose shape zero padding restores
        "parent": parent,
    }
    smaller = replace(smaller, pruned=record)
    save(smaller, out)
    return smaller
