"""The log of a run, log.jsonl: a line for every step and every evaluation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from multihead.data.disk import add_path, name_file_in_errors, open_own, write_bytes
from multihead.scores import plain


class Log:
    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, record: dict[str, Any]) -> None:
        line = (json.dumps(plain(record), allow_nan=False) + "\n").encode()
        handle = open_own(self.path, os.O_WRONLY | os.O_APPEND, len(line))
        try:
            with name_file_in_errors(self.path, len(line)), os.fdopen(handle, "wb", closefd=False) as file:
                file.write(line)
        finally:
            os.close(handle)

    def cut(self, step: int) -> str:
        """Leave out the lines behind the checkpoint, which the steps that are taken again write again, and lines that
        are damaged; return what is to be said of these, if there are any."""
        if not self.path.exists():
            return ""
        with add_path(self.path):
            lines = self.path.read_bytes().split(b"\n")
        steps = [_step_of(line) if line else -1 for line in lines]
        keep = [line for line, number in zip(lines, steps, strict=True) if number is not None and 0 <= number <= step]
        write_bytes(self.path, b"".join(line + b"\n" for line in keep))
        damaged = [number for number, found in enumerate(steps, 1) if found is None]
        if not damaged:
            return ""
        more = f", and {len(damaged) - 1:,} more" if len(damaged) > 1 else ""
        return f"{self.path}:{damaged[0]}: a damaged line{more}; left out, the run does not need it"


def _step_of(line: bytes) -> int | None:
    """The step of a line of the log; -1 for one that the end of the run writes anew; None for a damaged one."""
    try:
        record = json.loads(line)
        step = record["step"]
        if "mean_of" in record:
            return -1
        numbers = [step, *(record["valid"].values() if "valid" in record else (record["loss"], record["lr"]))]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    sound = type(step) is int and step >= 0 and all(isinstance(number, int | float | None) for number in numbers)
    return step if sound else None
