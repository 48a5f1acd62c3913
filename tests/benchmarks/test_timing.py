"""Interval arithmetic on made numbers, and how long a race goes on."""

import math
from itertools import count

import pytest

from benchmarks import timing
from benchmarks.timing import Ratio, needs_more_rounds, ratio, time_rounds


def test_ratio_of_made_numbers() -> None:
    theirs = [2.0, 4.0, 8.0, 2.0, 4.0, 8.0, 2.0, 4.0, 8.0]  # the pace drifts; the rounds' ratios do not
    ours = [t * r for t, r in zip(theirs, [0.9, 1.1, 1.0, 0.8, 1.2, 0.7, 1.3, 0.6, 1.4], strict=True)]
    found = ratio(ours, theirs)
    assert found.minima == pytest.approx(1.6 / 2.0)
    assert found.median == pytest.approx(1.0)
    # Of 9 values one may be dropped at either end: 1 - 2·(1 + 9)/2⁹ = 0.961; two would leave 0.820.
    assert (found.low, found.high) == pytest.approx((0.7, 1.3))
    assert found.confidence == pytest.approx(1 - 20 / 512)


@pytest.mark.parametrize(
    ("n", "cut", "confidence"),
    [(1, 0, 0.0), (2, 0, 0.5), (5, 0, 0.9375), (8, 0, 1 - 2 / 256), (15, 3, 1 - 2 * 576 / 2**15)],
)
def test_order_statistics(n: int, cut: int, confidence: float) -> None:
    assert timing._order(n) == (cut, pytest.approx(confidence))


def test_order_statistics_agree_with_the_binomial() -> None:
    for n in range(6, 80):
        cut, confidence = timing._order(n)
        tail = sum(math.comb(n, i) for i in range(cut + 1)) / 2**n
        wider = tail + math.comb(n, cut + 1) / 2**n
        assert confidence == pytest.approx(1 - 2 * tail)
        assert 2 * tail <= 0.05 < 2 * wider


def test_a_bar_holds_below_or_inside_the_interval() -> None:
    def made(minima: float, low: float, high: float) -> Ratio:
        return Ratio(minima, (low + high) / 2, low, high, 0.95)

    assert made(1.00, 1.05, 1.10).holds(1.03)  # the minima say so
    assert made(1.10, 0.98, 1.10).holds(1.03)  # the interval includes it
    assert not made(1.10, 1.04, 1.20).holds(1.03)
    assert made(1.0, 0.97, 1.01).off == pytest.approx(0.03)


def test_a_race_gives_everybody_every_round() -> None:
    runs: list[str] = []
    times = time_rounds({name: lambda name=name: runs.append(name) for name in "abc"}, 40)  # however slow the machine
    assert {len(seconds) for seconds in times.values()} == {len(times["a"])}
    assert len(times["a"]) >= 40
    assert len(runs) == 3 * (len(times["a"]) + 1)  # and one call to warm up
    rounds = [tuple(runs[i : i + 3]) for i in range(3, len(runs), 3)]
    assert all(sorted(order) == list("abc") for order in rounds)
    assert len(set(rounds)) == 6  # in every order


def test_how_long_a_race_goes_on() -> None:
    def going(rounds: int, spent: float, done: int, twin: float = 1.0) -> bool:
        times = {"a": [1.0] * done, "b": [twin] * done}
        return needs_more_rounds(times, rounds, spent, same=("a", "b"))

    assert going(5, spent=1000, done=4)  # what was asked for comes first
    assert not going(5, spent=1000, done=5)
    assert going(5, spent=10, done=5)  # short rounds: more of them
    assert going(5, spent=0.5, done=timing.ROUNDS)
    assert not going(5, spent=2, done=timing.ROUNDS)
    assert not going(5, spent=0.1, done=timing.MOST)
    assert going(5, spent=timing.PATIENCE + 1, done=20, twin=1.1)  # the twins differ: go on
    assert not going(5, spent=2 * timing.PATIENCE + 1, done=20, twin=1.1)


def test_garbage_is_collected_again_after_a_failure() -> None:
    import gc

    numbers = count()

    def fails() -> None:
        if next(numbers) == 2:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        time_rounds({"a": fails}, 4)
    assert gc.isenabled()
