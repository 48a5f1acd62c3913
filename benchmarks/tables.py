"""The numbers as tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks import attention_baselines
from benchmarks.attention_baselines import AGAIN, OURS, Mode
from benchmarks.attention_speed import MemoryResult, SpeedResult
from benchmarks.thresholds import Threshold

TITLES: dict[Mode, str] = {"forward": "Forward pass", "training": "Training step"}


def show(
    console: Console,
    speeds: Sequence[SpeedResult],
    memories: Sequence[MemoryResult],
    bars: Sequence[Threshold],
    missing: Sequence[str],
) -> None:
    for mode in attention_baselines.MODES:
        console.print(speed_table(mode, [speed for speed in speeds if speed.mode == mode]))
    console.print(memory_table(memories))
    console.print(bar_table(bars))
    if missing:
        console.print(f"Left out: {', '.join(missing)}. To get them: pip install 'multihead[bench]'", markup=False)


def speed_table(mode: Mode, speeds: Sequence[SpeedResult]) -> Table:
    names = [name for name in _names(speeds) if name != OURS]
    caption = "bold: the best peer; GB, s: sat out, it would need that much. Ours again: the noise."
    table = Table(title=f"{TITLES[mode]}: their time ÷ ours (minima)", caption=caption)
    for column in ("tokens", "batch", "rounds", "ours, ms", *names):
        table.add_column(column, justify="right")
    for speed in speeds:
        cells = [
            f"{speed.length:,}",
            str(speed.batch),
            str(speed.rounds),
            f"{speed.seconds[OURS] * 1e3:,.1f}",
        ]
        table.add_row(*cells, *(_theirs(speed, name) for name in names))
    return table


def _theirs(speed: SpeedResult, name: str) -> Text:
    if name in speed.skipped:
        return Text(speed.skipped[name], style="dim")
    style = "dim" if name == AGAIN else "bold" if name == speed.best else ""
    return Text(f"{speed.seconds[name] / speed.seconds[OURS]:.2f}", style=style)


def memory_table(memories: Sequence[MemoryResult]) -> Table:
    names = _names(memories)
    table = Table(title="Peak memory over what was held before, MB")
    for column in ("tokens", "", *names):
        table.add_column(column, justify="right")
    for line in memories:
        table.add_row(f"{line.length:,}", line.mode, *(_megabytes(line, name) for name in names))
    return table


def _megabytes(line: MemoryResult, name: str) -> Text:
    if name in line.skipped:
        return Text(line.skipped[name], style="dim")
    found = line.bytes[name]
    return Text("failed", style="red") if found is None else Text(f"{found / 1e6:,.0f}")


def bar_table(bars: Sequence[Threshold]) -> Table:
    table = Table(title="Bars", caption="A bar holds when the ratio is at most the bar, or its interval reaches it.")
    for column in ("what", "tokens", "minima", "median (interval)", "bar", ""):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for bar in bars:
        what = Text.assemble(bar.what, (f"  {bar.note}" if bar.note else "", "dim"))
        paired = ""
        if bar.ratio is not None:
            paired = f"{bar.ratio.median:.3f} ({bar.ratio.low:.3f}–{bar.ratio.high:.3f})"
        table.add_row(
            what,
            f"{bar.length:,}",
            "" if bar.value is None else f"{bar.value:.3f}",
            paired,
            f"≤ {bar.limit:g}",
            _verdict(bar),
        )
    return table


def _verdict(bar: Threshold) -> Text:
    if not bar.holds:
        return Text("FAIL", style="bold red")
    return Text(
        "ok, aim" if bar.aim is not None and bar.value is not None and bar.value <= bar.aim else "ok", style="green"
    )


def _names(lines: Sequence[SpeedResult] | Sequence[MemoryResult]) -> list[str]:
    """Contestants in their own order, whoever took part or sat out."""
    met = {name for line in lines for name in (line.seconds if isinstance(line, SpeedResult) else line.bytes)}
    met |= {name for line in lines for name in line.skipped}
    return [contestant.name for contestant in attention_baselines.CONTESTANTS if contestant.name in met]
