"""Best sequences and chances against all sequences written out."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihead.models.viterbi import (
    NEVER,
    SpanProbabilities,
    TransitionScores,
    best_legal_path,
    best_path,
    transition_rules,
)

LABELS = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


def drawn(seed: int, length: int, labels: list[str], learnt: bool = True) -> tuple[np.ndarray, TransitionScores]:
    draw = np.random.default_rng(seed)
    C = len(labels)
    own = TransitionScores(draw.normal(size=C), draw.normal(size=C), draw.normal(size=(C, C)))
    return 2 * draw.normal(size=(length, C)), transition_rules(labels) + own if learnt else transition_rules(labels)


def worth(scores: np.ndarray, moves: TransitionScores, path: tuple[int, ...]) -> float:
    total = moves.start[path[0]] + moves.end[path[-1]] + sum(scores[t, y] for t, y in enumerate(path))
    return float(total + sum(moves.step[a, b] for a, b in pairwise(path)))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([LABELS, ["N", "V", "ADJ"], LABELS[:3]]), st.booleans()
)
def test_against_all_sequences(seed: int, length: int, labels: list[str], learnt: bool) -> None:
    scores, moves = drawn(seed, length, labels, learnt)
    paths = list(product(range(len(labels)), repeat=length))
    values = np.array([worth(scores, moves, path) for path in paths])
    found = best_path(scores, moves)
    assert worth(scores, moves, tuple(found)) == pytest.approx(values.max())
    if not learnt:
        assert best_legal_path(scores, moves).tolist() == found.tolist()
    shares = np.exp(values - np.logaddexp.reduce(values))
    chances = SpanProbabilities(scores, moves)
    for start in range(length):
        for stop in range(start + 1, length + 1):
            want = sum(p for path, p in zip(paths, shares, strict=True) if path[start:stop] == tuple(found[start:stop]))
            assert chances.of(found, start, stop) == pytest.approx(want, abs=1e-9)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 30))
def test_no_entity_goes_on_that_was_not_begun(seed: int, length: int) -> None:
    scores, moves = drawn(seed, length, LABELS)
    for path in (best_path(scores, moves), best_legal_path(scores, transition_rules(LABELS))):
        tags = ["O", *(LABELS[i] for i in path)]
        assert len(tags) == length + 1
        assert all(not b.startswith("I-") or a[1:] == b[1:] for a, b in pairwise(tags))


def test_labels_without_a_beginning_are_free() -> None:
    rules = transition_rules(["O", "I-LOC", "B-PER", "I-PER", "NN"])
    assert rules.start.tolist() == [0, 0, 0, NEVER, 0]
    assert rules.step[0].tolist() == [0, 0, 0, NEVER, 0]
    assert rules.step[2].tolist() == [0, 0, 0, 0, 0]
