"""What looking into heads costs: watching with nothing asked, statistics of all heads, one row of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks import attention_baselines
from benchmarks.timing import Ratio, ratio, time_rounds
from multihead.attention import AttentionBias, MultiHeadAttention, attend, attend_reference
from multihead.inspection import Recording, watch

# Statistics are timed from here on; watching is up to here, for it costs something per call, not per token.
LONG = 2048
ROW_AT = 8192
HEAD = 3


@dataclass(frozen=True)
class OverheadResult:
    """A time over another, or over a millisecond."""

    what: str
    length: int
    rounds: int
    ratio: Ratio
    noise: Ratio | None = None  # the same over itself


def count(lengths: Sequence[int]) -> int:
    """How many looks there will be."""
    return sum((length <= LONG) + (length >= LONG) for length in lengths) + 1


def measure_overheads(lengths: Sequence[int], rounds: int, tick: Callable[[str], None]) -> Iterator[OverheadResult]:
    for length in sorted(lengths):
        if length <= LONG:
            tick(f"watching, {length} tokens")
            yield time_watching(length, rounds)
        if length >= LONG:
            tick(f"statistics, {length} tokens")
            yield statistics(length, rounds)
    length = min(ROW_AT, max(lengths))
    tick(f"a row, {length} tokens")
    yield one_row(length, rounds)


@torch.no_grad()
def time_watching(length: int, rounds: int) -> OverheadResult:
    """A call under `watch` over a plain call."""
    module, x = _make_inputs(length)

    def on() -> None:
        with watch(module):
            module(x)

    times = time_rounds(
        {"off": lambda: module(x), "off again": lambda: module(x), "on": on},
        rounds,
        same=("off again", "off"),
    )
    noise = ratio(times["off again"], times["off"])
    return OverheadResult("watch", length, len(times["on"]), ratio(times["on"], times["off"]), noise)


@torch.no_grad()
def statistics(length: int, rounds: int) -> OverheadResult:
    """A fused call with the statistics of all its heads over the fused call alone; no projections."""
    seen = _record(length)
    record = next(iter(seen.passes.values()))[0]

    def run_plain() -> None:
        attend(record.q, record.k, record.v, record.bias, scale=record.scale)

    def run_with_stats() -> None:
        run_plain()
        seen.stats()

    times = time_rounds(
        {"plain": run_plain, "plain again": run_plain, "asked": run_with_stats}, rounds, same=("plain again", "plain")
    )
    noise = ratio(times["plain again"], times["plain"])
    return OverheadResult("stats", length, len(times["asked"]), ratio(times["asked"], times["plain"]), noise)


@torch.no_grad()
def one_row(length: int, rounds: int) -> OverheadResult:
    """Milliseconds for the weights of one row of one head."""
    seen = _record(length)
    times = time_rounds({"row": lambda: seen[0].weights((0, HEAD), rows=[length // 2])}, rounds)["row"]
    return OverheadResult("row", length, len(times), ratio(times, [1e-3] * len(times)))


def _make_inputs(length: int) -> tuple[MultiHeadAttention, Tensor]:
    draw = torch.Generator().manual_seed(length)
    return attention_baselines.reference().eval(), torch.randn(
        attention_baselines.batch(length), length, attention_baselines.DIM, generator=draw
    )


def _record(length: int) -> Recording:
    module, x = _make_inputs(length)
    with torch.no_grad(), watch(module) as seen:
        module(x)
    return seen


def _stats_job(length: int) -> Callable[[], object]:
    """Everything: projections, the call, what `watch` keeps, statistics."""
    return lambda: _record(length).stats()


def _explicit_job(length: int) -> Callable[[], object]:
    """The formula alone, on q, k and v that exist already."""
    q, k, v = torch.randn(
        3,
        attention_baselines.batch(length),
        attention_baselines.HEADS,
        length,
        attention_baselines.DIM // attention_baselines.HEADS,
    )
    sight = AttentionBias(None, length, length, q)
    return torch.no_grad()(lambda: attend_reference(q, k, v, sight, scale=q.shape[-1] ** -0.5))


JOBS: dict[str, Callable[[int], Callable[[], object]]] = {"stats": _stats_job, "explicit": _explicit_job}
