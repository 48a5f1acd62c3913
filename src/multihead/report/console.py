"""The report's tables in the terminal, and the same numbers as plain values for `--json`."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from multihead.metrics import ConfidenceInterval, MetricRow, MetricTable, Score, to_json
from multihead.report.data import ReportData, display_name

HEADINGS = {"tags": "By tag", "entities": "By entity", "classes": "By class", "labels": "By label"}
ROOMY, TIGHT = 72, 46  # columns: below the first no intervals, below the second short headings
SPREAD = 67  # columns of all but the names, with intervals
HEADLINES = 6  # scores printed; `summary` has all
PAGE_ONLY = ("curves", "best_step", "mistakes", "samples", "heads", "run_file")


def summary(facts: ReportData) -> dict[str, Any]:
    """Return all numbers as JSON values, without parts that only a page can show (curves, texts, heads)."""
    names = [name for name in ReportData.__dataclass_fields__ if name not in PAGE_ONLY]
    return {name: to_json(getattr(facts, name)) for name in names}


def show(facts: ReportData, console: Console) -> None:
    """Print the main scores, then every table, as wide as the terminal allows."""
    console.print(Text(facts.title, style="bold"))
    if facts.scored_on:
        console.print(Text(f"scored on {facts.scored_on}", style="dim"))
    for warning in facts.warnings:
        console.print(Text.assemble(("warning: ", "yellow"), warning))
    if facts.scores:
        first = dict(list(facts.scores.items())[:HEADLINES])
        console.print(scores_grid(first, console.width))
        if more := len(facts.scores) - len(first):
            console.print(Text(f"and {more} more in report.html", style="dim"))
    for view in table_views(facts.tables, console.width):
        console.print(view)


def scores_grid(scores: Mapping[str, Score], width: int = 80) -> RenderableType:
    """Return one line per score with its confidence interval; below, the variants of scores that have several."""
    grid = Grid(box=None, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column(overflow="fold", max_width=max(width - 34, 8))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True, style="dim")
    for place, (name, score) in enumerate(scores.items()):
        style = "bold" if place == 0 else ""
        digits = 2 if score.unit == "percent" else 3
        grid.add_row(
            Text(display_name(name), style),
            Text(f"{score.value:.{digits}f}", style),
            _interval(score.interval, digits, level=True),
        )
    signed: dict[str, list[str]] = {}
    for name, score in scores.items():
        if score.signature:
            signed.setdefault(score.signature, []).append(display_name(name))
    return Group(grid, *(Text(f"{', '.join(names)}: {how}", "dim", overflow="fold") for how, names in signed.items()))


def table_views(tables: Iterable[MetricTable], width: int = 80) -> list[RenderableType]:
    """Return the tables in order. A second convention with the same numbers is a line, not a table."""
    views: list[RenderableType] = []
    before: dict[str, MetricTable] = {}
    for table in tables:
        first = before.setdefault(table.title, table)
        if first is not table and (first.rows, first.averages) == (table.rows, table.averages):
            views.append(Text(f"the same numbers {_rule(table)}", style="dim"))
        else:
            views.append(table_view(table, width))
    return views


def table_view(table: MetricTable, width: int = 80) -> RenderableType:
    """Return precision, recall, F1 and support by class, then micro, macro and weighted."""
    tight, roomy = width < TIGHT, width >= ROOMY
    levels = [row.interval.level for row in (*table.rows, *table.averages) if row.interval and _is_known(row.interval)]
    apart = len({row.name[: max(width - SPREAD, 6) - 1] for row in table.rows}) == len(table.rows)
    spread = roomy and bool(levels) and apart  # truncated names that collide take the space of the intervals
    grid = Grid(
        box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0 if tight else 1), pad_edge=False, header_style="dim"
    )
    names = max(width - (23 if tight else 46 if not spread else SPREAD), 6)
    grid.add_column("", overflow="ellipsis", no_wrap=True, max_width=names)
    numbers = ("P", "R", "F1") if tight else ("precision", "recall", "F1")
    for heading in numbers:
        grid.add_column(heading, justify="right", no_wrap=True)
    if spread:
        grid.add_column(f"F1, {100 * levels[0]:.0f} % interval", no_wrap=True, style="dim")
    grid.add_column("n" if tight else "support", justify="right", no_wrap=True)
    for place, row in enumerate((*table.rows, *table.averages)):
        average = place >= len(table.rows)
        last = place == len(table.rows) - 1 and bool(table.averages)
        grid.add_row(*_cells(row, spread), style="bold" if average else "", end_section=last)
    title = Text(HEADINGS.get(table.title, table.title), style="bold")
    if table.note:
        title.append(f"  {_rule(table)}", style="not bold dim")
    return Group("", title, grid)


def _cells(row: MetricRow, spread: bool) -> list[RenderableType]:
    values: list[RenderableType] = [f"{value:.3f}" for value in (row.precision, row.recall, row.f1)]
    interval = [_interval(row.interval, 3)] if spread else []
    return [Text(row.name), *values, *interval, f"{row.support:,}"]


def _rule(table: MetricTable) -> str:
    return f"counted {table.note}"


def _is_known(interval: ConfidenceInterval | None) -> bool:
    return interval is not None and interval.low == interval.low  # nan != nan


def _interval(interval: ConfidenceInterval | None, digits: int, level: bool = False) -> Text:
    if interval is None or not _is_known(interval):
        return Text("")
    ends = f"{interval.low:.{digits}f} – {interval.high:.{digits}f}"
    return Text(f"{ends} ({100 * interval.level:.0f} %)" if level else ends)
