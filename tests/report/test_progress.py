import contextlib
import io
import logging

import pytest
from rich.console import Console

from multihead.report.progress import Progress, clock_time, show_reading_status


class FakeClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def steps(line: Progress, clock: FakeClock, first: int, last: int) -> None:
    for step in range(first, last + 1):
        clock.now += 0.5
        line.update(step, loss=2.0, tokens=970, places=1000, memory=3 * 2**29)


def test_plain_lines() -> None:
    out, clock = io.StringIO(), FakeClock()
    with Progress(100, console=Console(file=out, width=40), clock=clock) as line:
        steps(line, clock, 1, 59)
        line.say("saved step 59")
    lines = out.getvalue().splitlines()
    assert len(lines) == 4  # after 10 and 20 seconds, what was said, the end
    assert lines[0] == "step 20/100   20%  loss 2.0000  1,940 tok/s  pad 3.0%  0:40 left  1.5 GiB"
    assert lines[2] == "saved step 59"
    assert "\x1b" not in out.getvalue()


def test_resumed_run_is_not_too_hopeful() -> None:
    clock = FakeClock()
    line = Progress(1100, start=1000, console=Console(file=io.StringIO()), clock=clock)
    with line:
        steps(line, clock, 1001, 1021)
        assert "0:40 left" in str(line.fields())


def test_first_step_does_not_count() -> None:
    clock = FakeClock()
    with Progress(11, console=Console(file=io.StringIO()), clock=clock) as line:
        clock.now += 60  # compiling
        steps(line, clock, 1, 3)
        assert "0:04 left" in str(line.fields())


def test_end_says_how_long_it_took() -> None:
    out, clock = io.StringIO(), FakeClock()
    with Progress(10, console=Console(file=out), clock=clock) as line:
        steps(line, clock, 1, 10)
    assert "took 0:05" in out.getvalue()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_live_line_fits(width: int) -> None:
    clock = FakeClock()
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, _environ={})
    line = Progress(12345, console=console, clock=clock)
    steps(line, clock, 1, 30)
    text = line.line().plain
    assert len(text) < width
    assert "30/12,345" in text
    assert ("loss 2.0000" in text) == (width > 20)
    assert "─" in text or width == 40  # the bar goes before the time left
    assert ("1.5 GiB" in text) == (width >= 80)


def test_live_line_is_drawn_and_stays() -> None:
    out, clock = io.StringIO(), FakeClock()
    console = Console(file=out, width=100, force_terminal=True, color_system=None, _environ={"TERM": "xterm"})
    line = Progress(40, console=console, clock=clock)
    with contextlib.suppress(KeyboardInterrupt), line:
        steps(line, clock, 1, 20)
        line.update(20, note="evaluating")
        raise KeyboardInterrupt
    assert line.live is not None
    assert "20/40" in out.getvalue()
    assert "evaluating" in out.getvalue()
    assert out.getvalue().endswith("\x1b[?25h")  # the cursor is back


def test_dumb_terminal_gets_plain_lines() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    with Progress(10, console=console) as line:
        assert line.live is None


def test_nothing_done_yet() -> None:
    console = Console(file=io.StringIO(), width=80, _environ={})
    assert Progress(0, console=console).line().plain.endswith("0/0  took 0:00")


def test_clock_time() -> None:
    assert [clock_time(s) for s in (7, 750, 11100, -3)] == ["0:07", "12:30", "3:05:00", "0:00"]


def test_reading_tells_how_far_it_is() -> None:
    console = Console(file=(out := io.StringIO()), width=80, _environ={})
    log = logging.getLogger("multihead.data.token_cache")
    with show_reading_status(console, every=0.0):
        log.info("filling the token cache: %s rows", "1,234")
    log.info("not shown")
    assert out.getvalue().strip() == "filling the token cache: 1,234 rows"
    assert not logging.getLogger("multihead").handlers
