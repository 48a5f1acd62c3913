"""Per-tag precision, recall, F1 and support, including O, then micro, macro and weighted averages.

Every word has one tag, so micro precision, recall and F1 all equal the accuracy; O makes it look better than the
entities are.
"""

from collections.abc import Sequence

from numpy.typing import ArrayLike

from multihead.metrics.metric import BootstrapSample, Floats, Score
from multihead.metrics.precision_recall import (
    AVERAGES,
    KINDS,
    ClassCounts,
    MetricTable,
    average_classes,
    with_intervals,
)


def tag_order(tag: str) -> tuple[bool, str, str]:
    """Return a sort key: B-LOC, I-LOC, B-PER, I-PER, …, O."""
    prefix, _, kind = tag.partition("-")
    return tag == "O", kind, prefix


class TokenTagMetric:
    """Scores of single tags, of any scheme. A sample is a sentence: errors within one are correlated."""

    def __init__(self, replicates: int = 1000, seed: int = 0) -> None:
        self.tally = ClassCounts(replicates=replicates, seed=seed)

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return self.tally.bootstrap.bootstrap_sample

    def add(
        self,
        gold: Sequence[Sequence[str]],
        predicted: Sequence[Sequence[str]],
        index: ArrayLike | None = None,
    ) -> None:
        """Add the tags of each word of each sentence."""
        samples = []
        for row, (truth, guess) in enumerate(zip(gold, predicted, strict=True)):
            if len(truth) != len(guess):
                raise ValueError(f"sentence {row}: {len(truth)} gold tags, {len(guess)} predicted")
            right = [tag for tag, predicted_tag in zip(truth, guess, strict=True) if tag == predicted_tag]
            samples.append([right, guess, truth])
        self.tally.add(samples, index)

    def merge(self, other: "TokenTagMetric") -> None:
        self.tally.merge(other.tally)

    def result(self) -> dict[str, Score]:
        """Return accuracy (= micro), macro_precision, macro_recall, macro_f1, and the same weighted."""
        return with_intervals(self._values(self.tally.counts), self.replicates())

    def replicates(self) -> dict[str, Floats]:
        return self.tally.replicates(self._values)

    def _values(self, counts: Floats) -> dict[str, Floats]:
        averages = average_classes(counts)
        values = {"accuracy": averages["micro"]["f1"]}
        for name in AVERAGES[1:]:
            values.update({f"{name}_{kind}": averages[name][kind] for kind in KINDS})
        return values

    def table(self) -> MetricTable:
        """Return one row per tag, begin and inside of a type together, O last."""
        return self.tally.table("tags", sorted(self.tally.names, key=tag_order), "per word")
