"""`multihead bench decode`: text per second, ours beside transformers' `generate` and CTranslate2, same weights.

A small translation model (4 + 4 layers of width 128, as for multi30k) with random weights, or one of your own. The
same sources, the same settings, the same rule for the end of a search; greedy and beam 5, one source and 32 at a time.
Before anything is timed, transformers must have written the same tokens (but for a tie or two); the share of texts that
are equal is shown.
"""

from __future__ import annotations

import json as jsons
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.attention_baselines import AGAIN, OURS
from benchmarks.timing import Ratio, ratio, time_rounds
from benchmarks.translation_baselines import CT2, CT2_INT8, THEIRS, Write, make_writers, weights
from multihead.machine import cpu, memory, threads

BAR = 3.0  # times as fast as transformers
BEAMS, BATCHES = (1, 5), (1, 32)
TIES = 0.05  # of the texts may differ: two candidates of a beam can be equal but for rounding

Tick = Callable[[str], None]


@dataclass(frozen=True)
class DecodeResult:
    """One race. ratios: our time over theirs; equal: share of texts that are ours."""

    beam: int
    batch: int
    rounds: int
    tokens: int
    seconds: dict[str, float]
    ratios: dict[str, Ratio]
    equal: dict[str, float]

    @property
    def holds(self) -> bool:
        return THEIRS not in self.ratios or self.ratios[THEIRS].holds(1 / BAR)


@dataclass
class DecodeReport:
    machine: dict[str, object]
    model: str
    missing: list[str] = field(default_factory=list)
    lines: list[DecodeResult] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return all(line.holds for line in self.lines)

    def json(self) -> str:
        return jsons.dumps({"holds": self.holds, "bar": BAR, **asdict(self)}, indent=1)


def run(model: Path | None, data: Path | None, rounds: int, out: Path | None, json: bool) -> int:
    """Measure, print, save; 0 when the bar holds, 1 when it does not."""
    memory.disable_malloc_trim()  # for all of them
    torch.set_num_threads(min(torch.get_num_threads(), threads.processors()))
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("building the peers", total=len(BEAMS) * len(BATCHES) + 1)
        report = measure(model, data, rounds, lambda now: progress.update(task, description=now, advance=1))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "decode.json").write_text(report.json(), encoding="utf-8")
    if json:
        print(report.json())
    else:
        show(report, Console())
    return 0 if report.holds else 1


def measure(model: Path | None, data: Path | None, rounds: int, tick: Tick) -> DecodeReport:
    if find_spec("transformers") is None:
        raise ValueError("bench decode needs transformers; run pip install 'multihead[bench]'")
    packages = [name for name in ("torch", "transformers", "ctranslate2") if find_spec(name) is not None]
    machine = {"cpu": cpu.cpu_name(), "threads": torch.get_num_threads(), **{name: version(name) for name in packages}}
    missing = [] if "ctranslate2" in packages else ["ctranslate2"]
    with weights(model) as directory:
        tick("opening the peers")
        contestants, sources = make_writers(directory, data)
        if not sources:
            raise ValueError(f"{data}: there is no line to read")
        what = f"{model or 'random weights, 4 + 4 layers of width 128'}; {len(sources)} sources"
        report = DecodeReport(machine, what, missing)
        for beam in BEAMS:
            for batch in BATCHES:
                tick(f"beam {beam}, {batch} at a time")
                report.lines.append(line(contestants, sources, beam, batch, rounds))
    return report


def line(contestants: dict[str, Write], sources: list[list[int]], beam: int, batch: int, rounds: int) -> DecodeResult:
    cut = [sources[i : i + batch] for i in range(0, len(sources), batch)]
    texts = {name: [text for some in cut for text in write(some, beam)] for name, write in contestants.items()}
    wrong = sum(a != b for a, b in zip(texts[OURS], texts[THEIRS], strict=True))
    if wrong > TIES * len(sources):
        raise ValueError(f"beam {beam}, batch {batch}: {wrong} of {len(sources)} texts are not those of transformers")
    jobs = {name: _job(write, cut, beam) for name, write in contestants.items()}
    times = time_rounds({**jobs, AGAIN: jobs[OURS]}, rounds, same=(OURS, AGAIN))
    return DecodeResult(
        beam,
        batch,
        len(times[OURS]),
        sum(len(text) + 1 for text in texts[OURS]),
        {name: min(seconds) for name, seconds in times.items()},
        {name: ratio(times[OURS], seconds) for name, seconds in times.items() if name != OURS},
        {
            name: sum(a == b for a, b in zip(found, texts[OURS], strict=True)) / len(sources)
            for name, found in texts.items()
        },
    )


def _job(write: Write, cut: Sequence[list[list[int]]], beam: int) -> Callable[[], object]:
    return lambda: [write(some, beam) for some in cut]


def show(report: DecodeReport, console: Console) -> None:
    names = [name for name in (THEIRS, CT2, CT2_INT8, AGAIN) if any(name in line.ratios for line in report.lines)]
    caption = (
        f"{report.model}. Above 1 we are faster; in brackets, where not all texts are ours, "
        f"the share that is. Bar: {BAR:g} times transformers. Ours again: the noise."
    )
    table = Table(title="Decoding: their time ÷ ours (median of pairs, interval)", caption=caption, box=SIMPLE_HEAD)
    table.collapse_padding, table.pad_edge = True, False  # all of it in 80 columns
    for column in ("beam", "batch", "ours,\ntokens/s", *(name.replace(" ", "\n") for name in names), ""):
        table.add_column(column, justify="right", no_wrap=True)
    for one in report.lines:
        cells = [_cell(one, name) for name in names]
        verdict = "[green]ok[/]" if one.holds else "[bold red]FAIL[/]"
        table.add_row(str(one.beam), str(one.batch), f"{one.tokens / one.seconds[OURS]:,.0f}", *cells, verdict)
    console.print(table)
    if report.missing:
        console.print(
            f"Left out: {', '.join(report.missing)}. To get them: pip install 'multihead[bench]'", markup=False
        )
    line = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    console.print(line, style="dim", highlight=False)


def _cell(one: DecodeResult, name: str) -> str:
    if name not in one.ratios:
        return ""
    found, share = one.ratios[name], one.equal.get(name, 1.0)
    text = f"{1 / found.median:.2f}\n{1 / found.high:.2f}–{1 / found.low:.2f}"
    return text if share == 1 else f"{text}\n\\[{share:.0%}]"
