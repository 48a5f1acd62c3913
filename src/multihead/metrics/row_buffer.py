"""A buffer of rows before a metric.

Drawing the bootstrap weights one row at a time costs many times more, and a metric that stores its rows would store an
array for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROWS = 256  # the block size of the metrics


class RowBuffer:
    """Collect rows with `add`; `give` receives the columns of several rows. Call `flush` before reading the metric."""

    def __init__(self, give: Callable[..., None], rows: int = ROWS) -> None:
        self.give, self.rows = give, rows
        self.waiting: list[tuple[Any, ...]] = []

    def add(self, *columns: Any) -> None:
        self.waiting.append(columns)
        if len(self.waiting) >= self.rows:
            self.flush()

    def flush(self) -> None:
        waiting, self.waiting = self.waiting, []
        if waiting:
            self.give(*(list(column) for column in zip(*waiting, strict=True)))
