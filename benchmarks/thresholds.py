"""What the numbers must show: ratios that stay below a bar, or whose interval reaches down to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.attention_baselines import TORCH_DEFAULT
from benchmarks.attention_speed import SpeedResult
from benchmarks.inspection_overhead import OverheadResult
from benchmarks.timing import Ratio

BEST, AIM = 1.03, 0.95
DEFAULT, DEFAULT_FROM = 0.6, 2048
LOOKS = {
    "watch": ("watch on, nothing asked ÷ off", 1.02),
    "stats": ("call and statistics of all heads ÷ call", 2.1),
    "row": ("one row of one head, ms", 5.0),
}
STATS_MEMORY, STATS_MEMORY_AT, EXPLICIT_AT = 0.05, 16_384, 2048


@dataclass(frozen=True)
class Threshold:
    what: str
    length: int
    value: float | None  # None: it could not be measured
    limit: float
    holds: bool
    ratio: Ratio | None = None
    aim: float | None = None
    note: str = ""


def speed_thresholds(speeds: Sequence[SpeedResult]) -> Iterator[Threshold]:
    for speed in speeds:
        found = speed.ratios[speed.best]
        what = f"{speed.mode}: ours ÷ best peer"
        yield Threshold(what, speed.length, found.minima, BEST, found.holds(BEST), found, AIM, speed.best)
    for speed in speeds:
        if speed.length >= DEFAULT_FROM and TORCH_DEFAULT in speed.ratios:
            found = speed.ratios[TORCH_DEFAULT]
            what = f"{speed.mode}: ours ÷ torch.nn's default"
            yield Threshold(what, speed.length, found.minima, DEFAULT, found.holds(DEFAULT), found)


def overhead_thresholds(looks: Sequence[OverheadResult]) -> Iterator[Threshold]:
    for look in sorted(looks, key=lambda look: list(LOOKS).index(look.what)):
        what, limit = LOOKS[look.what]
        noise = "" if look.noise is None else f"noise {look.noise.minima:.2f}"
        yield Threshold(what, look.length, look.ratio.minima, limit, look.ratio.holds(limit), look.ratio, note=noise)


def memory_thresholds(stats: int | None, explicit: int | None) -> Threshold:
    """stats: bytes at STATS_MEMORY_AT; explicit: at EXPLICIT_AT, and quadratic from there."""
    what = "memory: statistics ÷ explicit"
    if not stats or not explicit:
        return Threshold(what, STATS_MEMORY_AT, None, STATS_MEMORY, False, note="could not be measured")
    share = stats / (explicit * (STATS_MEMORY_AT / EXPLICIT_AT) ** 2)
    note = f"explicit measured at {EXPLICIT_AT}, scaled quadratically"
    return Threshold(what, STATS_MEMORY_AT, share, STATS_MEMORY, share <= STATS_MEMORY, note=note)
