"""`pipeline.heads`: statistics, ranking and pruning of the attention heads of an open model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from multihead.inference import Pipeline
from multihead.inference.pipeline import prepare_scored_rows
from multihead.inspection.attention_maps import AttentionMaps, attention_maps
from multihead.inspection.head_profile import HeadProfile, stats
from multihead.pruning.head_importance import HeadRanking, rank
from multihead.pruning.prune import PruningResult, prune
from multihead.pruning.search import PruningBudget


class PipelineHeads:
    """The attention heads of a pipeline; the same as `multihead heads` on its directory."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def __repr__(self) -> str:
        return f"<heads of {self.pipeline!r}: show, stats, rank, prune>"

    def show(self, text: str, second: str | None = None) -> AttentionMaps:
        """Return the attention maps of every head for a text, or a pair of texts."""
        return attention_maps(self.pipeline, text, second)

    def stats(self, rows: Iterable[dict[str, Any] | str]) -> HeadProfile:
        """Return statistics of every head over inputs: attention targets, spread, and a pattern name."""
        return stats(self.pipeline, ({"text": row} if isinstance(row, str) else row for row in rows))

    def rank(self, rows: Iterable[dict[str, Any]], **options: Any) -> HeadRanking:
        """Return how much the task needs each head, on labeled rows; options as of `multihead.pruning.rank`."""
        return rank(self.pipeline, prepare_scored_rows(self.pipeline.make_task(), rows), **options)

    def prune(
        self, rows: Iterable[dict[str, Any]], out: str | Path, *, budget: str | None = None, keep: str | None = None,
        **options: Any,
    ) -> PruningResult:  # fmt: skip
        """Write a smaller dense model to `out`; on labeled rows, within a budget such as "f1 -0.5", or keep="60%"."""
        prepared = list(prepare_scored_rows(self.pipeline.make_task(), rows))
        return prune(self.pipeline.model.source, prepared, out, PruningBudget.read(budget, keep), **options)
