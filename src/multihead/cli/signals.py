"""Ctrl-C and SIGTERM end a command at any moment with 130 and 143: never a traceback, never lost.

A handler can only raise an exception, and an exception can vanish: the import machinery prints and drops one that
is raised in its callbacks, as does Python in `__del__` and at exit, and libraries have bare `except:`. So there are
four safeguards: a signal during an import ends the process at once (imports leave nothing to clean up); an exception
that Python would drop ends it too; so does a second signal, or a cleanup that takes too long (a blocked reader).

Not covered: Python's own start-up and the first 2 ms of the console script, before `catch_signals`. SIGTERM ends the
process there too (by its default action), Ctrl-C may show Python's traceback.
"""

from __future__ import annotations

import os
import signal
import sys

from multihead import TYPE_CHECKING

if TYPE_CHECKING:  # Ctrl-C is not handled before this file is imported: it imports as little as possible
    from sys import UnraisableHookArgs
    from types import FrameType
    from typing import NoReturn

GRACE = 5.0  # seconds for cleaning up after a signal
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(SystemExit):
    """A signal ends the command. (Not KeyboardInterrupt: what that becomes differs between versions of typer.)"""


stopped_by = 0  # the number of the first signal, or 0


def catch_signals() -> None:
    """Raise `Stopped` in the main thread, once, on SIGINT or SIGTERM from now on."""
    for number in SIGNALS:
        signal.signal(number, _stop)
    sys.unraisablehook = _end_instead_of_dropping


def release_signals() -> None:
    """Restore the default actions after all work: a signal then ends the process, whatever Python is tearing down."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def end_stopped() -> NoReturn:
    """Exit after cleanup, without Python's own teardown, which takes half a second after `import torch`."""
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib is another millisecond in which Ctrl-C would not be ours
            stream.flush()  # may wait for a reader: the timer of `_stop` bounds it
        except Exception:
            pass
    os._exit(128 + stopped_by)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    global stopped_by
    if stopped_by or _is_importing(frame):
        os._exit(128 + (stopped_by or number))
    stopped_by = number
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + number))
        signal.setitimer(signal.ITIMER_REAL, GRACE)
    raise Stopped(128 + number)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _end_instead_of_dropping(dropped: UnraisableHookArgs) -> None:
    if isinstance(dropped.exc_value, Stopped):
        os._exit(128 + stopped_by)
    sys.__unraisablehook__(dropped)
