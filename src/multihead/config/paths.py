"""Paths in run files: what they are relative to, and their absolute form."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

from multihead.config.run_config import RunConfig
from multihead.config.sections import HOME, DataSection

FILES = ("train", "valid", "test", "unlabelled")
HUB = "hub:"  # same as in io/hub.py, which this package cannot import
PATH = re.compile(rf"from|(.+\.)?data\.({'|'.join(FILES)}|teacher)")


def names_path(key: str) -> bool:
    """Whether a dotted key names files or models: data.train, tasks.mood.data.teacher."""
    return PATH.fullmatch(key) is not None


def resolve_paths(folder: str, files: Any) -> Any:
    if isinstance(files, str) and files:
        return files if files.startswith(HOME) else os.path.join(folder, files)
    return [resolve_paths(folder, file) for file in files] if isinstance(files, list) else files


def resolve_model(folder: str, model: Any) -> Any:
    """Resolve a model's path relative to the current directory, like `out`; if missing there, to the run file's
    directory."""
    if isinstance(model, dict):
        return {side: resolve_model(folder, part) for side, part in model.items()}
    if isinstance(model, list):
        return [resolve_model(folder, part) for part in model]
    if not folder or not isinstance(model, str) or not model or os.path.exists(model):
        return model
    near = os.path.join(folder, model)
    return near if os.path.exists(near) else model


def pin_paths(run: RunConfig) -> RunConfig:
    """Return the run with absolute paths for `out` and its models, like those of its data, valid in any directory."""
    tasks = tuple(block.model_copy(update={"data": _pin_teacher(block.data)}) for block in run.tasks)
    out, start = os.path.abspath(run.out), _pin_model(run.from_)
    return run.model_copy(update={"out": out, "from_": start, "data": _pin_teacher(run.data), "tasks": tasks})


def check_place(path: Path, run: RunConfig) -> None:
    """Raise if the copy in a run's directory names another `out`: the run was moved or copied, or an older version
    wrote a relative path. Which directory is meant is ambiguous, and a wrong guess would silently start over."""
    folder = Path(os.path.abspath(path)).parent
    checkpoints = path.name == "run.toml" and any(folder.glob("checkpoints/step-*/manifest.json"))
    if checkpoints and os.path.realpath(run.out) != os.path.realpath(folder):
        here, there = (shlex.quote(f"out={out}") for out in (folder, run.out))
        raise ValueError(
            f"{path}: out is {run.out}, but the checkpoints are next to this file (was the run moved?); "
            f"to resume here, add {here}; to train there, add {there}"
        )


def follow_links(value: Any) -> Any:
    """Resolve symbolic links in a path, or in a tuple or table of them."""
    if isinstance(value, dict):
        return {side: follow_links(path) for side, path in value.items()}
    if isinstance(value, tuple):
        return tuple(map(follow_links, value))
    return os.path.realpath(os.path.expanduser(value)) if value and isinstance(value, str) else value


def _pin_model(model: Any) -> Any:
    """Return a model's absolute path, or a tuple or table of them; hub names are unchanged."""
    if isinstance(model, dict):
        return {side: _pin_model(place) for side, place in model.items()}
    if isinstance(model, tuple):
        return tuple(map(_pin_model, model))
    return os.path.abspath(os.path.expanduser(model)) if model and not model.startswith(HUB) else model


def _pin_teacher(data: DataSection) -> DataSection:
    return data.model_copy(update={"teacher": _pin_model(data.teacher)})
