"""A task's data for training: rows of files, split, encoded once into the token cache, and read from there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multihead.data import store
from multihead.data.read import Reading
from multihead.data.split import is_valid
from multihead.tasks import Task, Values, Window

DTYPES = {
    "tokens": np.int32,
    "types": np.int8,
    "word": np.int32,
    "labels": np.int16,
    "offsets": np.int32,
    "span": np.int32,
}


@dataclass(frozen=True)
class Examples:
    """Encoded windows, memory-mapped. What `Store` keeps flat gets its shape back here."""

    kept: store.Store
    shapes: dict[str, tuple[int, ...]]  # -1: as long as the window

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, row: int) -> Window:
        return {name: values.reshape(self.shapes[name]) for name, values in self.kept[row].items()}

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.kept.lengths("tokens")


def encoded(task: Task, rows: Callable[[], Iterable[Values]], cache: Path, key: str) -> Examples:
    """The windows of all rows, from the cache if it has them."""
    first = next((window for values in task.prepare(rows()) for window in task.encode(values)), None)
    if first is None:
        raise ValueError("there is nothing to train on: no row was usable")
    # One axis is as long as the window (-1), unless the field speaks of the whole window.
    shapes = {
        name: array.shape if array.ndim == 0 or len(array) != len(first["tokens"]) else (-1, *array.shape[1:])
        for name, array in first.items()
    }
    fields = {name: DTYPES.get(name, array.dtype) for name, array in first.items()}

    def build() -> Iterator[dict[str, Any]]:
        for values in task.prepare(rows()):
            for window in task.encode(values):
                yield {name: array.reshape(-1) for name, array in window.items()}

    return Examples(store.cached(cache, key, fields, build), shapes)


def cache_key(files: Iterable[Path], task: Task, side: str) -> str:
    """Everything that the windows depend on: the files' bytes, the tokenizer, the task and its options."""
    options = {
        "task": task.name,
        "labels": task.labels,
        "size": task.size,
        "overlap": task.overlap,
        "options": json.loads(json.dumps(task.options, default=str)),
        "side": side,
    }
    return store.key(files, task.tokenizer.inner.to_str().encode(), options)


class Side:
    """The rows of a file that lie on one side of the split; a new loop reads anew."""

    def __init__(self, reading: Reading, side: str = "all", limit: int | None = None) -> None:
        self.reading, self.side, self.limit = reading, side, limit

    def __call__(self) -> Iterator[Values]:
        return islice(self._rows(), self.limit)

    def _rows(self) -> Iterator[Values]:
        for record in self.reading:
            if self.side == "all" or is_valid(text_of(record.values)) == (self.side == "valid"):
                yield {**record.values, "file": record.file, "line": record.line}


def text_of(values: Values) -> str:
    """What decides on which side of the split a row lies: equal inputs, or questions on one text, stay together."""
    if "tokens" in values:
        return " ".join(values["tokens"])
    return str(values.get("context") or values.get("text") or f"{values.get('text_a')}\n{values.get('text_b')}")
