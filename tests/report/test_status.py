"""The bar comes late, counts, and leaves the items alone."""

from __future__ import annotations

import io
from itertools import count

import pytest
from rich.console import Console

from multihead.report.status import PATIENCE, track


def shown(items: int, seconds: float, terminal: bool = True, share=None) -> str:
    """What a person saw of so many items that took so long each."""
    seen = io.StringIO()
    console = Console(file=seen, force_terminal=terminal, width=100, color_system=None)
    ticks = count()
    got = list(track(range(items), "reading", console, share, clock=lambda: next(ticks) * seconds))
    assert got == list(range(items))
    return seen.getvalue()


def test_nothing_for_short_work_or_where_nobody_watches() -> None:
    assert shown(10, PATIENCE / 20) == ""
    assert shown(100, PATIENCE, terminal=False) == ""


def test_long_work_is_counted() -> None:
    assert "reading" in shown(50, PATIENCE / 10)
    assert "50 rows" in shown(50, PATIENCE / 10)
    assert "25%" in shown(50, PATIENCE / 10, share=lambda: 0.25)


def test_what_is_printed_meanwhile_goes_where_it_should(capsys: pytest.CaptureFixture[str]) -> None:
    seen, ticks = io.StringIO(), count()
    console = Console(file=seen, force_terminal=True, width=100)
    for item in track(range(50), "reading", console, clock=lambda: next(ticks) * PATIENCE):
        print("line", item)
    assert capsys.readouterr().out == "".join(f"line {item}\n" for item in range(50))
    assert "line" not in seen.getvalue()
    assert "50 rows" in seen.getvalue()


def test_it_is_put_away_when_the_reader_leaves() -> None:
    seen = io.StringIO()
    ticks = count()
    console = Console(file=seen, force_terminal=True, width=100)
    items = track(range(100), "reading", console, clock=lambda: next(ticks) * PATIENCE)
    for item in items:
        if item == 5:
            break
    items.close()
    assert seen.getvalue().rstrip().endswith("\x1b[?25h") or "\x1b[2K" in seen.getvalue()  # the line is cleared
    console.print("after")
    assert "after" in seen.getvalue()
