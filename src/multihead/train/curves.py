"""Curves for TensorBoard, if it is installed (the extra `tensorboard`): loss, rate, norm, speed and scores."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from multihead.train.loop import Step


def points(step: Step) -> dict[str, float]:
    pace = step.tokens / max(step.seconds, 1e-9)
    return {"loss": step.loss, "lr": step.lr, "norm": step.norm, "tokens per second": pace}


class Curves:
    """Points by name and step."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.writer: Any = None

    def begin(self, start: int) -> None:
        """Open a file; what a run that was stopped has drawn behind step `start` no longer counts."""
        if find_spec("tensorboard") is None:
            return
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.writer = EventFileWriter(str(self.directory))
        self.writer.add_event(Event(step=start + 1, session_log=SessionLog(status=SessionLog.START)))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        if self.writer is None:
            return
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        points = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self.writer.add_event(Event(step=step, summary=Summary(value=points)))

    def flush(self) -> None:
        """Before a checkpoint: what lies before it is not drawn again."""
        if self.writer is not None:
            self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None
