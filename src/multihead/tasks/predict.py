"""Rows in, predictions out, in their order and at constant memory: windows of similar length share a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from multihead.data.batches import plan
from multihead.models import Model
from multihead.tasks.task import Prediction, Scorer, Task, Values

AHEAD = 1024  # rows that are read before the first of them is answered: enough to find neighbours of equal length


@torch.inference_mode()
def predictions(
    model: Model, task: Task, rows: Iterable[Values], batch_tokens: int = 4096, ahead: int = AHEAD
) -> Iterator[tuple[Values, Prediction]]:
    """Each row with its prediction, which says in `receipt` when the row did not fit the model in one piece."""
    model.eval()
    source = iter(task.prepare(rows))
    while block := list(islice(source, ahead)):
        encoded = [task.encode(values) for values in block]
        windows = [window for several in encoded for window in several]
        sizes = np.array([len(window["tokens"]) for window in windows])
        said: list[NDArray[Any] | None] = [None] * len(windows)
        for numbers in plan(sizes, max(batch_tokens, int(sizes.max())), 0, 0):
            batch = task.collate([windows[i] for i in numbers])
            for i, one in zip(numbers.tolist(), task.read(model, batch), strict=True):
                said[i] = one
        place = 0
        for values, several in zip(block, encoded, strict=True):
            mine = [one for one in said[place : place + len(several)] if one is not None]
            place += len(several)
            prediction = task.answer(values, several, mine)
            unknown = sum(int((window["tokens"] == task.tokenizer.special.get("unk", -1)).sum()) for window in several)
            if len(several) > 1 or unknown:
                prediction["receipt"] = {"windows": len(several), "truncated": 0, "unknown": unknown}
            yield values, prediction


def evaluate(
    model: Model,
    task: Task,
    rows: Iterable[Values],
    replicates: int = 1000,
    told: Callable[[Values, Prediction, bool], None] | None = None,
) -> Scorer:
    """All rows, scored. `told` hears of every row, its prediction, and whether that is right."""
    scorer = task.scorer(replicates)
    for index, (values, prediction) in enumerate(predictions(model, task, rows)):
        right = scorer.add(values, prediction, index)
        if told is not None:
            told(values, prediction, right)
    return scorer
