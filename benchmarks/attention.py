"""`multihead bench attention`: ours beside the peers, as ratios, with the bars they must hold."""

from __future__ import annotations

import json as jsons
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import attention_baselines, inspection_overhead, peak_memory, plot, tables
from benchmarks import thresholds as bars
from benchmarks.attention_speed import MemoryResult, SpeedResult, Tick, memories, memory_lengths, speeds
from benchmarks.inspection_overhead import OverheadResult
from benchmarks.thresholds import Threshold
from multihead.machine import cpu, threads


@dataclass
class AttentionReport:
    """All that was measured. missing: peers that are not installed."""

    machine: dict[str, object]
    setting: dict[str, object]
    missing: list[str] = field(default_factory=list)
    speeds: list[SpeedResult] = field(default_factory=list)
    memories: list[MemoryResult] = field(default_factory=list)
    looks: list[OverheadResult] = field(default_factory=list)
    bars: list[Threshold] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return all(bar.holds for bar in self.bars)

    def json(self) -> str:
        return jsons.dumps({"holds": self.holds, **asdict(self)}, indent=1)


def run(lengths: list[int], rounds: int, out: Path | None, json: bool) -> int:
    """Measure, print, save; 0 when all bars hold, 1 when one does not."""
    torch.set_num_threads(min(torch.get_num_threads(), threads.processors()))
    contestants = [contestant for contestant in attention_baselines.CONTESTANTS if contestant.is_installed]
    lengths = sorted(set(lengths))
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("building the peers", total=_jobs(len(contestants), lengths))

        def tick(now: str) -> None:
            progress.update(task, description=now, advance=1)

        report = measure(contestants, lengths, rounds, tick)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "attention.json").write_text(report.json(), encoding="utf-8")
        plot.draw(report.speeds, _machine_line(report), out / "attention.png")
    if json:
        print(report.json())
    else:
        console = Console()
        tables.show(console, report.speeds, report.memories, report.bars, report.missing)
        console.print(_machine_line(report), style="dim", highlight=False)
        if out is not None:
            console.print(f"{out / 'attention.json'}, {out / 'attention.png'}", style="dim", highlight=False)
    return 0 if report.holds else 1


def measure(
    contestants: Sequence[attention_baselines.Baseline], lengths: Sequence[int], rounds: int, tick: Tick
) -> AttentionReport:
    versions = {name: version(name) for name in sorted({c.package for c in contestants})}
    report = AttentionReport(
        {"cpu": cpu.cpu_name(), "threads": torch.get_num_threads(), **versions},
        {
            "dim": attention_baselines.DIM,
            "heads": attention_baselines.HEADS,
            "dtype": "float32",
            "lengths": list(lengths),
            "rounds": rounds,
        },
        sorted({c.package for c in attention_baselines.CONTESTANTS if not c.is_installed}),
    )
    report.speeds += speeds(contestants, lengths, rounds, tick)
    report.looks += inspection_overhead.measure_overheads(lengths, rounds, tick)
    report.memories += memories(contestants, lengths, tick)
    report.bars += [*bars.speed_thresholds(report.speeds), *bars.overhead_thresholds(report.looks)]
    if bars.STATS_MEMORY_AT in lengths:
        tick("memory, statistics")
        stats = peak_memory.peak_in_child("stats", bars.STATS_MEMORY_AT)
        report.bars.append(bars.memory_thresholds(stats, peak_memory.peak_in_child("explicit", bars.EXPLICIT_AT)))
    return report


def _jobs(contestants: int, lengths: Sequence[int]) -> int:
    """How often `tick` will be called."""
    races = len(attention_baselines.MODES) * len(lengths) + inspection_overhead.count(lengths)
    children = len(attention_baselines.MODES) * len(memory_lengths(lengths)) * contestants
    return races + children + (bars.STATS_MEMORY_AT in lengths)


def _machine_line(report: AttentionReport) -> str:
    return ", ".join(
        str(value) if name == "cpu" else f"{value} {name}" if name == "threads" else f"{name} {value}"
        for name, value in report.machine.items()
    )
