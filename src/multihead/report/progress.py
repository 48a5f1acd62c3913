"""Training progress as one live line: bar, step, loss, throughput, padding, time left, memory.

Without a terminal (a file, a pipe) it is a plain line every ten seconds.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

EVERY = 10.0  # seconds between plain lines
FRAME = 0.1  # seconds between drawings of the live line
RECENT = 20.0  # seconds that speed is measured over
BAR = 6  # columns of the shortest bar
SMOOTH = 0.95  # of the loss shown: about the last 20 steps


class Progress:
    """A progress line: `with Progress(total) as line: line.update(step, loss=…, tokens=…, places=…)`.

    After a resume, `start` is the step to count from, so that the time left is not underestimated.
    """

    def __init__(
        self,
        total: int,
        start: int = 0,
        console: Console | None = None,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.step, self.every, self.clock = total, start, every, clock
        self.console = console or Console()
        self.live: Live | None = None
        self.began = self.printed_at = self.drawn = clock()
        self.past: deque[tuple[float, int, int]] = deque([(self.began, start, 0)])  # time, step, tokens so far
        self.warm: tuple[float, int] | None = None  # time and number of the first step: slower than all others
        self.tokens = self.places = 0
        self.memory: int | None = None
        self.losses: dict[str, tuple[float, float]] = {}  # of each task, and its normalizer
        self.note = ""
        self.printed_step = -1  # the step of the last plain line

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self.live = Live(console=self.console, auto_refresh=False, transient=False)
            self.live.start()
        self.began = self.printed_at = self.drawn = self.clock()
        self.past = deque([(self.began, self.step, 0)])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state on the screen, also after Ctrl-C."""
        if self.live is not None:
            self.live.update(self.line(), refresh=True)
            self.live.stop()
        elif self.printed_step != self.step:
            self._say()

    def update(
        self,
        step: int,
        *,
        loss: float | None = None,
        of: str = "",
        tokens: int = 0,
        places: int = 0,
        memory: int | None = None,
        note: str = "",
    ) -> None:
        """Record a step.

        of: the task of this step, with several tasks.
        tokens: real tokens in its batches.
        places: including padding.
        memory: bytes in use.
        note: the current activity ("evaluating").
        """
        self.step, self.note = step, note
        self.tokens += tokens
        self.places += places
        self.memory = self.memory if memory is None else memory
        if loss is not None:
            past, weight = self.losses.get(of, (0.0, 0.0))
            self.losses[of] = SMOOTH * past + (1 - SMOOTH) * loss, SMOOTH * weight + (1 - SMOOTH)
        now = self.clock()
        self.warm = self.warm or (now, step)
        self.past.append((now, step, self.tokens))
        while len(self.past) > 2 and self.past[1][0] <= now - RECENT:
            self.past.popleft()
        self._draw(now)

    def say(self, message: str) -> None:
        """Print a message above the progress line."""
        self.console.print(Text(message))

    def _draw(self, now: float) -> None:
        if self.live is not None:
            if now - self.drawn >= FRAME or self.note:
                self.drawn = now
                self.live.update(self.line(), refresh=True)
        elif now - self.printed_at >= self.every:
            self._say()

    def _say(self) -> None:
        self.printed_at, self.printed_step = self.clock(), self.step
        share = f"{self.step / max(self.total, 1):4.0%}"
        fields = [f"step {self.step:,}/{self.total:,}", share, *(text for _, text in self.fields())]
        self.console.print(Text("  ".join(fields)), soft_wrap=True)

    def fields(self) -> list[tuple[int, str]]:
        """Return (rank, text) in display order; narrow terminals drop the highest ranks first."""
        (then, _, tokens), (now, last, sum_now) = self.past[0], self.past[-1]
        seconds = now - then
        fields = []
        if self.losses:
            shown = (f"{of} {loss / weight:.4f}".strip() for of, (loss, weight) in self.losses.items())
            fields.append((0, f"loss {', '.join(shown)}"))
        if seconds > 0 and sum_now > tokens:
            fields.append((2, f"{(sum_now - tokens) / seconds:,.0f} tok/s"))
        if self.places:
            fields.append((3, f"pad {1 - self.tokens / self.places:.1%}"))
        if self.step >= self.total:
            fields.append((1, f"took {clock_time(now - self.began)}"))
        elif self.warm is not None and last > self.warm[1]:  # over all steps: evaluating and saving count too
            each = (now - self.warm[0]) / (last - self.warm[1])
            fields.append((1, f"{clock_time((self.total - last) * each)} left"))
        if self.memory is not None:
            fields.append((4, f"{self.memory / 2**30:.1f} GiB"))
        if self.note:
            fields.append((0, self.note))
        return fields

    def line(self) -> Text:
        """Return what fits the terminal: less important fields are dropped first, then the bar, then the time left."""
        width = self.console.width
        place = f"{self.step:,}/{self.total:,}"
        fields = self.fields()
        while fields:
            words = "  ".join([place, *(text for _, text in fields)])
            rank = max(rank for rank, _ in fields)
            if len(words) + (BAR + 2 if rank > 1 else 0) < width:
                break
            fields.remove(max(fields, key=lambda field: field[0]))
        words = "  ".join([place, *(text for _, text in fields)])
        room = min(width - 1 - len(words) - 2, 28)
        return Text.assemble(*(self._bar(room) if room >= BAR else ()), words, no_wrap=True, overflow="ellipsis")

    def _bar(self, room: int) -> tuple[tuple[str, str], ...]:
        full = min(room, int(room * self.step / max(self.total, 1)))
        ascii_only = self.console.options.ascii_only
        filled, empty = ("#", "-") if ascii_only else ("━", "─")  # distinguishable without color
        return (filled * full, "cyan"), (empty * (room - full), "bright_black"), ("  ", "")


def clock_time(seconds: float) -> str:
    """Format seconds: 0:07, 12:30, 3:05:00."""
    total = max(0, round(seconds))
    hours, minutes = total // 3600, total // 60 % 60
    return f"{hours}:{minutes:02d}:{total % 60:02d}" if hours else f"{minutes}:{total % 60:02d}"


@contextmanager
def show_reading_status(console: Console, what: str = "reading the data", every: float = EVERY) -> Iterator[None]:
    """Show the progress of reading, tokenizer training and the token cache; without a terminal, a plain line every ten
    seconds.
    """
    printed = time.monotonic()
    with console.status(what) as status:

        class StatusHandler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                nonlocal printed
                text = Text(record.getMessage())
                if record.levelno >= logging.WARNING:  # warnings stay on the screen
                    console.print(text, soft_wrap=True)
                elif console.is_terminal:
                    status.update(text)
                elif time.monotonic() - printed >= every:
                    printed = time.monotonic()
                    console.print(text)

        log, handler = logging.getLogger("multihead"), StatusHandler(logging.INFO)
        before = log.level
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        try:
            yield
        finally:
            log.removeHandler(handler)
            log.setLevel(before)
