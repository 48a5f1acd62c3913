"""Gathering changes no score."""

from __future__ import annotations

import numpy as np
import pytest

from multihead.metrics import to_json
from multihead.metrics.entities import entity_spans
from multihead.metrics.row_buffer import ROWS, RowBuffer
from multihead.tasks.classify import ClassScorer
from multihead.tasks.ner import TagScorer
from multihead.tasks.pair_scores import SimilarityScorer
from multihead.tasks.task import Scorer


def test_columns_come_in_order_and_whole() -> None:
    got: list[tuple] = []
    rows = RowBuffer(lambda *columns: got.append(columns), rows=3)
    for i in range(7):
        rows.add(i, f"x{i}")
    assert len(got) == 2
    rows.flush()
    rows.flush()
    assert [column for columns in got for column in columns[0]] == list(range(7))
    assert got[-1] == ([6], ["x6"])


def rows_of(kind: str, count: int) -> list[tuple[dict, dict]]:
    draw = np.random.default_rng(0)
    found = []
    for _ in range(count):
        if kind == "tags":
            gold, said = (draw.choice(["O", "B-X", "I-X"], 5).tolist() for _ in range(2))
            entities = [{"start": 2 * a, "end": 2 * b - 1, "label": x} for x, a, b in entity_spans(said, "conlleval")]
            found.append(({"tokens": list("vwxyz"), "tags": gold}, {"tags": said, "entities": entities}))
        elif kind == "score":
            found.append(({"label": draw.uniform(0, 5)}, {"score": draw.uniform(0, 5)}))
        elif kind == "many":
            gold, said = ([x for x in "abc" if draw.random() < 0.5] for _ in range(2))
            found.append(({"label": gold}, {"labels": said}))
        else:
            chances = draw.dirichlet(np.ones(3))
            scores = dict(zip("abc", chances.tolist(), strict=True))
            found.append(
                ({"label": draw.choice(list("abc"))}, {"label": "abc"[int(chances.argmax())], "scores": scores})
            )
    return found


def scorer_of(kind: str) -> Scorer:
    if kind == "tags":
        return TagScorer(["O", "B-X", "I-X"], 50)
    if kind == "score":
        return SimilarityScorer(50, (0.0, 5.0))
    return ClassScorer("abc", kind == "many", 50)


@pytest.mark.parametrize("kind", ["one", "many", "tags", "score"])
def test_scores_are_those_of_rows_one_by_one(kind: str) -> None:
    rows = rows_of(kind, 2 * ROWS + 7)
    gathered, single = scorer_of(kind), scorer_of(kind)
    for index, (values, prediction) in enumerate(rows):
        assert gathered.add(values, prediction, index) == single.add(values, prediction, index)
        single.rows.flush()  # type: ignore[attr-defined]
    want, got = to_json(single.result()), to_json(gathered.result())
    assert got.keys() == want.keys()
    for name in want:
        assert got[name]["value"] == pytest.approx(want[name]["value"], rel=1e-12)
        assert (got[name]["interval"] is None) == (want[name]["interval"] is None)
        if got[name]["interval"]:
            assert got[name]["interval"]["low"] == pytest.approx(want[name]["interval"]["low"], rel=1e-9)
    assert to_json(gathered.tables()) == to_json(single.tables())


def test_a_row_after_the_result_counts_too() -> None:
    scorer = scorer_of("one")
    assert isinstance(scorer, ClassScorer)
    scores = {"a": 1.0, "b": 0.0, "c": 0.0}
    scorer.add({"label": "a"}, {"label": "a", "scores": scores}, 0)
    assert scorer.result()["accuracy"].value == 1
    scorer.add({"label": "b"}, {"label": "a", "scores": scores}, 1)
    assert scorer.result()["accuracy"].value == 0.5
    assert scorer.one is not None
    assert np.sum(scorer.one.confusion()) == 2
