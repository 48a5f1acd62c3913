"""Scores of a tagger: entities where the labels are BIO, else single tags."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from multihead.metrics import EntityMetric, MetricTable, Score, TokenTagMetric
from multihead.metrics.row_buffer import RowBuffer
from multihead.tasks.task import Prediction, Scorer, Values
from multihead.tasks.word_spans import continue_tag, join_tokens


def is_bio(tags: Iterable[str]) -> bool:
    """Whether tags mark entities, as opposed to every word (part-of-speech tags)."""
    return all(tag == "O" or tag[1:2] == "-" for tag in tags)


def comparable_parts(values: Values, prediction: Prediction) -> tuple[list[str], list[str]]:
    """Return gold and predicted tags of comparable units: tokens, split where a predicted entity begins or ends inside
    one, since an entity that covers half of a token is wrong."""
    text, places = join_tokens(values["tokens"], values.get("spaces"))
    starts = {start: tag for (start, _), tag in zip(places, values["tags"], strict=True)}
    ends = {end for entity in prediction["entities"] for end in (entity["start"], entity["end"])}
    inside = {at for at in ends if at < len(text) and not text[at].isspace()}
    gold: list[str] = []
    tag = "O"
    points = sorted(starts.keys() | inside)
    for at in points:
        tag = starts[at] if at in starts else continue_tag(tag)
        gold.append(tag)
    predicted = ["O"] * len(points)
    for entity in prediction["entities"]:
        for number in range(bisect_left(points, entity["start"]), bisect_left(points, entity["end"])):
            predicted[number] = f"{'B' if points[number] == entity['start'] else 'I'}-{entity['label']}"
    return gold, predicted


class TagScorer(Scorer):
    """Entity F1 for BIO tags (strict and conlleval), and accuracy over tags in any case."""

    def __init__(self, labels: Sequence[str], replicates: int) -> None:
        self.tags = TokenTagMetric(replicates)
        self.entities = EntityMetric(replicates) if is_bio(labels) else None
        self.main = "strict.f1" if self.entities is not None else "accuracy"
        self.rows = RowBuffer(self._score_buffer)

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        gold, predicted = list(values["tags"]), list(prediction["tags"])
        parts = comparable_parts(values, prediction) if self.entities is not None else (gold, predicted)
        self.rows.add(gold, predicted, *parts, index)
        return gold == predicted and parts[0] == parts[1]

    def _score_buffer(
        self,
        gold: list[list[str]],
        predicted: list[list[str]],
        gold_parts: list[list[str]],
        predicted_parts: list[list[str]],
        index: list[int],
    ) -> None:
        self.tags.add(gold, predicted, index)
        if self.entities is not None:
            self.entities.add(gold_parts, predicted_parts, index)

    def result(self) -> dict[str, Score]:
        self.rows.flush()
        scores = ({} if self.entities is None else self.entities.result()) | self.tags.result()
        first = ("strict.f1", "strict.precision", "strict.recall", "conlleval.f1", "accuracy", "macro_f1")
        return {name: scores[name] for name in first if name in scores} | scores

    def tables(self) -> list[MetricTable]:
        self.rows.flush()
        entities = [] if self.entities is None else [self.entities.table("strict"), self.entities.table("conlleval")]
        return [self.tags.table(), *entities]
