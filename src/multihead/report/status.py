"""A progress bar for work of more than two seconds, in a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

PATIENCE = 2.0  # seconds
FRAME = 0.1  # seconds between drawings

T = TypeVar("T")


def track(
    items: Iterable[T],
    what: str,
    console: Console,
    share: Callable[[], float] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """Yield the items unchanged; after two seconds, show a bar that counts them.

    share: the finished share, 0 to 1; without it the bar only moves. Nothing is shown without a terminal.
    """
    if not console.is_terminal:
        yield from items
        return
    began = drawn = clock()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=False),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,  # else printed lines would go to the console instead of the user's file
        redirect_stderr=False,
    )
    number = bar.add_task(what, total=1.0 if share is not None else None, rows=0)
    started = False
    try:
        for count, item in enumerate(items, 1):
            yield item
            now = clock()
            if now - began < PATIENCE or now - drawn < FRAME:
                continue
            if not started:
                bar.start()
                started = True
            drawn = now
            bar.update(number, completed=share() if share is not None else None, rows=count, refresh=True)
    finally:
        if started:
            bar.stop()
