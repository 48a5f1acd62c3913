"""Validation of task options in multihead.json when a model is loaded: tasks rely on their types."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from multihead.generation.config import check_settings
from multihead.io.type_checks import Range, check_value

Json = dict[str, Any]
COUNT: Range = (0, 10_000_000)  # of tokens or words, as the run file allows
# Options from the tasks' run file sections, plus those added while training. Null means unset; unknown names are
# ignored: a later version may have written them.
TYPES: dict[str, tuple[Any, Range | None]] = {
    "size": (int, COUNT),
    "overlap": (int, COUNT),
    "columns": (dict[str, Any], None),
    "crf": (bool, None),
    "context": (int, COUNT),
    "case": (bool, None),
    "multi_label": (bool, None),
    "class_weights": (dict[str, Any] | str, None),
    "pool": (str, None),
    "kind": (Literal["cross", "bi"], None),
    "score": (tuple[float, float], None),
    "positive": (str, None),
    "temperature": (float, (1e-4, 1.0)),
    "symmetric": (bool, None),
    "no_answer": (bool, None),
    "longest": (int, (1, 10_000_000)),
    "language": (str, None),
    "tokenize": (str, None),
    "by": (str, None),
    "stem": (bool, None),
    "system": (str, None),
    "turns": (Literal["assistant", "all"], None),
    "chat": (bool, None),
    "share": (float, (0.0, 1.0)),
    "span": (float, (1.0, 10_000.0)),
    "whole_words": (bool, None),
}


def check_options(manifest: Json, file: Path) -> None:
    """Check the options of the task, or of each task, in a manifest at `file`."""
    tasks = manifest.get("tasks") or {}
    for place, entry in (("options", manifest), *((f"tasks.{name}.options", entry) for name, entry in tasks.items())):
        options = entry.get("options") if isinstance(entry, dict) else None
        if not isinstance(options, dict):
            continue  # multi-task entries are checked when they are loaded
        for name, (kind, limits) in TYPES.items():
            check_value(f"{file}: {place}.{name}", options.get(name), kind | None, limits)
        if "decode" in options:
            check_settings(options["decode"], f"{file}: ")
