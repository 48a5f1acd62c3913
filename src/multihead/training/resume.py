"""What an earlier run has left in a directory: is it ours, is it whole, and what is only litter."""

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
TEMPORARY = r"\.tmp\w{6}"  # safetensors writes there before it renames
WRITTEN = re.compile(r"\..+\.(?P<process>\d+)\.aside")


class Origin:
    """Which run a checkpoint is of: its settings, and the keys of the token caches that it reads."""

    def __init__(self, run: RunConfig, keys: list[str]) -> None:
        self.run, self.keys = run, keys

    @property
    def state(self) -> dict[str, Any]:
        """What checkpoints hold of it."""
        return {"run": write(pin_paths(self.run)), "data": self.keys}

    def check(self, kept: Checkpoint, path: Path) -> None:
        """Raise ValueError if a checkpoint is of another run; those from before hold no settings, or no keys."""
        end = "start over with --fresh, or choose another out"
        changed = difference(read(kept.state["run"]), self.run) if "run" in kept.state else []
        if changed:
            raise ValueError(f"{path}: of another run ({'; '.join(changed)}); remove it, {end}")
        if kept.state.get("data", self.keys) != self.keys:
            raise ValueError(
                f"{path}: the training data, its labels or its tokenizer have changed since step {kept.step}; {end}"
            )


def open_best(
    directory: Path, best: Mapping[str, Any], origin: Origin
) -> tuple[dict[str, Any], Checkpoint | None, list[str]]:
    """Return the best evaluation whose weights are whole and of this run, these, and what is wrong with better ones.

    best: {step, score, loss, stale}, as the newest checkpoint has it, or {}. Earlier best models stay as long as a
    checkpoint speaks of them, so there is one to fall back to, most often.
    """
    faults: list[str] = []
    if "step" not in best:
        return dict(best), None, faults
    if not (newest := directory / f"step-{best['step']}").exists():
        faults.append(f"{newest}: the best model so far is gone")
    for step in reversed([step for step in list_steps(directory) if step <= best["step"]]):
        path = directory / f"step-{step}"
        try:
            kept = open_checkpoint(path)
            origin.check(kept, path)
        except (ValueError, OSError) as error:
            faults.append(str(error))
            continue
        if step == best["step"]:
            return dict(best), kept, faults
        return {**kept.state.get("best", kept.state), "stale": best["stale"]}, kept, faults
    return {}, None, faults


def sweep_litter(out: Path) -> None:
    """Remove what killed runs left half written. Only for who holds the directory's lock."""
    _sweep(out, OWN)
    for name in ("checkpoints", "best"):
        _sweep(out / name, CHECKPOINT)
    # A model may be saved, and a cache be filled, by who does not hold the lock.
    for folder in (out / "model", out / "model" / "target", out / "cache"):
        _sweep(folder, WRITTEN.pattern, living=True)
    _sweep(out / "model", TEMPORARY)
    if (out / "cache").is_dir() and not (out / "cache").is_symlink():
        token_cache.sweep(out / "cache")


def _sweep(folder: Path, pattern: str, living: bool = False) -> None:
    """living: leave what a process that still runs is writing."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        if (match := re.fullmatch(pattern, path.name)) and not (living and _runs(int(match["process"]))):
            remove_tree(path)


def _runs(process: int) -> bool:
    """Does another process of this number run?"""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return process != os.getpid()
