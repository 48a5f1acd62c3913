"""The log of a run, log.jsonl: a line for every step and every evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from multihead.data.disk import write_bytes
from multihead.scores import plain


class Log:
    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, record: dict[str, Any]) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(plain(record), allow_nan=False) + "\n")

    def cut(self, step: int) -> None:
        """Lines behind the checkpoint are written again by the steps that are taken again."""
        if self.path.exists():
            lines = self.path.read_text(encoding="utf-8").split("\n")
            keep = [line for line in lines if 0 <= _step_of(line) <= step]
            write_bytes(self.path, "".join(line + "\n" for line in keep).encode())


def _step_of(line: str) -> int:
    """The step of a line of the log; -1 for one that was cut off, or that the end of the run writes anew."""
    try:
        record = json.loads(line)
        return -1 if "mean_of" in record else int(record["step"])
    except (ValueError, KeyError, TypeError):
        return -1
