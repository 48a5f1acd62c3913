"""Rows in, predictions out, in their order and at constant memory: windows of similar length share a batch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch

from multihead.data.batching import plan_batches
from multihead.inference.defaults import vocabulary_size
from multihead.kernels.packed_linear import use_packed_weights
from multihead.kernels.token_range import unknown_token
from multihead.models import TaskModel
from multihead.tasks.task import Prediction, Scorer, Task, Values, Window, distinct_windows

AHEAD = 1024  # rows that are read before the first of them is answered: enough to find neighbours of equal length
LINGER = 0.05  # seconds from a row on in which others may join it, where rows come one by one
WRITTEN = 64  # of a task that writes, which takes its time for each: the first answers shall not wait for a thousand


class RejectedInput(dict[str, Any]):
    """An input that cannot be answered: a row that keeps its place among the others and is its own prediction."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(error={"code": code, "message": message})


@torch.inference_mode()
def predict_rows(
    model: TaskModel,
    task: Task,
    rows: Iterable[Values],
    batch_tokens: int = 4096,
    ahead: int | None = None,
    strict: bool = True,
    idle: Callable[[float], bool] | None = None,
    precision: str = "fp32",
) -> Iterator[tuple[Values, Prediction]]:
    """Each row with its prediction, which says in `input_info` when the row did not fit the model in one piece.

    ahead: rows that are read before the first is answered; None: as many as suit the task.
    strict: a row that the task cannot read is raised; otherwise it is answered with {error: {code, message}}.
    idle: whether no further row comes within so many seconds; those that were read are answered then.
    precision: what a task that reads computes in, fp32 or bf16.
    """
    model.eval()
    source = iter(task.prepare(rows))
    if ahead is None:
        ahead = WRITTEN if task.readout.over == "vocabulary" else AHEAD
    while block := list(_group_rows(source, ahead, idle)):
        every = [_encode_or_reject(model, task, values, strict) for values in block]
        windows = [window for several in every if not isinstance(several, RejectedInput) for window in several]
        said = iter(run_windows(model, task, windows, batch_tokens, precision))
        # Weights are finite when a model is opened; what it computes of them may still overflow.
        for values, several in zip(block, every, strict=True):
            if isinstance(several, RejectedInput):
                yield values, several
            else:
                yield values, answer_row(model, task, values, several, list(islice(said, len(several))))


def answer_row(model: TaskModel, task: Task, values: Values, windows: list[Window], outputs: list[Any]) -> Prediction:
    """Make the prediction for a row out of what the model gave for each of its windows."""
    prediction = _postprocess(task, values, windows, outputs)
    if not _is_finite(prediction):
        raise ValueError(f"{model.source}: its answer is not finite (NaN or infinite); train it again")
    return prediction


def _is_finite(prediction: Any) -> bool:
    """Are all numbers in a prediction finite, however deep they stand?"""
    if isinstance(prediction, dict):
        return all(map(_is_finite, prediction.values()))
    if isinstance(prediction, list | tuple):
        return all(map(_is_finite, prediction))
    if isinstance(prediction, np.ndarray | np.floating):
        return prediction.dtype.kind != "f" or bool(np.isfinite(prediction).all())
    return not isinstance(prediction, float) or math.isfinite(prediction)


def _postprocess(task: Task, values: Values, windows: list[Window], said: list[Any]) -> Prediction:
    prediction = task.postprocess(values, windows, said)
    unknown = sum(int((window["tokens"] == task.tokenizer.unknown).sum()) for window in windows)
    lost = sum(int(window.get("cut", 0)) for window in windows)  # tokens that no window holds
    pieces = len(windows) // task.readings
    if pieces > 1 or unknown or lost:
        prediction["input_info"] = {"windows": pieces, "truncated": lost, "unknown": unknown // task.readings}
    return prediction


def run_windows(
    model: TaskModel, task: Task, windows: Sequence[Window], batch_tokens: int = 4096, precision: str = "fp32"
) -> list[Any]:
    """What the model says of each window, in their order; windows of similar length are read together."""
    every, which = distinct_windows(windows)
    sizes = np.array([len(window["tokens"]) for window in every], dtype=np.int64)
    said: dict[int, Any] = {}
    with use_packed_weights(model):
        for numbers in plan_batches(sizes, max(batch_tokens, int(sizes.max(initial=1))), 0, 0):
            batch = task.collate([every[i] for i in numbers])
            with torch.autocast(task.device.type, torch.bfloat16, enabled=precision == "bf16"):
                said.update(zip(numbers.tolist(), task.forward(model, batch), strict=True))
    return [said[i] for i in which]


def scored_predictions(
    model: TaskModel, task: Task, rows: Iterable[Values], precision: str = "fp32"
) -> Iterator[tuple[Values, Prediction]]:
    """What is scored: predictions, or how well the rows were foretold; of no row there is no score."""
    judged = task.score_rows(model, rows)
    answered = False
    for one in predict_rows(model, task, rows, precision=precision) if judged is None else judged:
        answered = True
        yield one
    if not answered:  # a loss of 0 would look perfect
        raise ValueError("there is no row to score on")


def evaluate(
    model: TaskModel,
    task: Task,
    rows: Iterable[Values],
    replicates: int = 1000,
    on_row: Callable[[Values, Prediction, bool], None] | None = None,
    precision: str = "fp32",
) -> Scorer:
    """All rows, scored. `on_row` hears of every row, its prediction, and whether that is right."""
    scorer = task.scorer(replicates)
    for index, (values, prediction) in enumerate(scored_predictions(model, task, rows, precision)):
        right = scorer.add(values, prediction, index)
        if on_row is not None:
            on_row(values, prediction, right)
    return scorer


def _group_rows(source: Iterator[Values], ahead: int, idle: Callable[[float], bool] | None) -> Iterator[Values]:
    """The rows that are answered next: so many, or fewer if no other comes soon."""
    until = 0.0
    for values in islice(source, ahead):
        yield values
        until = until or time.monotonic() + LINGER
        if idle is not None and idle(max(until - time.monotonic(), 0.0)):
            return


def _encode_or_reject(model: TaskModel, task: Task, values: Values, strict: bool) -> list[Window] | RejectedInput:
    if isinstance(values, RejectedInput):
        return values
    try:
        windows = encode_row(task, values)
        check_tokens(model, windows)
        return windows
    except ValueError as error:
        if strict:
            raise
        return RejectedInput("bad_input", str(error))


def check_tokens(model: TaskModel, windows: Sequence[Window]) -> None:
    """A tokenizer may have more tokens than the model: added ones, or it is another model's."""
    for name, source in (("tokens", True), ("target", False)):
        rows = vocabulary_size(model.body, source)
        for window in windows:
            if name in window and len(window[name]) and (highest := int(window[name].max())) >= rows:
                raise unknown_token(highest, rows)


def encode_row(task: Task, values: Values) -> list[Window]:
    """A row as the model reads it; one that it cannot read is named."""
    try:
        windows = task.encode(values)
        if not all(len(window["tokens"]) for window in windows):
            raise ValueError("there is no token in it")
        return windows
    except ValueError as error:
        if "line" not in values:
            raise
        place = f"{values['file']}:{values['line']}" if "file" in values else f"line {values['line']}"
        raise ValueError(f"{place}: {error}") from None
