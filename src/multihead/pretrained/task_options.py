"""The options of a task in multihead.json, checked when a model is opened: tasks trust their types."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from multihead.generation.config import check_settings
from multihead.io.type_checks import Range, check_value

Json = dict[str, Any]
COUNT: Range = (0, 10_000_000)  # of tokens or words, as the run file allows
# What the run file's sections of the tasks hold, and what is added to them while training. Null is as if it were not
# there; names that are not here are left alone: a later version may have written them.
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
    """Check the options of the task, or of each of several, that a manifest at `file` names."""
    tasks = manifest.get("tasks") or {}
    for place, entry in (("options", manifest), *((f"tasks.{name}.options", entry) for name, entry in tasks.items())):
        options = entry.get("options") if isinstance(entry, dict) else None
        if not isinstance(options, dict):
            continue  # of several tasks, one is looked at when it is asked for
        for name, (kind, limits) in TYPES.items():
            check_value(f"{file}: {place}.{name}", options.get(name), kind | None, limits)
        if "decode" in options:
            check_settings(options["decode"], f"{file}: ")
