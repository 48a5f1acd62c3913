"""What waits for a model: the rows of a request, their windows, and functions that need the model alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from multihead.inference.engine import RejectedInput
from multihead.server.limits import RequestError
from multihead.server.style import Style
from multihead.tasks import Prediction, Task, Values, Window


class Observer(Protocol):
    """Who counts what a model does."""

    def saw_batch(self, rows: int, tokens: int, padding: int, seconds: float) -> None: ...


@dataclass(eq=False)
class Job:
    """The rows of one request. Either each of them has its prediction at the end, or all have one error."""

    task: Task
    rows: Sequence[Values]
    deadline: float
    interactive: bool
    style: Style | None = None  # how a text is written, where the request says it
    future: Future[list[Prediction]] = field(default_factory=Future)
    encodings: list[list[Window] | RejectedInput] = field(default_factory=list)
    outputs: dict[tuple[int, int], Any] = field(default_factory=dict)  # by row and window
    missing: int = 0  # windows that were not read yet

    @property
    def tokens(self) -> int:
        """Tokens of all windows."""
        return sum(
            len(window["tokens"]) for windows in self.encodings if isinstance(windows, list) for window in windows
        )

    def fail(self, error: BaseException) -> None:
        """Tell whoever waits; nobody may, if the client left."""
        with suppress(Exception):  # concurrent.futures.InvalidStateError: it is settled
            self.future.set_exception(error)


@dataclass(eq=False)
class Part:
    """One window that waits to be read."""

    job: Job
    place: tuple[int, int]
    window: Window

    @property
    def length(self) -> int:
        return len(self.window["tokens"])


@dataclass(eq=False)
class Alone:
    """A function that needs the model for itself."""

    function: Callable[[], Any]
    deadline: float
    future: Future[Any] = field(default_factory=Future)


def cancel_text(text: Future[Any], job: Future[Any]) -> None:
    """Stop writing a text whose job is settled: the client left, or another text of it failed."""
    text.cancel()


def run_alone(work: Alone) -> None:
    if not work.future.set_running_or_notify_cancel():
        return
    try:
        work.future.set_result(work.function())
    except BaseException as error:
        work.future.set_exception(error)


def future_of(work: Part | Alone) -> Future[Any]:
    return work.job.future if isinstance(work, Part) else work.future


def deadline_of(work: Part | Alone) -> float:
    return work.job.deadline if isinstance(work, Part) else work.deadline


def fail_work(work: Part | Alone, error: RequestError) -> None:
    if isinstance(work, Part):
        work.job.fail(error)
    elif work.future.set_running_or_notify_cancel():
        work.future.set_exception(error)
