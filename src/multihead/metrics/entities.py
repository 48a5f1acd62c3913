"""Entity scores from BIO tags, by two conventions, because they differ on illegal tags (seqeval#23, #71).

strict (IOB2): an entity is B-X and the I-X that follow it; an I-X with nothing of its type before it is no entity.
conlleval (IOB1 and IOB2): the rules of the CoNLL shared tasks' script: such an I-X begins an entity too. An entity is
correct if type, start and end are.
"""

from collections.abc import Sequence

from numpy.typing import ArrayLike

from multihead.metrics.metric import BootstrapSample, Floats, Score
from multihead.metrics.precision_recall import KINDS, ClassCounts, MetricTable, average_classes, with_intervals

SCHEMES = {
    "strict": "strict, IOB2: an entity begins with B-",
    "conlleval": "conlleval, IOB1 or IOB2: an I- after O or another type begins an entity too",
}
Span = tuple[str, int, int]  # type, first token, token after the last


def split_tag(tag: str) -> tuple[str, str]:
    """Split B-PER into B, PER; a bare B or I has the type _."""
    prefix, _, kind = tag.partition("-")
    if prefix not in ("B", "I", "O") or (prefix == "O" and tag != "O"):
        raise ValueError(f"{tag!r} is not a BIO tag (O, B-type, I-type); convert other schemes before scoring")
    return prefix, kind or "_"


def entity_spans(tags: Sequence[str], convention: str = "strict") -> list[Span]:
    """Return the entities of one sentence, from left to right."""
    if convention not in SCHEMES:
        raise ValueError(f"convention {convention!r}: one of {', '.join(SCHEMES)}")
    spans: list[Span] = []
    open_type, start = "", 0
    for place, tag in enumerate([*tags, "O"]):
        prefix, kind = split_tag(tag)
        if prefix == "I" and kind == open_type:
            continue
        if open_type:
            spans.append((open_type, start, place))
        begins = prefix == "B" or (prefix == "I" and convention == "conlleval")
        open_type, start = (kind, place) if begins else ("", place)
    return spans


def overall_scores(counts: Floats) -> dict[str, Floats]:
    """Return precision, recall, f1 (micro), macro_precision, … from counts [..., C, 3]."""
    averages = average_classes(counts)
    prefixes = {"micro": "", "macro": "macro_", "weighted": "weighted_"}
    return {prefix + kind: averages[name][kind] for name, prefix in prefixes.items() for kind in KINDS}


class EntityMetric:
    """Entity precision, recall, F1 per type, micro, macro, weighted. A sample is a sentence."""

    def __init__(self, replicates: int = 1000, seed: int = 0) -> None:
        self.tallies = {name: ClassCounts(replicates=replicates, seed=seed) for name in SCHEMES}

    @property
    def bootstrap_sample(self) -> BootstrapSample:
        return self.tallies["strict"].bootstrap.bootstrap_sample

    def add(
        self,
        gold: Sequence[Sequence[str]],
        predicted: Sequence[Sequence[str]],
        index: ArrayLike | None = None,
    ) -> None:
        """Add the tags of each word of each sentence."""
        for row, (truth, guess) in enumerate(zip(gold, predicted, strict=True)):
            if len(truth) != len(guess):
                raise ValueError(f"sentence {row}: {len(truth)} gold tags, {len(guess)} predicted")
        for convention, tally in self.tallies.items():
            samples = []
            for truth, guess in zip(gold, predicted, strict=True):
                gold_spans, predicted_spans = set(entity_spans(truth, convention)), set(entity_spans(guess, convention))
                samples.append(
                    [
                        [span[0] for span in group]
                        for group in (gold_spans & predicted_spans, predicted_spans, gold_spans)
                    ]
                )
            tally.add(samples, index)

    def merge(self, other: "EntityMetric") -> None:
        for name, tally in self.tallies.items():
            tally.merge(other.tallies[name])

    def result(self) -> dict[str, Score]:
        """Return strict.precision, strict.recall, strict.f1 (micro), strict.macro_f1, …, and the same for conlleval."""
        values = self._flatten({name: overall_scores(tally.counts) for name, tally in self.tallies.items()})
        return with_intervals(values, self.replicates())

    def replicates(self) -> dict[str, Floats]:
        return self._flatten({name: tally.replicates(overall_scores) for name, tally in self.tallies.items()})

    def _flatten(self, values: dict[str, dict[str, Floats]]) -> dict[str, Floats]:
        return {f"{name}.{key}": value for name, inner in values.items() for key, value in inner.items()}

    def table(self, convention: str = "strict") -> MetricTable:
        """Return one row per entity type."""
        return self.tallies[convention].table("entities", note=SCHEMES[convention])
