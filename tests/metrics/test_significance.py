"""Differences of two systems, and McNemar's test against scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from multihead.metrics import ClassificationMetric, Spearman, compare_paired, count_flips, mcnemar
from multihead.metrics.significance import difference


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar(gained: int, lost: int) -> None:
    want = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert mcnemar(gained, lost) == pytest.approx(want, rel=1e-9)


def test_mcnemar_of_many() -> None:
    assert mcnemar(50_500, 49_500) == pytest.approx(binomtest(50_500, 100_000).pvalue, rel=1e-6)
    assert mcnemar(5000, 0) == 0.0
    with pytest.raises(ValueError, match="negative"):
        mcnemar(-1, 3)


def test_flips() -> None:
    found = count_flips(["a", "b", "c", "d", "e"], ["a", "x", "x", "d", "x"], ["a", "b", "c", "x", "y"])
    assert (found.gained, found.lost) == (2, 1)
    assert found.p_value == 1.0
    with pytest.raises(ValueError, match="expected three times"):
        count_flips([1], [1, 2], [1])


def two(n: int, gain: float, seed: int) -> tuple[ClassificationMetric, ClassificationMetric]:
    """Two systems that agree on most samples; the second is right on `gain` more."""
    rng = np.random.default_rng(seed)
    draw = rng.random(n)
    first, second = draw < 0.8, np.where(rng.random(n) < 0.1, rng.random(n) < 0.8 + gain * 10, draw < 0.8)
    metrics = []
    for right in (first, second):
        metric = ClassificationMetric(["no", "yes"], replicates=200)
        order = rng.permutation(n)  # pairing is by number, not by order
        metric.add(np.ones(n, dtype=int), right.astype(int)[order], index=order)
        metrics.append(metric)
    return metrics[0], metrics[1]


def test_pairing_sees_what_two_intervals_do_not() -> None:
    first, second = two(2000, 0.02, 0)
    found = compare_paired(first, second)["accuracy"]
    before, after = first.result()["accuracy"], second.result()["accuracy"]
    assert found.value == pytest.approx(after.value - before.value)
    assert found.interval.low > 0
    assert found.p_value < 0.05
    assert before.interval is not None
    assert after.interval is not None
    assert before.interval.high > after.interval.low
    back = compare_paired(second, first)["accuracy"]
    assert (back.value, back.p_value) == (-found.value, found.p_value)
    assert back.interval.low == pytest.approx(-found.interval.high)


def test_equal_systems_are_called_different_as_rarely_as_promised() -> None:
    p_values = np.array([compare_paired(*two(300, 0.0, seed))["accuracy"].p_value for seed in range(200)])
    assert 0.005 <= (p_values < 0.05).mean() <= 0.10
    same = two(300, 0.0, 0)[0]
    assert compare_paired(same, same)["accuracy"].p_value == 1.0


def test_p_is_two_sided() -> None:
    replicates = np.concatenate((np.full(20, -0.1), np.full(979, 0.2), [np.nan]))
    assert difference(0.1, replicates).p_value == pytest.approx(2 * 21 / 1000)
    assert difference(0.1, -replicates).p_value == pytest.approx(2 * 21 / 1000)
    assert difference(0.1, np.full(999, 0.2)).p_value == pytest.approx(2 / 1000)  # never 0


def test_ranks_are_paired_too() -> None:
    rng = np.random.default_rng(0)
    gold = rng.normal(size=300)
    good, better = Spearman(replicates=200), Spearman(replicates=200)
    noise = rng.normal(size=300)
    order = rng.permutation(300)
    good.add(gold, gold + noise)
    better.add(gold[order], (gold + 0.9 * noise)[order], order)
    found = compare_paired(good, better)["spearman"]
    assert 0 < found.interval.low < found.value < found.interval.high < 0.1


def test_only_the_same_samples() -> None:
    first, _ = two(50, 0.0, 0)
    for n, replicates, seed, shift in ((49, 200, 0, 0), (50, 300, 0, 0), (50, 200, 1, 0), (50, 200, 0, 1)):
        other = ClassificationMetric(["no", "yes"], replicates=replicates, seed=seed)
        other.add([1] * n, [1] * n, index=np.arange(n) + shift)
        with pytest.raises(ValueError, match="the metrics have different samples"):
            compare_paired(first, other)
    without = ClassificationMetric(["no", "yes"], replicates=0)
    with pytest.raises(ValueError, match="switched off"):
        compare_paired(without, without)
