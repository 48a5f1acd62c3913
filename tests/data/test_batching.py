"""Batches: every row once, within the budget, little padding, random, and the same for every world size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from multihead.data.batching import padding_ratio, plan_batches, shard

Lengths = NDArray[np.int64]
LENGTHS = st.lists(st.integers(1, 60), max_size=80).map(lambda x: np.array(x, dtype=np.int64))


def realistic(name: str, rows: int = 20_000) -> Lengths:
    random = np.random.default_rng(3)
    drawn = {
        "sentences": random.lognormal(2.6, 0.7, rows),  # conll2003: median 13, longest above 110
        "reviews": random.lognormal(4.2, 0.8, rows),
        "questions": random.normal(12, 3, rows),
        "two humps": np.where(random.random(rows) < 0.5, random.normal(10, 2, rows), random.normal(180, 30, rows)),
    }[name]
    return np.clip(drawn, 1, 512).astype(np.int64)


@settings(deadline=None)
@given(LENGTHS, st.integers(60, 400), st.integers(0, 5), st.integers(0, 5), st.booleans(), st.sampled_from([1, 4, 12]))
def test_every_row_once_and_within_the_budget(
    lengths: Lengths, budget: int, seed: int, epoch: int, longest_first: bool, multiple: int
) -> None:
    batches = plan_batches(lengths, budget, seed, epoch, longest_first=longest_first, multiple=multiple)
    assert sorted(np.concatenate([*batches, np.empty(0, int)])) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch)
        assert -(-int(lengths[batch].max()) // multiple) * multiple * len(batch) <= budget


@settings(deadline=None)
@given(LENGTHS, st.integers(60, 400), st.integers(0, 5))
def test_the_budget_is_used(lengths: Lengths, budget: int, seed: int) -> None:
    """At most one batch is less than half full, but for rows of which hardly two fit into one."""
    batches = plan_batches(lengths, budget, seed, 0)
    assert sum(int(lengths[b].max()) * len(b) < budget / 2 for b in batches) <= 1 + sum(lengths > budget / 4)


@pytest.mark.parametrize("name", ["sentences", "reviews", "questions", "two humps"])
@pytest.mark.parametrize("budget", [2048, 4096, 8192])
def test_under_five_percent_is_padding(name: str, budget: int) -> None:
    lengths = realistic(name)
    batches = plan_batches(lengths, budget, 1, 0)
    assert padding_ratio(lengths, batches) < 0.05
    random = np.array_split(np.random.default_rng(0).permutation(len(lengths)), len(batches))
    assert padding_ratio(lengths, random) > 0.2  # the measure can fail


def test_waste_by_hand() -> None:
    assert padding_ratio(np.array([3, 1, 2]), [np.array([0, 1]), np.array([2])]) == pytest.approx(2 / 8)
    assert padding_ratio(np.array([3, 3]), [np.array([0, 1])]) == 0
    assert padding_ratio(np.array([], dtype=int), []) == 0


def test_a_pure_function_of_seed_and_epoch() -> None:
    lengths = realistic("sentences", 3000)
    one, again = plan_batches(lengths, 1024, 7, 2), plan_batches(lengths.copy(), 1024, 7, 2)
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    for seed, epoch in ((8, 2), (7, 3)):
        other = plan_batches(lengths, 1024, seed, epoch)
        same = {frozenset(b.tolist()) for b in one} & {frozenset(b.tolist()) for b in other}
        assert len(same) < 0.2 * len(one)  # the few longest rows have nobody else to meet


def test_neighbours_change_and_order_is_no_curriculum() -> None:
    """Two rows of one batch rarely meet again in the next epoch; long and short batches are mixed."""
    lengths = realistic("sentences", 5000)
    home = np.empty((2, len(lengths)), dtype=int)
    for epoch in range(2):
        for i, batch in enumerate(plan_batches(lengths, 512, 1, epoch)):
            home[epoch, batch] = i
    first = [np.flatnonzero(home[0] == i) for i in range(home[0].max() + 1)]
    together = [np.mean(home[1, rows][:, None] == home[1, rows][None, :]) for rows in first if 8 <= len(rows) <= 30]
    assert np.mean(together) < 0.5
    widths = [lengths[batch].max() for batch in plan_batches(lengths, 512, 1, 0)]
    assert abs(np.corrcoef(np.arange(len(widths)), widths)[0, 1]) < 0.2


def test_longest_first_shows_the_worst_at_once() -> None:
    lengths = realistic("reviews", 3000)
    for seed in range(5):
        batches = plan_batches(lengths, 2048, seed, 0, longest_first=True)
        areas = [int(lengths[b].max()) * len(b) for b in batches]
        assert lengths[batches[0]].max() == lengths.max()
        assert max(areas[:2]) == max(areas)
    plain = [lengths[plan_batches(lengths, 2048, seed, 0)[0]].max() == lengths.max() for seed in range(5)]
    assert not all(plain)


def test_what_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"row 1 has 70 tokens, a batch may have 64; cut it into windows"):
        plan_batches(np.array([3, 70]), 64, 0, 0)
    with pytest.raises(ValueError, match="row 1 has length 0"):
        plan_batches(np.array([3, 0]), 64, 0, 0)
    with pytest.raises(ValueError, match="row 0 has 63 tokens"):
        plan_batches(np.array([63]), 63, 0, 0, multiple=8)
    assert plan_batches(np.array([], dtype=np.int64), 64, 0, 0) == []


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 9), st.integers(60, 200))
def test_every_sample_on_exactly_one_rank(lengths: Lengths, world: int, budget: int) -> None:
    batches = plan_batches(lengths, budget, 1, 0)
    parts = [shard(batches, rank, world) for rank in range(world)]
    assert {len(part) for part in parts} == {len(batches)}  # every rank takes as many steps
    for step, batch in enumerate(batches):
        pieces = [part[step] for part in parts]
        assert np.array_equal(np.concatenate(pieces), batch)  # the same samples in the same order at every world size
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


@pytest.mark.parametrize(("rank", "world"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_outside_the_world(rank: int, world: int) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        shard([], rank, world)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200), st.integers(0, 5))
def test_pairs_have_two_rectangles_within_one_budget(pairs, epoch):
    lengths = np.array(pairs)
    batches = plan_batches(lengths, 160, 3, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(pairs)))
    assert all(len(batch) * lengths[batch].max(0).sum() <= 160 for batch in batches)


def test_pairs_are_alike_on_both_sides():
    """Pairs of equal sums may differ much on both sides: sorted by the sum, a fifth would be padding."""
    random = np.random.default_rng(0)
    source = random.integers(5, 40, 20_000)
    lengths = np.stack([source, np.clip(source + random.integers(-6, 7, 20_000), 1, None)], axis=1)
    good, bad = (padding_ratio(lengths, plan_batches(sizes, 4096, 1, 0)) for sizes in (lengths, lengths.sum(1)))
    assert good < 0.05
    assert bad > 3 * good
    with pytest.raises(ValueError, match="row 1 has 11 tokens, a batch may have 10"):
        plan_batches(np.array([[1, 2], [5, 6]]), 10, 1, 0)
