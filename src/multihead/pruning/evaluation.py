"""Predictions and scores of a model and its modification on the same rows, for paired comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from multihead.data.batching import plan_batches
from multihead.inspection.inputs import encode_windows
from multihead.metrics import ConfidenceInterval, Difference, Metric, Score, compare_paired
from multihead.metrics.text_metric import TextMetric
from multihead.models import TaskModel
from multihead.tasks import Batch, Scorer, Task, Values, Window
from multihead.tasks.task import distinct_windows

REPLICATES = 500  # per head: intervals may be a little coarser than a final score's
WindowOutputs = dict[int, NDArray[Any]]  # by window index


@dataclass(frozen=True)
class EncodedRow:
    """One row, encoded once for all models under evaluation."""

    values: Values
    windows: list[Window]
    index: int


def encode_rows(task: Task, rows: Iterable[Values]) -> list[EncodedRow]:
    encoded = [
        EncodedRow(values, encode_windows(task, values), index) for index, values in enumerate(task.prepare(rows))
    ]
    if not any(example.windows for example in encoded):
        raise ValueError("the data has no usable row")
    return encoded


@dataclass(frozen=True)
class EncodedBatches:
    """Batches of some rows. `which` maps windows back to rows."""

    rows: Sequence[EncodedRow]
    batches: list[tuple[list[int], Batch]]
    which: list[int]  # window indices of the rows, concatenated

    def tokens(self) -> int:
        return sum(batch["tokens"].numel() for _, batch in self.batches)


def make_batches(task: Task, rows: Sequence[EncodedRow], batch_tokens: int = 4096) -> EncodedBatches:
    windows, which = distinct_windows(window for row in rows for window in row.windows)
    sizes = np.array([len(window["tokens"]) for window in windows])
    order = plan_batches(sizes, max(batch_tokens, int(sizes.max())), 0, 0)
    batches = [(numbers.tolist(), task.collate([windows[i] for i in numbers])) for numbers in order]
    return EncodedBatches(rows, batches, which)


def score(task: Task, batches: EncodedBatches, outputs: WindowOutputs, scorer: Scorer) -> None:
    """Postprocess the outputs and add them to the scorer."""
    which = iter(batches.which)
    for row in batches.rows:
        row_outputs = [outputs[i] for i in islice(which, len(row.windows))]
        scorer.add(row.values, task.postprocess(row.values, row.windows, row_outputs), row.index)


def run_batches(batches: EncodedBatches, read: Callable[[Batch], Sequence[NDArray[Any]]]) -> WindowOutputs:
    """Apply `read` to every batch; return the outputs by window."""
    return {i: output for numbers, batch in batches.batches for i, output in zip(numbers, read(batch), strict=True)}


def metrics_of(scorer: Scorer) -> list[Metric]:
    """Return the streaming metrics of a scorer."""
    scorer.result()  # flushes buffered rows
    parts = [part for held in vars(scorer).values() for part in (held if isinstance(held, tuple) else (held,))]
    return [part for part in parts if hasattr(part, "replicates") and hasattr(part, "bootstrap_sample")]


def score_loss(whole: Scorer, changed: Scorer, name: str, level: float = 0.95) -> Difference:
    """Return how much worse the changed model is by one score: paired, positive = worse."""
    better = whole.result()[name].better
    first, second = (changed, whole) if better == "higher" else (whole, changed)
    first_metric, second_metric = with_score(first, name), with_score(second, name)
    difference = compare_paired(first_metric, second_metric, level)[name]
    if difference.value == 0 and first_metric.result()[name].unit == "number":
        return difference  # a loss reacts to the slightest change of a model, so 0 is exact
    return widen_interval(
        difference, first_metric.bootstrap_sample.samples, max_possible_loss(with_score(whole, name), name)
    )


def with_score(scorer: Scorer, name: str) -> Metric:
    """Return the metric that computes a score, with its bootstrap replicates."""
    matching = (metric for metric in metrics_of(scorer) if name in metric.result() and name in metric.replicates())
    if (metric := next(matching, None)) is None:
        raise ValueError(f"{name} has no confidence interval; choose one of {', '.join(scores_with_interval(scorer))}")
    return metric


def max_possible_loss(metric: Metric, name: str) -> float:
    """Return the largest possible loss if every row becomes wrong: for generated texts and for numbers (a loss), the
    score itself; for classification, as if all rows had been correct."""
    score = metric.result()[name]
    if isinstance(metric, TextMetric) or score.unit == "number":
        return score.value
    return 100.0 if score.unit == "percent" else 1.0


def widen_interval(loss: Difference, samples: int, stake: float) -> Difference:
    """Widen an interval of zero width. If no row changed, three in `samples` may still have been missed (the "rule of
    three", at 95 %), so it gets their maximal effect."""
    low, high = loss.interval.low, loss.interval.high
    missed = 3 / max(samples, 3) * stake
    return loss if low < high else replace(loss, interval=ConfidenceInterval(low - missed, high + missed, 0.95))


def scores_with_interval(scorer: Scorer) -> list[str]:
    return [name for metric in metrics_of(scorer) for name in metric.replicates()]


def named_score(scorer: Scorer, name: str | None) -> str:
    """Return the full name of a score by its name or suffix: "f1" is strict.f1 for a tagger; None: the main score."""
    if name is None or name == scorer.main or scorer.main.endswith(f".{name}"):
        return scorer.main
    known = list(dict.fromkeys(scores_with_interval(scorer)))
    matching = [full_name for full_name in known if full_name == name] or [
        full_name for full_name in known if full_name.endswith((f".{name}", f"_{name}"))
    ]
    if not matching:
        raise ValueError(f"unknown score {name!r}; known: {', '.join(known)}")
    return matching[0]


def evaluate_model(model: TaskModel, task: Task, batches: EncodedBatches, replicates: int = REPLICATES) -> Scorer:
    scorer = task.scorer(replicates)
    add_predictions(model, task, batches, scorer)
    return scorer


@torch.inference_mode()
def add_predictions(model: TaskModel, task: Task, batches: EncodedBatches, scorer: Scorer, first: int = 0) -> int:
    """Add a model's predictions to a scorer. first: index of the first one, for tasks scored by perplexity; return the
    index after the last."""
    model.eval()
    if (text_scores := task.score_rows(model, (row.values for row in batches.rows))) is None:
        score(task, batches, run_batches(batches, lambda batch: task.forward(model, batch)), scorer)
        return first
    for values, prediction in text_scores:
        scorer.add(values, prediction, first)
        first += 1
    return first


def to_points(value: float, score: Score) -> float:
    """Convert to points of 100; a perplexity, or a loss in nats, is unchanged."""
    return value * (100 if score.unit in ("share", "correlation") else 1)


def count_rows(scorer: Scorer) -> int:
    """Return the number of scored rows."""
    return max(metric.bootstrap_sample.samples for metric in metrics_of(scorer))
