"""multihead.json: what a model is for, and the sha256 of every file beside it.

No other reader sees a flipped bit: a safetensors file with one opens as if nothing had happened.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from multihead.data.disk import read_json, sha256, write_json

MANIFEST = "multihead.json"


def begin(directory: Path) -> None:
    """Until `finish`, the directory says that it is not whole: files of two models are never taken for one."""
    write_json(directory / MANIFEST, {"unfinished": True})


def finish(
    directory: Path,
    task: str | None,
    options: dict[str, Any],
    files: list[Path],
    pruned: dict[str, Any] | None = None,
    tasks: dict[str, Any] | None = None,
    name: str = "",
) -> None:
    """tasks: of a trunk with several readouts, what each of them is for; name: of the only task, where it has one."""
    sums = {path.relative_to(directory).as_posix(): sha256(path) for path in sorted(files)}
    cut = {"pruned": pruned} if pruned else {}
    several = {"tasks": tasks} if tasks else {}
    named = {"name": name} if name else {}
    write_json(directory / MANIFEST, {"task": task, **named, "options": options, **several, **cut, "sha256": sums})


def check(directory: Path) -> dict[str, Any]:
    """The manifest, after every file that it lists was found as it was written; {} if there is none."""
    file = directory / MANIFEST
    if not file.exists():
        return {}
    manifest = read_json(file)
    if manifest.get("unfinished"):
        raise ValueError(f"{file}: saving this model was interrupted; save it again, or take an older one")
    sums = manifest.get("sha256", {})
    if not isinstance(sums, dict):
        raise ValueError(f"{file}: sha256 is no table of files; fetch it again")
    for name, want in sums.items():
        path, inside = directory / name, PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:  # links may lead elsewhere: the hub's cache is made of them
            raise ValueError(f"{file}: names {name[:80]!r}, which leads out of the directory")
        if not path.is_file():
            raise ValueError(f"{path}: missing, though {MANIFEST} lists it; fetch it again")
        if sha256(path) != want:
            raise ValueError(f"{path}: not what was saved (its sha256 is not {MANIFEST}'s); fetch it again")
    return manifest
