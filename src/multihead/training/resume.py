"""State of earlier runs in a directory: whether it belongs to this run, whether it is intact, and stale files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multihead.config import RunConfig, difference, pin_paths, read, write
from multihead.data import token_cache
from multihead.io.files import remove_tree
from multihead.training.checkpoints import Checkpoint, list_steps, open_checkpoint

OWN = r"\.(run\.toml|log\.jsonl|metrics\.json|report[\w-]*\.html)\.\d+\.aside"
CHECKPOINT = r"\.step-\d+(\.removed)?\.partial"
TEMPORARY = r"\.tmp\w{6}"  # safetensors' temporary files
WRITTEN = re.compile(r"\..+\.(?P<process>\d+)\.aside")


class Origin:
    """Identity of a checkpoint's run: its settings, and the keys of its token caches."""

    def __init__(self, run: RunConfig, keys: list[str]) -> None:
        self.run, self.keys = run, keys

    @property
    def state(self) -> dict[str, Any]:
        """Return the identity as stored in checkpoints."""
        return {"run": write(pin_paths(self.run)), "data": self.keys}

    def check(self, checkpoint: Checkpoint, path: Path) -> None:
        """Raise ValueError if a checkpoint belongs to another run; older ones store no settings, or no keys."""
        end = "start over with --fresh, or choose another out"
        changed = difference(read(checkpoint.state["run"]), self.run) if "run" in checkpoint.state else []
        if changed:
            raise ValueError(f"{path}: belongs to another run ({'; '.join(changed)}); remove it, {end}")
        if checkpoint.state.get("data", self.keys) != self.keys:
            raise ValueError(f"{path}: the data, labels or tokenizer have changed since step {checkpoint.step}; {end}")


def open_best(
    directory: Path, best: Mapping[str, Any], origin: Origin
) -> tuple[dict[str, Any], Checkpoint | None, list[str]]:
    """Return the best evaluation whose weights are intact and of this run, these weights, and the faults of better
    ones.

    best: {step, score, loss, stale}, from the newest checkpoint, or {}. Earlier best models remain as long as a
    checkpoint refers to them, so there is usually one to fall back to.
    """
    faults: list[str] = []
    if "step" not in best:
        return dict(best), None, faults
    if not (newest := directory / f"step-{best['step']}").exists():
        faults.append(f"{newest}: the best model so far is missing")
    for step in reversed([step for step in list_steps(directory) if step <= best["step"]]):
        path = directory / f"step-{step}"
        try:
            checkpoint = open_checkpoint(path)
            origin.check(checkpoint, path)
        except (ValueError, OSError) as error:
            faults.append(str(error))
            continue
        if step == best["step"]:
            return dict(best), checkpoint, faults
        return {**checkpoint.state.get("best", checkpoint.state), "stale": best["stale"]}, checkpoint, faults
    return {}, None, faults


def sweep_litter(out: Path) -> None:
    """Remove incomplete files of killed runs. Requires the directory's lock."""
    _sweep(out, OWN)
    for name in ("checkpoints", "best"):
        _sweep(out / name, CHECKPOINT)
    # Saving a model or filling a cache does not need the lock.
    for folder in (out / "model", out / "model" / "target", out / "cache"):
        _sweep(folder, WRITTEN.pattern, living=True)
    _sweep(out / "model", TEMPORARY)
    if (out / "cache").is_dir() and not (out / "cache").is_symlink():
        token_cache.sweep(out / "cache")


def _sweep(folder: Path, pattern: str, living: bool = False) -> None:
    """Remove matching entries. living: skip files of a process that is still running."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        if (match := re.fullmatch(pattern, path.name)) and not (living and _runs(int(match["process"]))):
            remove_tree(path)


def _runs(process: int) -> bool:
    """Whether another process with this id is running."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return process != os.getpid()
