"""Printed form of a training run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from multihead.io.html import html_table
from multihead.metrics import Score


class RunSummary:
    """A run's directory and, after it has finished, its scores."""

    out: Path
    scores: Mapping[str, Any]  # by split; multi-task: by task and split

    def __repr__(self) -> str:
        lines = [f"  {name:<28}{score:.4f}" for name, score in flatten_scores(self.scores)]
        return "\n".join([f"<{type(self).__name__} {self.out}{': not finished' if not lines else ''}>", *lines])

    def _repr_html_(self) -> str:
        rows = [(name, f"{score:.4f}") for name, score in flatten_scores(self.scores)]
        return html_table(f"{type(self).__name__} {self.out}", ("score", "value [CI]"), rows)


def flatten_scores(scores: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Score]]:
    """Yield ("valid accuracy", score), … of scores by split, or by task and split."""
    for name, value in scores.items():
        if isinstance(value, Score):
            yield f"{prefix}{name}", value
        else:
            yield from flatten_scores(value, f"{prefix}{name} ")
