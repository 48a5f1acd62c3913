"""`multihead bench train`: real tokens per second of a training step, ours beside the peers' loops.

Same model, data, optimiser, dropout and tokens per batch. Contestants take turns, each in a process of its own and with
some batches drawn at random from an epoch of its own, so that the mix of lengths is fair.
"""

from __future__ import annotations

import json as jsons
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.attention_baselines import OURS
from benchmarks.subprocess_runner import run_in_processes
from benchmarks.timing import Ratio, ratio
from multihead.machine import cpu, precision, threads
from multihead.machine.precision import Name, display_name


class RoundResult(NamedTuple):
    """One round of a contestant."""

    tokens: int  # real ones
    padded: int  # and with padding
    seconds: float


class Benchmark(NamedTuple):
    """Loops over the same data: each call takes some random batches of an epoch."""

    name: str
    what: str
    loops: Mapping[str, Callable[[], RoundResult]]
    bars: Mapping[str, tuple[float, float]]  # contestant -> how many times as fast we must be, and want to be
    flops: Callable[[int], float]  # of so many tokens, forwards and backwards
    half: bool = False  # all compute in bf16; otherwise in fp32


@dataclass(frozen=True)
class TrainingResult:
    """A contestant. pace: our real tokens per second over theirs; share: of the machine's product speed."""

    name: str
    tokens_per_second: float
    padding: float
    share: float
    pace: Ratio | None
    bar: float | None
    aim: float | None

    @property
    def holds(self) -> bool:
        return self.pace is None or self.bar is None or 1 / self.pace.median >= self.bar


@dataclass(frozen=True)
class TrainingReport:
    race: str
    what: str
    machine: str
    gigaflops: float  # the best product of two matrices that was seen
    rounds: int
    lines: list[TrainingResult]

    @property
    def holds(self) -> bool:
        return all(line.holds for line in self.lines)


def our_precision(half: bool) -> Name:
    """What ours computes in: bf16, or what `auto` would take of the ways that are fp32."""
    if half:
        return precision.choose_precision("bf16", partial(precision.measure, ("bf16",)))
    return precision.choose_precision("auto", partial(precision.measure, ("onednn",)))


def half_precision(half: bool) -> torch.autocast:
    """Around a peer's loss: bf16 as torch gives it to everybody."""
    return torch.autocast("cpu", torch.bfloat16, enabled=half)


def measure_matmul_speed(size: int = 1024, inner: int = 384, outer: int = 1536) -> Callable[[], float]:
    """A measurement of the machine's speed: the FLOPs per second of one product, as large as a model's."""
    a, b = torch.randn(size, inner), torch.randn(outer, inner)

    def once() -> float:
        begin = time.perf_counter()
        F.linear(a, b)
        return 2 * size * inner * outer / (time.perf_counter() - begin)

    return once


def measure(race: Benchmark, rounds: int, tick: Callable[[str], None]) -> TrainingReport:
    """Every round, each contestant takes its batches; between them, products are timed."""
    product = measure_matmul_speed()
    for name, run in race.loops.items():
        tick(f"{name}, to get warm")
        run()
    ran: dict[str, list[RoundResult]] = {name: [] for name in race.loops}
    best = 0.0
    for number in range(rounds):
        for name, run in race.loops.items():
            tick(f"{name}, round {number + 1} of {rounds}")
            best = max(best, *(product() for _ in range(20)))
            ran[name].append(run())
    costs = {name: [some.seconds / some.tokens for some in turns] for name, turns in ran.items()}
    lines = []
    for name, turns in ran.items():
        fastest = min(turns, key=lambda some: some.seconds / some.tokens)
        bar, aim = race.bars.get(name, (None, None))
        lines.append(
            TrainingResult(
                name,
                fastest.tokens / fastest.seconds,
                1 - sum(some.tokens for some in turns) / sum(some.padded for some in turns),
                race.flops(fastest.padded) / fastest.seconds / best,
                None if name == OURS else ratio(costs[OURS], costs[name]),
                bar,
                aim,
            )
        )
    ways = "all in bf16" if race.half else f"ours in {display_name(our_precision(False))}, theirs in fp32"
    machine = f"{cpu.cpu_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {ways}"
    return TrainingReport(race.name, race.what, machine, best / 1e9, rounds, lines)


def run(make: Callable[[], Benchmark], rounds: int, out: Path | None, json: bool) -> int:
    """Measure, print, save; 0 when all bars hold, 1 when one does not. make: a function that can be pickled."""
    torch.set_num_threads(min(torch.get_num_threads(), threads.processors()))
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading the data", total=None)
        race = make()
        progress.update(task, total=len(race.loops) * (rounds + 1))
        with run_in_processes(make, race.loops) as loops:
            turns = race._replace(loops=loops)
            report = measure(turns, rounds, lambda now: progress.update(task, description=now, advance=1))
    text = jsons.dumps({"holds": report.holds, **asdict(report)}, indent=1)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"train-{race.name}{'-bf16' * race.half}.json").write_text(text, encoding="utf-8")
    if json:
        print(text)
    else:
        show(report, Console())
    return 0 if report.holds else 1


def show(report: TrainingReport, console: Console) -> None:
    caption = (
        f"{report.what}. {report.rounds} rounds in turns: the ratio of the fastest, and the median of paired ratios "
        f"(interval), which must reach the bar. {report.machine}; products of matrices: {report.gigaflops:.0f} GFLOP/s."
    )
    title = f"Training step, {report.race}: ours ÷ theirs; speed: of matrix products"
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("", min_width=12)
    for column in ("tokens/s", "padding", "speed", "fastest", "paired", "bar", ""):  # whole in 80 columns
        table.add_column(column, justify="right", no_wrap=True)
    for line in report.lines:
        cells = [line.name, f"{line.tokens_per_second:,.0f}", f"{line.padding:.1%}", f"{line.share:.0%}"]
        if line.pace is not None:
            low, high = 1 / line.pace.high, 1 / line.pace.low
            cells += [f"{1 / line.pace.minima:.2f}", f"{1 / line.pace.median:.2f} ({low:.2f}–{high:.2f})"]
        if line.pace is not None and line.bar is not None:
            cells += [f"≥ {line.bar:g}", _verdict(line)]
        table.add_row(*cells)
    console.print(table)


def _verdict(line: TrainingResult) -> str:
    if not line.holds:
        return "[bold red]FAIL[/]"
    reached = line.pace is not None and 1 / line.pace.median >= (line.aim or math.inf)
    return "[green]aim[/]" if reached else "[green]ok[/]"
