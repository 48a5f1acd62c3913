"""Against seqeval, and against a port of conlleval's published rules, legal tags or not."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report, f1_score
from seqeval.scheme import IOB2

from multihead.metrics import SCHEMES, EntityMetric, entity_spans, to_json

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-A-B", "I-A-B"]
sentence = st.integers(1, 9).flatmap(
    lambda n: st.tuples(*[st.lists(st.sampled_from(TAGS), min_size=n, max_size=n)] * 2)
)
corpus = st.lists(sentence, min_size=1, max_size=6)


def ends(before: str, tag: str, old: str, kind: str) -> bool:
    """conlleval's endOfChunk, the part for B, I and O."""
    if (before, tag) in (("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")):
        return True
    return before != "O" and old != kind


def starts(before: str, tag: str, old: str, kind: str) -> bool:
    """conlleval's startOfChunk."""
    if (before, tag) in (("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")):
        return True
    return tag != "O" and old != kind


def conlleval(gold: list[list[str]], predicted: list[list[str]]) -> dict[str, list[int]]:
    """The script's single pass over two columns: correct, found and gold chunks by type."""
    found: dict[str, list[int]] = {}
    inside, old = False, [("O", ""), ("O", "")]
    for pair in [p for g, s in zip(gold, predicted, strict=True) for p in [*zip(g, s, strict=True), ("O", "O")]]:
        new = [(tag.partition("-")[0], tag.partition("-")[2]) for tag in pair]
        end = [ends(o[0], n[0], o[1], n[1]) for o, n in zip(old, new, strict=True)]
        start = [starts(o[0], n[0], o[1], n[1]) for o, n in zip(old, new, strict=True)]
        if inside:
            if all(end) and old[0][1] == old[1][1]:
                inside = False
                found[old[0][1]][0] += 1
            elif end[0] != end[1] or new[0][1] != new[1][1]:
                inside = False
        if all(start) and new[0][1] == new[1][1]:
            inside = True
        for column, place in ((0, 2), (1, 1)):
            if start[column]:
                found.setdefault(new[column][1], [0, 0, 0])[place] += 1
        old = new
    return found


def scored(pairs: list[tuple[list[str], list[str]]]) -> tuple[EntityMetric, list[list[str]], list[list[str]]]:
    gold, predicted = [list(g) for g, _ in pairs], [list(p) for _, p in pairs]
    metric = EntityMetric(replicates=0)
    metric.add(gold, predicted)
    return metric, gold, predicted


@settings(max_examples=150, deadline=None)
@given(corpus)
def test_conlleval(pairs: list[tuple[list[str], list[str]]]) -> None:
    metric, gold, predicted = scored(pairs)
    tally = metric.tallies["conlleval"]
    ours = {name: [int(n) for n in tally.counts[c]] for name, c in tally.places.items()}
    assert ours == conlleval(gold, predicted)


@settings(max_examples=80, deadline=None)
@given(corpus, st.sampled_from(["strict", "conlleval"]))
def test_seqeval(pairs: list[tuple[list[str], list[str]]], convention: str) -> None:
    metric, gold, predicted = scored(pairs)
    options = {"mode": "strict", "scheme": IOB2} if convention == "strict" else {}
    if not metric.tallies[convention].counts.any():  # seqeval fails on it; ours is all 0
        assert all(s.value == 0 for name, s in metric.result().items() if name.startswith(convention))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = classification_report(gold, predicted, output_dict=True, zero_division=0, **options)
    table = metric.table(convention)
    names = {"micro": "micro avg", "macro": "macro avg", "weighted": "weighted avg"}
    for row in (*table.rows, *table.averages):
        want = theirs.pop(names.get(row.name, row.name))
        got = [row.precision, row.recall, row.f1, row.support]
        np.testing.assert_allclose(got, [want[k] for k in ("precision", "recall", "f1-score", "support")], atol=1e-12)
    assert not theirs
    for row in table.averages:
        prefix = f"{convention}." if row.name == "micro" else f"{convention}.{row.name}_"
        assert metric.result()[prefix + "f1"].value == row.f1


def test_where_the_conventions_differ() -> None:
    tags = ["I-PER", "I-PER", "O", "B-LOC", "I-PER", "I-LOC"]
    assert entity_spans(tags, "strict") == [("LOC", 3, 4)]
    assert entity_spans(tags, "conlleval") == [("PER", 0, 2), ("LOC", 3, 4), ("PER", 4, 5), ("LOC", 5, 6)]
    assert entity_spans(["B-PER", "B-PER", "I-PER"]) == [("PER", 0, 1), ("PER", 1, 3)]
    assert entity_spans(["B", "I", "O"]) == [("_", 0, 2)]
    assert entity_spans([]) == []
    gold = [["B-PER", "I-PER"]]
    metric = EntityMetric(replicates=0)
    metric.add(gold, [["I-PER", "I-PER"]])
    result = metric.result()
    assert (result["strict.f1"].value, result["conlleval.f1"].value) == (0.0, 1.0)
    assert metric.table("strict").note == SCHEMES["strict"]
    assert f1_score(gold, [["I-PER", "I-PER"]]) == 1.0


def test_an_entity_does_not_cross_sentences() -> None:
    metric = EntityMetric(replicates=0)
    metric.add([["B-PER"], ["I-PER"]], [["B-PER"], ["O"]])
    assert metric.result()["conlleval.recall"].value == 0.5
    assert metric.result()["strict.recall"].value == 1.0


def test_nothing() -> None:
    metric = EntityMetric(replicates=20)
    assert all(score.value == 0 for score in metric.result().values())
    metric.add([], [])
    metric.add([["O", "O"]], [["O", "O"]])
    assert all(score.value == 0 for score in metric.result().values())
    assert metric.table().rows == ()


def test_bad_input_is_named() -> None:
    metric = EntityMetric()
    with pytest.raises(ValueError, match="'U-PER' is not a BIO tag"):
        metric.add([["U-PER"]], [["O"]])
    with pytest.raises(ValueError, match="sentence 1: 2 gold tags, 1 predicted"):
        metric.add([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match="convention 'loose'"):
        entity_spans(["O"], "loose")
    assert metric.bootstrap_sample.samples == 0


def test_intervals_enclose_and_are_json() -> None:
    rng = np.random.default_rng(0)
    gold = [[TAGS[i] for i in rng.integers(0, 5, 6)] for _ in range(80)]
    predicted = [[t if rng.random() < 0.9 else "O" for t in tags] for tags in gold]
    metric = EntityMetric()
    metric.add(gold, predicted)
    for score in metric.result().values():
        assert score.interval is not None
        assert score.interval.low < score.value < score.interval.high
    row = to_json(metric.table())["rows"][0]
    assert row["interval"]["low"] < row["f1"] < row["interval"]["high"]


def test_replicates_without_an_entity_say_nothing() -> None:
    metric = EntityMetric(replicates=300)
    metric.add([["O", "O"]] * 100 + [["B-X", "O"]], [["O", "O"]] * 100 + [["B-X", "O"]])
    found = metric.result()
    for name in ("strict.f1", "strict.precision", "strict.macro_f1"):
        assert found[name].value == found[name].interval.low == 1.0
    assert metric.table().averages[0].interval.low == 1.0
    none = EntityMetric(replicates=20)
    none.add([["O"]] * 9, [["O"]] * 9)
    assert none.result()["strict.f1"].value == 0.0
