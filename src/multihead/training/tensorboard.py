"""Curves for TensorBoard, if installed (the extra `tensorboard`): loss, learning rate, norm, throughput and scores."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from multihead.io.files import make_directory, name_file_in_errors
from multihead.training.loop import StepRecord


def step_scalars(step: StepRecord) -> dict[str, float]:
    pace = step.tokens / max(step.seconds, 1e-9)
    return {"loss": step.loss, "lr": step.lr, "norm": step.norm, "tokens per second": pace}


class TensorBoardWriter:
    """Writer of scalars by name and step."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory
        self.writer: Any = None

    def begin(self, start: int) -> None:
        """Open an event file; points of an interrupted run after step `start` are discarded.

        TensorBoard's own writer opens any file at a predictable name, links too, and writes in a thread, where a full
        disk is a traceback. Its record format is all that is needed.
        """
        if find_spec("tensorboard") is None:
            return
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        make_directory(self.directory)
        # TensorBoard reads files in name order.
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self.path = self.directory / name
        with name_file_in_errors(self.path):
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            self.writer = RecordWriter(os.fdopen(handle, "wb"))
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=start + 1, session_log=SessionLog(status=SessionLog.START)))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        if self.writer is None:
            return
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        points = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(Event(step=step, summary=Summary(value=points)))

    def _write(self, event: Any) -> None:
        """Write at once, so that a kill loses no point before a checkpoint: such points are not written again."""
        event.wall_time = time.time()
        record = event.SerializeToString()
        with name_file_in_errors(self.path, len(record)):
            self.writer.write(record)
            self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            writer, self.writer = self.writer, None
            with name_file_in_errors(self.path):
                writer.close()
