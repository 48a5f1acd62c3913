"""Times that can be compared on a noisy machine: contestants take turns, and only ratios are believed.

The machine's pace drifts, so times of one round belong together: besides the ratio of the two minima there is
the median of the rounds' own ratios, with an interval from order statistics, which supposes little about noise.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

ROUNDS = 15  # wanted where a round is short
SECONDS = 1.0  # wanted of each race
PATIENCE = 30.0  # seconds a race may take for that
MOST = 100  # rounds
QUIET = 0.02  # twins may differ by this; while they differ by more, a race goes on, for up to PATIENCE again


@dataclass(frozen=True)
class Ratio:
    """One time over another. The median lies in low..high with this confidence."""

    minima: float
    median: float
    low: float
    high: float
    confidence: float

    @property
    def off(self) -> float:
        """How far from 1 it may be."""
        return max(self.high - 1, 1 - self.low)

    def holds(self, bar: float) -> bool:
        """At most the bar, or the interval includes it."""
        return min(self.minima, self.low) <= bar


def time_rounds(
    contestants: Mapping[str, Callable[[], object]], rounds: int, same: tuple[str, str] | None = None
) -> dict[str, list[float]]:
    """Seconds of every contestant in every round: at least `rounds`, more where they are short.

    The order is drawn anew in each round: nobody always runs behind the one that empties the caches. `same`
    names two that do the same; their difference is the noise, and a noisy race goes on for a while.
    """
    for run in contestants.values():
        run()  # first calls pay for threads, workspaces and pages
    start, draw = time.perf_counter(), random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    gc.collect()
    gc.disable()
    try:
        while needs_more_rounds(times, rounds, time.perf_counter() - start, same):
            for name in draw.sample(list(contestants), len(contestants)):
                times[name].append(_seconds(contestants[name]))
    finally:
        gc.enable()
    return times


def needs_more_rounds(
    times: Mapping[str, Sequence[float]], rounds: int, spent: float, same: tuple[str, str] | None = None
) -> bool:
    """Whether a race that has these times, and took `spent` seconds, goes on."""
    done = len(next(iter(times.values())))
    if done < max(rounds, 1):
        return True
    if done >= MOST or spent > 2 * PATIENCE:
        return False
    if spent < PATIENCE and (done < ROUNDS or spent < SECONDS):
        return True
    return same is not None and ratio(times[same[0]], times[same[1]]).off > QUIET


def ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """a over b, times of the same rounds."""
    paired = sorted(x / y for x, y in zip(a, b, strict=True))
    cut, confidence = _order(len(paired))
    return Ratio(min(a) / min(b), median(paired), paired[cut], paired[-1 - cut], confidence)


def _order(n: int, wanted: float = 0.95) -> tuple[int, float]:
    """How many values to drop at either end, so that the rest spans the median with the wanted confidence.

    Each value lies below the median with probability 1/2, so the count of those below is binomial. Few values
    drop none, and the confidence is what it is: 5 give 0.94.
    """
    outside, cut = 2 * 0.5**n, 0
    while cut + 1 < (n + 1) // 2 and outside + 2 * math.comb(n, cut + 1) * 0.5**n <= 1 - wanted:
        cut += 1
        outside += 2 * math.comb(n, cut) * 0.5**n
    return cut, max(0.0, 1 - outside)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
