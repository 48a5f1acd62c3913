"""Running text: every window once an epoch, whatever the size, weights, and nothing kept in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.data.token_blocks import TokenBlocks, permute


@given(st.integers(1, 3000), st.integers(0, 9), st.integers(0, 9))
def test_a_permutation_without_a_table(count, seed, epoch):
    found = permute(np.arange(count), count, (seed, epoch))
    assert sorted(found.tolist()) == list(range(count))


def test_permutations_differ_and_look_random():
    one, two = (permute(np.arange(10_000), 10_000, (1, epoch)) for epoch in (0, 1))
    assert (one == two).mean() < 0.01
    assert abs(np.corrcoef(np.arange(10_000), one)[0, 1]) < 0.05
    assert (np.abs(np.diff(one)) == 1).mean() < 0.01
    assert (permute(np.array([7, 3]), 10_000, (1, 0)) == one[[7, 3]]).all(), "any part of it by itself"


@given(st.integers(2, 200), st.integers(1, 20), st.integers(0, 3))
def test_the_first_epoch_foretells_every_token_once(length, size, seed):
    corpus = TokenBlocks([np.arange(length)], size)
    rows = corpus.rows(0, 0, len(corpus), seed)
    assert len(rows) == len(corpus)
    foretold = np.concatenate([corpus[int(row)]["tokens"][1:] for row in rows])
    whole = (length - 1) // size * size or length - 1
    assert sorted(foretold.tolist()) == list(range(1, whole + 1)), "but for an end shorter than a window"


def test_later_epochs_cut_elsewhere():
    corpus = TokenBlocks([np.arange(1001)], 100)
    starts = [sorted(corpus.rows(epoch, 0, 10, 1).tolist()) for epoch in range(3)]
    assert starts[0] == list(range(0, 1000, 100))
    assert starts[1] != starts[0]
    assert starts[2] != starts[1]
    for rows in starts:
        assert all(len(corpus[row]["tokens"]) == 101 for row in rows)


def test_weights_are_passes_per_epoch():
    corpus = TokenBlocks([np.arange(1001), np.arange(5000, 5501)], 100, [0.5, 3.0])
    assert corpus.shown == [5, 15]
    seen: dict[bool, list[int]] = {False: [], True: []}
    for epoch in range(4):
        for row in corpus.rows(epoch, 0, len(corpus), 1):
            tokens = corpus[int(row)]["tokens"]
            seen[bool(tokens[0] >= 5000)].append(int(tokens[0]))
    assert (len(seen[False]), len(seen[True])) == (20, 60)
    first = {int(corpus[int(row)]["tokens"][0]) for row in corpus.rows(0, 0, len(corpus), 1) if row < 1001}
    assert len(first | {int(r) for r in corpus.rows(1, 0, len(corpus), 1) if r < 1001}) >= 9, "the other half next time"


def test_what_is_too_short_is_one_window_or_an_error():
    corpus = TokenBlocks([np.arange(5)], 100)
    assert len(corpus) == 1
    assert corpus.sizes.tolist() == [4]
    assert corpus[int(corpus.rows(0, 0, 1, 1)[0])]["tokens"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="fewer than two tokens"):
        TokenBlocks([np.arange(1)], 100)


def test_sizes_take_no_memory():
    corpus = TokenBlocks([np.broadcast_to(np.uint16(3), (10**9,))], 64)
    assert len(corpus.sizes) == 15_624_999
    assert corpus.sizes.strides == (0,)
    assert len(corpus.rows(0, 10**6, 10**6 + 12, 1)) == 12
