"""A smaller dense model within a budget, with its bill, in a directory that can be undone."""

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

TIMED = 4  # batches, spread over the lengths, that the latency is measured on


@dataclass(frozen=True)
class PruningResult:
    """What came of it. held: the budget was kept on rows that chose nothing, by the whole interval ("held"), by the
    estimate alone ("likely"), or not ("broken"); with a share to keep there is no budget: ""."""

    off: tuple[str, ...]
    units: int  # that were cut out, beside those of heads
    columns: int  # of keys and values, likewise
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
    """Rows that choose and rows that judge, by a hash of their text: equal texts never stand on both sides."""
    sides: tuple[list[Values], list[Values]] = ([], [])
    for values in rows:
        # Another hash than that of training's own validation split, which would all fall on one side.
        sides[is_valid("\n".join(("judges", *row_texts(values))), 0.5)].append(values)
    if not sides[0] or not sides[1]:
        raise ValueError("too few rows: half choose what goes, half judge it; name a file that judges: --heldout FILE")
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
    """Prune the model in a directory into a new one. Without rows to `check` on, half of the rows judge.

    ffn, columns: feed-forward units, and columns of the heads' keys and values, may go too.
    fold: what is left takes over, by least squares, what it can of what is cut out; else that is as if switched off.
    Nothing is written if the budget is broken on the rows that judge.
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
    done = PruningResult(point.off, bill.before.units - bill.after.units, gone, bill, curve, held)
    if held != "broken":
        write(where, point.plan, out, search.moments)
    return done


def compare_models(
    where: str | Path, smaller: str | Path, rows: Iterable[Values], metric: str | None = None
) -> CostReport:
    """A model beside one that was made from it (pruned, and perhaps trained on), on rows that chose nothing."""
    whole, left = load(where), load(smaller)
    task = whole.make_task()
    return measure_cost(whole.model, left.model, task, encode_rows(task, rows), named_score(task.scorer(1), metric))


def measure_cost(
    model: TaskModel, smaller: TaskModel, task: Task, rows: Sequence[EncodedRow], metric: str
) -> CostReport:
    """Both models on the same rows."""
    done = make_batches(task, rows)
    length = float(np.mean([len(window["tokens"]) for row in rows for window in row.windows]))
    before, after = (evaluate_model(one, task, done, replicates=1000) for one in (model, smaller))
    some = make_batches(task, rows[:: max(1, len(rows) // 64)])
    some = replace(some, batches=some.batches[:: max(1, len(some.batches) // TIMED)])

    def read(one: TaskModel) -> None:
        if (judged := task.score_rows(one, (row.values for row in some.rows))) is not None:
            for _ in judged:
                pass
            return
        for _, batch in some.batches:
            task.forward(one, batch)

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
    """The model without what the plan takes out, as a directory that knows its parent."""
    whole = load(where, dtype=None)  # as it is stored: undoing gives back the same bytes
    model, removed = apply_plan(whole.model, plan, moments)
    smaller = replace(whole, model=model, unused_tensors={}, pruned={})
    out.mkdir(parents=True, exist_ok=True)
    parent = save_parent(resolve(where), whole, smaller, plan, removed, out)
    every = numbers(whole.model)
    told = {
        "heads": [f"{name}.{n}" for name, stay in plan.heads.items() for n in every[name] if n not in stay],
        "family": whole.pruned.get("family", whole.config),  # whose shape it would fill with zeros
        "parent": parent,
    }
    smaller = replace(smaller, pruned=told)
    save(smaller, out)
    return smaller
