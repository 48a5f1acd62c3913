"""Windows cover everything, every token has one owner, and it is the one with the most context."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihead.data.sliding_windows import core_spans, merge_windows, owner_windows, split_windows, windowed_share

CUTS = st.tuples(st.integers(0, 120), st.integers(1, 20), st.integers(0, 19)).filter(lambda cut: cut[2] < cut[1])


@settings(deadline=None)
@given(CUTS)
def test_windows_are_full_and_overlap(cut: tuple[int, int, int]) -> None:
    length, size, overlap = cut
    spans = split_windows(length, size, overlap)
    assert sorted({i for start, stop in spans for i in range(start, stop)}) == list(range(length))
    if length > size:
        assert {stop - start for start, stop in spans} == {size}
        shared = [before[1] - after[0] for before, after in itertools.pairwise(spans)]
        assert all(count == overlap for count in shared[:-1])
        assert overlap <= shared[-1] < size
    else:
        assert spans == ([(0, length)] if length else [])


@settings(deadline=None)
@given(CUTS)
def test_the_owner_has_the_most_context(cut: tuple[int, int, int]) -> None:
    length, size, overlap = cut
    spans = split_windows(length, size, overlap)
    owner = owner_windows(spans)
    assert len(owner) == length  # each exactly once

    def context(span: tuple[int, int], token: int) -> float:
        start, stop = span
        if not start <= token < stop:
            return -1
        left = math.inf if start == 0 else token - start
        right = math.inf if stop == length else stop - 1 - token
        return min(left, right)

    for token in range(length):
        contexts = [context(span, token) for span in spans]
        assert contexts[owner[token]] == max(contexts)
        assert owner[token] == contexts.index(max(contexts))  # among equals the earlier
    assert [range(*part) for part in core_spans(spans)] == [
        range(*(np.flatnonzero(owner == i)[[0, -1]] + [0, 1])) for i in range(len(spans))
    ]


@settings(deadline=None)
@given(CUTS.filter(lambda cut: cut[0] > 0))
def test_merging_gives_back_what_was_cut(cut: tuple[int, int, int]) -> None:
    length, size, overlap = cut
    spans = split_windows(length, size, overlap)
    values = np.arange(length * 3).reshape(length, 3)
    assert np.array_equal(merge_windows(spans, [values[start:stop] for start, stop in spans]), values)


def test_by_hand() -> None:
    spans = split_windows(10, 6, 2)
    assert spans == [(0, 6), (4, 10)]
    assert core_spans(spans) == [(0, 5), (5, 10)]
    assert split_windows(11, 6, 2) == [(0, 6), (4, 10), (5, 11)]
    assert windowed_share(np.array([3, 6, 7, 100]), 6) == 0.5
    assert windowed_share(np.array([], dtype=int), 6) == 0


@pytest.mark.parametrize(("size", "overlap"), [(4, 4), (4, 5), (4, -1), (0, 0)])
def test_impossible_windows(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="overlap < size"):
        split_windows(10, size, overlap)


def test_pieces_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="1 arrays for 2 windows"):
        merge_windows([(0, 6), (4, 10)], [np.zeros(6)])
    with pytest.raises(ValueError, match="a window of 6 tokens, but 5 values"):
        merge_windows([(0, 6), (4, 10)], [np.zeros(6), np.zeros(5)])
