"""Rows gathered on their way to a score: drawing the weights of an interval one row at a time costs many times more,
and a score that keeps its rows would keep an array for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROWS = 256  # as many as the scores take at once


class RowBuffer:
    """`add` one row's columns; `give` gets the columns of several rows. What reads the score says `flush` first."""

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
