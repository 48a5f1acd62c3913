"""Long recordings: windows that end in silence where there is any, overlap where there is none, and are merged after.

Nothing is cut off: every sample lies in a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np

from multihead.audio.decode import RATE, Samples

FRAME = RATE // 100  # 10 ms, over which loudness is measured
PAUSE = 0.2  # seconds of silence in whose middle a recording may be cut


@dataclass(frozen=True)
class Window:
    """Samples start..stop of a recording."""

    start: int
    stop: int


class Timed(Protocol):
    """Anything with a beginning and an end in seconds: a word, a segment."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


Item = TypeVar("Item", bound=Timed)


def measure_loudness(samples: Samples) -> Samples:
    """Return the decibels of every 10 ms, 0 = full scale."""
    count = -(-len(samples) // FRAME)
    padded = np.zeros(count * FRAME, dtype=np.float32)
    padded[: len(samples)] = samples
    power = np.square(padded.reshape(count, FRAME)).mean(axis=1) if count else np.zeros(0, dtype=np.float32)
    return (10 * np.log10(power + 1e-10)).astype(np.float32)


def find_silence(samples: Samples, threshold: float | None = None, shortest: float = PAUSE) -> list[Window]:
    """Return the pauses of at least `shortest` seconds.

    threshold: decibels below which it is silent; None: 35 dB under the loud parts, but above the quietest tenth.
    """
    loudness = measure_loudness(samples)
    if not len(loudness):
        return []
    if threshold is None:
        loud, quiet = np.percentile(loudness, 95), np.percentile(loudness, 10)
        threshold = max(float(loud) - 35, min(float(quiet) + 3, float(loud) - 15), -70.0)
    silent = np.concatenate(([False], loudness < threshold, [False]))
    edges = np.flatnonzero(silent[1:] != silent[:-1])
    pauses = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    least = shortest * RATE / FRAME
    return [Window(a * FRAME, min(b * FRAME, len(samples))) for a, b in pauses if b - a >= least]


def split_windows(samples: Samples, seconds: float = 30.0, overlap: float = 5.0) -> list[Window]:
    """Return windows of at most `seconds` that cover the recording.

    A window ends in the middle of the last pause of its second half, and the next one begins there; without a pause
    the next one begins `overlap` seconds before its end.
    """
    if not 0 <= overlap < seconds / 2:
        raise ValueError(f"overlap={overlap} must be less than half of seconds={seconds}")
    longest, shared, total = int(seconds * RATE), int(overlap * RATE), len(samples)
    middles = [(pause.start + pause.stop) // 2 for pause in find_silence(samples)]
    windows, start = [], 0
    while total - start > longest:
        stop = start + longest
        cut = max((middle for middle in middles if start + longest // 2 < middle <= stop), default=None)
        windows.append(Window(start, stop if cut is None else cut))
        start = stop - shared if cut is None else cut
    return [*windows, Window(start, total)] if total else []


def merge_windows(windows: Sequence[Window], items: Sequence[Sequence[Item]]) -> list[Item]:
    """Join what was recognized in each window; times are in seconds from each window's start, the result's from 0.

    In the overlap of two windows the left one is believed up to its middle and the right one behind it: each window
    knows least at its edges.
    """
    if len(windows) != len(items):
        raise ValueError(f"{len(windows)} windows, but {len(items)} lists of items")
    cuts = [0.0, *((left.stop + right.start) / 2 / RATE for left, right in pairwise(windows)), float("inf")]
    merged: list[Item] = []
    for number, (window, inside) in enumerate(zip(windows, items, strict=True)):
        offset = window.start / RATE
        for item in inside:
            middle = offset + (item.start + item.end) / 2
            if cuts[number] <= middle < cuts[number + 1] or (number == 0 and middle < cuts[1]):
                merged.append(replace(item, start=item.start + offset, end=item.end + offset))  # type: ignore[type-var]
    return merged
