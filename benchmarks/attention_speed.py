"""Ours beside the peers at every length: time of a forward pass and of a training step, and peak memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from benchmarks import attention_baselines, peak_memory
from benchmarks.attention_baselines import AGAIN, OURS, Baseline, BuiltBaseline, Mode
from benchmarks.timing import Ratio, ratio, time_rounds

LARGEST = 4 * 2**30  # bytes: a peer that would build larger tables sits out
SLOWEST = 20.0  # seconds: a peer with tables that would take longer sits out
MEMORY_AT = (2048, 16_384)  # lengths whose peak memory is measured; each costs a process per contestant
AGREES = 1e-4  # of the largest number in the output

Tick = Callable[[str], None]


@dataclass(frozen=True)
class SpeedResult:
    """One race. seconds: the minimum; ratios: our time over theirs; skipped: why a peer sat out."""

    mode: Mode
    length: int
    batch: int
    rounds: int
    seconds: dict[str, float]
    ratios: dict[str, Ratio]
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The fastest of the peers."""
        return min((name for name in self.seconds if name not in (OURS, AGAIN)), key=self.seconds.__getitem__)


@dataclass(frozen=True)
class MemoryResult:
    """Peak bytes of one job at one length, by contestant; None where it could not be measured."""

    mode: Mode
    length: int
    bytes: dict[str, int | None]
    skipped: dict[str, str] = field(default_factory=dict)


def builds(contestants: Sequence[Baseline]) -> dict[str, BuiltBaseline]:
    """All contestants with the same weights; one that computes something else is an error, not a peer."""
    like = attention_baselines.reference()
    x = torch.randn(2, 24, like.dim, generator=torch.Generator().manual_seed(1))
    found = {contestant.name: contestant.build(like) for contestant in contestants}
    with torch.no_grad():
        want = like(x)
        for name, (module, call) in found.items():
            module.eval()
            error = float((call(x) - want).abs().max() / want.abs().max())
            if not error <= AGREES:
                raise ValueError(f"{name} computes something else than ours (relative error {error:.1e})")
    return found


def speeds(contestants: Sequence[Baseline], lengths: Sequence[int], rounds: int, tick: Tick) -> Iterator[SpeedResult]:
    """A race for every length and mode."""
    built = builds(contestants)
    for mode in attention_baselines.MODES:
        last: dict[str, tuple[float, int]] = {}
        for length in sorted(lengths):
            tick(f"{mode}, {length} tokens")
            skipped = {c.name: why for c in contestants if (why := too_much(c, mode, length, last.get(c.name)))}
            jobs = {name: attention_baselines.job(built[name], mode, length) for name in built if name not in skipped}
            times = time_rounds(jobs, rounds, same=(OURS, AGAIN))
            last |= {name: (min(seconds), attention_baselines.cells(length)) for name, seconds in times.items()}
            yield SpeedResult(
                mode,
                length,
                attention_baselines.batch(length),
                len(times[OURS]),
                {name: min(seconds) for name, seconds in times.items()},
                {name: ratio(times[OURS], seconds) for name, seconds in times.items() if name != OURS},
                skipped,
            )


def too_much(contestant: Baseline, mode: Mode, length: int, last: tuple[float, int] | None = None) -> str:
    """Why a peer sits out at this length, or "". last: its seconds and cells at a shorter one."""
    need = contestant.bytes(mode, length)
    if need > LARGEST:
        return f"{need / 1e9:.0f} GB"
    if need and last is not None and (seconds := last[0] * attention_baselines.cells(length) / last[1]) > SLOWEST:
        return f"{seconds:.0f} s"
    return ""


def memory_lengths(lengths: Sequence[int]) -> list[int]:
    """Those of MEMORY_AT that were asked for, else the longest."""
    return [length for length in sorted(lengths) if length in MEMORY_AT] or [max(lengths)]


def memories(contestants: Sequence[Baseline], lengths: Sequence[int], tick: Tick) -> Iterator[MemoryResult]:
    """Peak memory of every contestant, each in a process of its own."""
    for mode in attention_baselines.MODES:
        for length in memory_lengths(lengths):
            skipped = {c.name: why for c in contestants if (why := too_much(c, mode, length))}
            found: dict[str, int | None] = {}
            for contestant in contestants:
                tick(f"memory, {mode}, {length} tokens")
                if contestant.name not in (AGAIN, *skipped):
                    found[contestant.name] = peak_memory.peak_in_child(contestant.name, length, mode)
            yield MemoryResult(mode, length, found, skipped)
