"""Next-token prediction scores of a language model: perplexity per token, bits per character.

Perplexity depends on the tokenization; bits per character (and per byte) do not, so they compare models with different
vocabularies.
"""

from math import log

import numpy as np
from numpy.typing import ArrayLike

from multihead.metrics.bootstrap import Bootstrap, percentile, round_exact
from multihead.metrics.metric import BootstrapSample, Floats, Score
from multihead.metrics.precision_recall import ratio


class PerplexityMetric:
    """Perplexity; a sample is a text, or a window of one. Lower is better."""

    def __init__(self, replicates: int = 1000, seed: int = 0) -> None:
        self.bootstrap = Bootstrap(4, replicates, seed)  # nats, tokens, characters, bytes

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return self.bootstrap.bootstrap_sample

    def add(
        self,
        nats: ArrayLike,
        tokens: ArrayLike,
        characters: ArrayLike | None = None,
        octets: ArrayLike | None = None,
        index: ArrayLike | None = None,
    ) -> None:
        """Add samples, each [N]: -log p of the sample's tokens, the number of predicted tokens, and the length of their
        text.
        """
        rows = np.asarray(nats, dtype=np.float64)
        rest = [np.zeros_like(rows) if part is None else np.asarray(part) for part in (characters, octets)]
        self.bootstrap.add(np.stack([round_exact(rows), np.asarray(tokens), *rest], axis=-1), index)

    def merge(self, other: "PerplexityMetric") -> None:
        self.bootstrap.merge(other.bootstrap)

    def result(self) -> dict[str, Score]:
        """Return loss (nats per token) and perplexity; bits_per_character and bits_per_byte where lengths were
        given.
        """
        values, drawn = self._values(self.bootstrap.total), self.replicates()
        return {
            name: Score(float(value), "number", "lower", percentile(drawn[name]) if drawn else None)
            for name, value in values.items()
        }

    def replicates(self) -> dict[str, Floats]:
        return self.bootstrap.replicates(self._values)

    def _values(self, sums: Floats) -> dict[str, Floats]:
        nats, tokens, characters, octets = np.moveaxis(sums, -1, 0)
        loss = ratio(nats, tokens)
        with np.errstate(over="ignore"):  # it may be infinite
            values = {"loss": loss, "perplexity": np.exp(loss)}
        if self.bootstrap.total[2]:
            values["bits_per_character"] = ratio(nats, characters) / log(2)
        if self.bootstrap.total[3]:
            values["bits_per_byte"] = ratio(nats, octets) / log(2)
        return values
