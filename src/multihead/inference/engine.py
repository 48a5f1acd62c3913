"""Batched prediction in input order at constant memory: windows of similar length share a batch."""

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

AHEAD = 1024  # rows buffered for batching: enough to find rows of similar length
LINGER = 0.05  # seconds to wait for more rows of an interactive input
WRITTEN = 64  # rows buffered for generation, which is slow: first results should not wait for a thousand rows


class RejectedInput(dict[str, Any]):
    """Input that cannot be predicted: a row that keeps its place among the others and is its own prediction."""

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
    """Yield each row with its prediction, whose `input_info` reports rows that did not fit one window.

    ahead: rows buffered before the first prediction; None: depends on the task.
    strict: raise for a row that the task cannot encode; otherwise yield {error: {code, message}} for it.
    idle: whether no further row arrives within so many seconds; buffered rows are then processed.
    precision: compute precision of encoder tasks, fp32 or bf16.
    """
    model.eval()
    source = iter(task.prepare(rows))
    if ahead is None:
        ahead = WRITTEN if task.readout.over == "vocabulary" else AHEAD
    while block := list(_group_rows(source, ahead, idle)):
        every = [_encode_or_reject(model, task, values, strict) for values in block]
        windows = [window for several in every if not isinstance(several, RejectedInput) for window in several]
        outputs = iter(run_windows(model, task, windows, batch_tokens, precision))
        # Weights are finite when a model is loaded; activations may still overflow.
        for values, several in zip(block, every, strict=True):
            if isinstance(several, RejectedInput):
                yield values, several
            else:
                yield values, answer_row(model, task, values, several, list(islice(outputs, len(several))))


def answer_row(model: TaskModel, task: Task, values: Values, windows: list[Window], outputs: list[Any]) -> Prediction:
    """Return the prediction for a row from the model's outputs for its windows."""
    prediction = _postprocess(task, values, windows, outputs)
    if not _is_finite(prediction):
        raise ValueError(f"{model.source}: the prediction is not finite (NaN or infinite); train the model again")
    return prediction


def _is_finite(prediction: Any) -> bool:
    """Whether all numbers in a prediction are finite, at any depth."""
    if isinstance(prediction, dict):
        return all(map(_is_finite, prediction.values()))
    if isinstance(prediction, list | tuple):
        return all(map(_is_finite, prediction))
    if isinstance(prediction, np.ndarray | np.floating):
        return prediction.dtype.kind != "f" or bool(np.isfinite(prediction).all())
    return not isinstance(prediction, float) or math.isfinite(prediction)


def _postprocess(task: Task, values: Values, windows: list[Window], outputs: list[Any]) -> Prediction:
    prediction = task.postprocess(values, windows, outputs)
    unknown = sum(int((window["tokens"] == task.tokenizer.unknown).sum()) for window in windows)
    lost = sum(int(window.get("cut", 0)) for window in windows)  # truncated tokens
    count = len(windows) // task.readings
    if count > 1 or unknown or lost:
        prediction["input_info"] = {"windows": count, "truncated": lost, "unknown": unknown // task.readings}
    return prediction


def run_windows(
    model: TaskModel, task: Task, windows: Sequence[Window], batch_tokens: int = 4096, precision: str = "fp32"
) -> list[Any]:
    """Return the model's output for each window, in input order; windows of similar length share a batch."""
    every, which = distinct_windows(windows)
    sizes = np.array([len(window["tokens"]) for window in every], dtype=np.int64)
    outputs: dict[int, Any] = {}
    with use_packed_weights(model):
        for numbers in plan_batches(sizes, max(batch_tokens, int(sizes.max(initial=1))), 0, 0):
            batch = task.collate([every[i] for i in numbers])
            with torch.autocast(task.device.type, torch.bfloat16, enabled=precision == "bf16"):
                outputs.update(zip(numbers.tolist(), task.forward(model, batch), strict=True))
    return [outputs[i] for i in which]


def scored_predictions(
    model: TaskModel, task: Task, rows: Iterable[Values], precision: str = "fp32"
) -> Iterator[tuple[Values, Prediction]]:
    """Yield scored rows: predictions, or rows scored by next-token prediction; raise if there is none."""
    text_scores = task.score_rows(model, rows)
    answered = False
    for scored in predict_rows(model, task, rows, precision=precision) if text_scores is None else text_scores:
        answered = True
        yield scored
    if not answered:  # a loss of 0 over no rows would look perfect
        raise ValueError("no example to score")


def evaluate(
    model: TaskModel,
    task: Task,
    rows: Iterable[Values],
    replicates: int = 1000,
    on_row: Callable[[Values, Prediction, bool], None] | None = None,
    precision: str = "fp32",
) -> Scorer:
    """Evaluate all rows. `on_row` is called with every row, its prediction, and whether it is correct."""
    scorer = task.scorer(replicates)
    for index, (values, prediction) in enumerate(scored_predictions(model, task, rows, precision)):
        right = scorer.add(values, prediction, index)
        if on_row is not None:
            on_row(values, prediction, right)
    return scorer


def _group_rows(source: Iterator[Values], ahead: int, idle: Callable[[float], bool] | None) -> Iterator[Values]:
    """Yield the rows of the next group: `ahead` rows, or fewer if no other arrives soon."""
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
    """Raise for token ids outside the model's vocabulary: the tokenizer has added tokens, or belongs to another
    model."""
    for name, source in (("tokens", True), ("target", False)):
        rows = vocabulary_size(model.body, source)
        for window in windows:
            if name in window and len(window[name]) and (highest := int(window[name].max())) >= rows:
                raise unknown_token(highest, rows)


def encode_row(task: Task, values: Values) -> list[Window]:
    """Encode a row; errors name it."""
    try:
        windows = task.encode(values)
        if not all(len(window["tokens"]) for window in windows):
            raise ValueError("the text has no tokens")
        return windows
    except ValueError as error:
        if "line" not in values:
            raise
        place = f"{values['file']}:{values['line']}" if "file" in values else f"line {values['line']}"
        raise ValueError(f"{place}: {error}") from None
