"""Answers and scores of a model and of the same model changed, row by row the same, so that they can be paired."""

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

REPLICATES = 500  # a line per head: intervals may be a little rougher than a final score's
WindowOutputs = dict[int, NDArray[Any]]  # of every window in the batches


@dataclass(frozen=True)
class EncodedRow:
    """One row, encoded once for all the models that will read it."""

    values: Values
    windows: list[Window]
    index: int


def encode_rows(task: Task, rows: Iterable[Values]) -> list[EncodedRow]:
    found = [EncodedRow(values, encode_windows(task, values), index) for index, values in enumerate(task.prepare(rows))]
    if not any(example.windows for example in found):
        raise ValueError("the data has no row to read")
    return found


@dataclass(frozen=True)
class EncodedBatches:
    """Some examples as batches. `answers` puts what was said of every window back into its row."""

    rows: Sequence[EncodedRow]
    batches: list[tuple[list[int], Batch]]
    which: list[int]  # of the windows in the batches, those of the rows one after the other

    def tokens(self) -> int:
        return sum(batch["tokens"].numel() for _, batch in self.batches)


def make_batches(task: Task, rows: Sequence[EncodedRow], batch_tokens: int = 4096) -> EncodedBatches:
    windows, which = distinct_windows(window for row in rows for window in row.windows)
    sizes = np.array([len(window["tokens"]) for window in windows])
    order = plan_batches(sizes, max(batch_tokens, int(sizes.max())), 0, 0)
    batches = [(numbers.tolist(), task.collate([windows[i] for i in numbers])) for numbers in order]
    return EncodedBatches(rows, batches, which)


def score(task: Task, done: EncodedBatches, outputs: WindowOutputs, scorer: Scorer) -> None:
    """What was said -> answers -> the scorer."""
    which = iter(done.which)
    for row in done.rows:
        mine = [outputs[i] for i in islice(which, len(row.windows))]
        scorer.add(row.values, task.postprocess(row.values, row.windows, mine), row.index)


def run_batches(done: EncodedBatches, read: Callable[[Batch], Sequence[NDArray[Any]]]) -> WindowOutputs:
    """`read` of every batch."""
    return {i: one for numbers, batch in done.batches for i, one in zip(numbers, read(batch), strict=True)}


def metrics_of(scorer: Scorer) -> list[Metric]:
    """The streaming metrics that a scorer is made of."""
    scorer.result()  # rows that it holds back, to count many at once, are counted now
    parts = [part for held in vars(scorer).values() for part in (held if isinstance(held, tuple) else (held,))]
    return [part for part in parts if hasattr(part, "replicates") and hasattr(part, "bootstrap_sample")]


def score_loss(whole: Scorer, changed: Scorer, name: str, level: float = 0.95) -> Difference:
    """How much worse the changed model is by one score: paired, positive = worse."""
    better = whole.result()[name].better
    first, second = (changed, whole) if better == "higher" else (whole, changed)
    one, other = with_score(first, name), with_score(second, name)
    found = compare_paired(one, other, level)[name]
    if found.value == 0 and one.result()[name].unit == "number":
        return found  # a loss moves with the slightest change of a model: one that stands still hides nothing
    return widen_interval(found, one.bootstrap_sample.samples, max_possible_loss(with_score(whole, name), name))


def with_score(scorer: Scorer, name: str) -> Metric:
    """The metric that gives a score, with replicates of it."""
    found = (metric for metric in metrics_of(scorer) if name in metric.result() and name in metric.replicates())
    if (metric := next(found, None)) is None:
        raise ValueError(f"{name} has no interval; choose one of {', '.join(scores_with_interval(scorer))}")
    return metric


def max_possible_loss(metric: Metric, name: str) -> float:
    """What a score may lose if every row goes wrong: of written texts, and of a number (a loss), all that it is; of
    answers, as if all of them had been right."""
    score = metric.result()[name]
    if isinstance(metric, TextMetric) or score.unit == "number":
        return score.value
    return 100.0 if score.unit == "percent" else 1.0


def widen_interval(loss: Difference, samples: int, stake: float) -> Difference:
    """Where no row changed, nothing varies and the interval has no width; three in `samples` may still have been
    missed (the "rule of three", at 95 %), so it is given what they can cost."""
    low, high = loss.interval.low, loss.interval.high
    missed = 3 / max(samples, 3) * stake
    return loss if low < high else replace(loss, interval=ConfidenceInterval(low - missed, high + missed, 0.95))


def scores_with_interval(scorer: Scorer) -> list[str]:
    return [name for metric in metrics_of(scorer) for name in metric.replicates()]


def named_score(scorer: Scorer, name: str | None) -> str:
    """A score by its name or the end of it: "f1" is strict.f1 for a tagger; None: the task's main one."""
    if name is None or name == scorer.main or scorer.main.endswith(f".{name}"):
        return scorer.main
    known = list(dict.fromkeys(scores_with_interval(scorer)))
    found = [one for one in known if one == name] or [one for one in known if one.endswith((f".{name}", f"_{name}"))]
    if not found:
        raise ValueError(f"there is no score {name!r} here; there are: {', '.join(known)}")
    return found[0]


def evaluate_model(model: TaskModel, task: Task, done: EncodedBatches, replicates: int = REPLICATES) -> Scorer:
    scorer = task.scorer(replicates)
    add_predictions(model, task, done, scorer)
    return scorer


@torch.inference_mode()
def add_predictions(model: TaskModel, task: Task, done: EncodedBatches, scorer: Scorer, first: int = 0) -> int:
    """Adds a model's answers to a score. first: number of the first one, for tasks that are judged by how well they
    foretell a text; returns the number after the last."""
    model.eval()
    if (judged := task.score_rows(model, (row.values for row in done.rows))) is None:
        score(task, done, run_batches(done, lambda batch: task.forward(model, batch)), scorer)
        return first
    for values, prediction in judged:
        scorer.add(values, prediction, first)
        first += 1
    return first


def to_points(value: float, score: Score) -> float:
    """In points of 100, as people say them; a perplexity, or a loss in nats, as it is."""
    return value * (100 if score.unit in ("share", "correlation") else 1)


def count_rows(scorer: Scorer) -> int:
    """How many rows were scored."""
    return max(metric.bootstrap_sample.samples for metric in metrics_of(scorer))
