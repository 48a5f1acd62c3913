"""What scores of written texts share: a text, and one or several references that it may be like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from multihead.metrics.bootstrap import Bootstrap, percentile, round_exact
from multihead.metrics.metric import BootstrapSample, Floats, Score


class TextMetric(ABC):
    """A sample is a text with its references; sums of numbers of each are all that the scores need. Percent."""

    def __init__(self, width: int, replicates: int, seed: int) -> None:
        self.bootstrap = Bootstrap(width, replicates, seed)
        self.width = width

    @abstractmethod
    def counts(self, references: Sequence[str], said: str) -> Sequence[float]:
        """[width] numbers of one text."""

    @abstractmethod
    def values(self, sums: Floats) -> dict[str, Floats]:
        """sums [..., width] -> scores [...]"""

    @abstractmethod
    def signatures(self) -> dict[str, str]:
        """How each score was counted."""

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return self.bootstrap.bootstrap_sample

    def add(
        self, gold: Sequence[str | Sequence[str]], predicted: Sequence[str], index: ArrayLike | None = None
    ) -> None:
        """References of each text (one, or a list of them), and what was written."""
        stats = np.zeros((len(gold), self.width))
        for row, (references, said) in enumerate(zip(gold, predicted, strict=True)):
            references = [references] if isinstance(references, str) else list(references)
            if not references:
                raise ValueError(f"text {row}: there is no reference to compare with")
            stats[row] = self.counts(references, said)
        self.bootstrap.add(round_exact(stats), index)

    def result(self) -> dict[str, Score]:
        drawn, signed = self.replicates(), self.signatures()
        return {
            name: Score(float(value), "percent", "higher", percentile(drawn[name]) if drawn else None, signed[name])
            for name, value in self.values(self.bootstrap.total).items()
        }

    def replicates(self) -> dict[str, Floats]:
        return self.bootstrap.replicates(self.values)
