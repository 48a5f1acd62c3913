"""Base class of metrics that compare a generated text with one or several references."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from multihead.metrics.bootstrap import Bootstrap, percentile, round_exact
from multihead.metrics.metric import BootstrapSample, Floats, Score


class TextMetric(ABC):
    """A metric in percent from sums of per-text counts; a sample is a text with its references."""

    def __init__(self, width: int, replicates: int, seed: int) -> None:
        self.bootstrap = Bootstrap(width, replicates, seed)
        self.width = width

    @abstractmethod
    def counts(self, references: Sequence[str], hypothesis: str) -> Sequence[float]:
        """Return the counts [width] of one text."""

    @abstractmethod
    def values(self, sums: Floats) -> dict[str, Floats]:
        """Return scores [...] from sums [..., width]."""

    @abstractmethod
    def signatures(self) -> dict[str, str]:
        """Return how each score was computed."""

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return self.bootstrap.bootstrap_sample

    def add(
        self, gold: Sequence[str | Sequence[str]], predicted: Sequence[str], index: ArrayLike | None = None
    ) -> None:
        """Add the references of each text (one, or a list of them), and the generated texts."""
        stats = np.zeros((len(gold), self.width))
        for row, (references, hypothesis) in enumerate(zip(gold, predicted, strict=True)):
            references = [references] if isinstance(references, str) else list(references)
            if not references:
                raise ValueError(f"text {row}: no reference to compare with; give at least one")
            stats[row] = self.counts(references, hypothesis)
        self.bootstrap.add(round_exact(stats), index)

    def result(self) -> dict[str, Score]:
        drawn, signed = self.replicates(), self.signatures()
        return {
            name: Score(float(value), "percent", "higher", percentile(drawn[name]) if drawn else None, signed[name])
            for name, value in self.values(self.bootstrap.total).items()
        }

    def replicates(self) -> dict[str, Floats]:
        return self.bootstrap.replicates(self.values)
