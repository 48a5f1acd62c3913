"""Who may use a model: many readers together, or one who records or switches off heads alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ModelLock:
    """A lock with two sides. Recordings and ablations change state that all of a model's readers share (the taps of
    its attentions), so they wait until nobody reads, and readers wait for them. Those who wait to be alone go first:
    they are what a person in front of a page waits for."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._waiting = 0  # for being alone
        self._alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._condition:
            self._condition.wait_for(lambda: not self._alone and not self._waiting)
            self._readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._readers -= 1
                self._condition.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._condition:
            self._waiting += 1
            try:
                self._condition.wait_for(lambda: not self._alone and not self._readers)
            finally:
                self._waiting -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._condition:
                self._alone = False
                self._condition.notify_all()
