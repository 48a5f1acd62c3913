"""The training log, log.jsonl: one line for every step and every evaluation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from multihead.io.files import add_path, name_file_in_errors, open_own, write_bytes
from multihead.metrics import to_json


class JsonlLog:
    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, record: dict[str, Any]) -> None:
        line = (json.dumps(to_json(record), allow_nan=False) + "\n").encode()
        handle = open_own(self.path, os.O_WRONLY | os.O_APPEND, len(line))
        try:
            with name_file_in_errors(self.path, len(line)), os.fdopen(handle, "wb", closefd=False) as file:
                file.write(line)
        finally:
            os.close(handle)

    def truncate(self, step: int) -> str:
        """Drop lines after the checkpoint, which repeated steps write again, and damaged lines; return a note about the
        damaged ones, or ""."""
        if not self.path.exists():
            return ""
        with add_path(self.path):
            lines = self.path.read_bytes().split(b"\n")
        verdicts = [_stays(line, step) for line in lines]
        keep = [line for line, stays in zip(lines, verdicts, strict=True) if stays]
        write_bytes(self.path, b"".join(line + b"\n" for line in keep))
        damaged = [number for number, stays in enumerate(verdicts, 1) if stays is None]
        if not damaged:
            return ""
        more = f", and {len(damaged) - 1:,} more" if len(damaged) > 1 else ""
        return f"{self.path}:{damaged[0]}: damaged line{more}; dropped, the run does not need it"


def read_record(line: bytes) -> dict[str, Any] | None:
    """Parse a line of the log; None if it is damaged or lacks required numbers."""
    try:
        record = json.loads(line)
        step, optional, needed = record["step"], [], []
        if "valid" in record:
            optional = list(record["valid"].values())
        elif "mean_of" not in record:
            optional, needed = [record["loss"]], [record["lr"]]  # a loss that is not finite is null
        if "padded" in record:
            needed += [record["padded"], record["tokens"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    numbers = [*needed, *(value for value in optional if value is not None)]
    sound = type(step) is int and step >= 0 and all(isinstance(number, int | float) for number in numbers)
    return record if sound else None


def _stays(line: bytes, step: int) -> bool | None:
    """Whether a line precedes the checkpoint; None if it is damaged. The end of the run writes the line of the mean
    again."""
    if not line:
        return False
    record = read_record(line)
    return None if record is None else record["step"] <= step and "mean_of" not in record
