"""multihead.json: the task of a model, the SHA-256 of every file in its directory, and a checksum of itself.

No other reader detects a flipped bit: a safetensors file with one loads without an error. Files from before the
checksum load too, after a check of their keys and types against the schema; saving such a model writes the new format.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from multihead.io.files import read_json, sha256, write_json
from multihead.io.seal import check_digests, seal, unseal

MANIFEST = "multihead.json"
TYPES: dict[str, tuple[type, ...]] = {
    "task": (str, type(None)), "options": (dict,), "sha256": (dict,), "name": (str,), "tasks": (dict,),
    "pruned": (dict,),
}  # fmt: skip
REQUIRED = ("task", "options", "sha256")
FILES = ("config.json", "model.safetensors")  # present in every saved model
FIX = (
    'fetch or save the model again, or, if you edited it on purpose, delete its lines "format" and "seal": '
    "it then opens without a checksum, and saving it writes a new one"
)


def begin(directory: Path) -> None:
    """Mark a directory as incomplete until `finish`, so that files of two models are never mixed."""
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
    """Write the manifest.

    tasks: the tasks of a shared encoder with several readouts.
    name: the name of the only task, where it has one.
    """
    sums = {path.relative_to(directory).as_posix(): sha256(path) for path in sorted(files)}
    cut = {"pruned": pruned} if pruned else {}
    several = {"tasks": tasks} if tasks else {}
    named = {"name": name} if name else {}
    content = {"task": task, **named, "options": options, **several, **cut, "sha256": sums}
    write_json(directory / MANIFEST, seal(content))


def check(directory: Path) -> dict[str, Any]:
    """Return the manifest after checking every file that it lists; {} if there is none."""
    file = directory / MANIFEST
    if not file.exists():
        return {}
    manifest = read_json(file)
    if manifest == {"unfinished": True}:
        raise ValueError(f"{file}: saving this model was interrupted; save it again, or use an older one")
    manifest = unseal(manifest, str(file), REQUIRED, TYPES, FIX)
    for name, types in TYPES.items():
        if name in manifest and not isinstance(manifest[name], types):
            raise ValueError(f"{file}: {name} is a {type(manifest[name]).__name__}: damaged, or edited; {FIX}")
    sums = manifest["sha256"]
    for name in sums:
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:  # links may lead elsewhere: the hub's cache is made of them
            raise ValueError(f"{file}: names {name[:80]!r}, which leads out of the directory; {FIX}")
    check_digests(sums, str(file), FILES, FIX)
    for name, want in sums.items():
        path = directory / name
        if not path.is_file():
            raise ValueError(f"{path}: missing, though {MANIFEST} lists it; fetch it again")
        if sha256(path) != want:
            raise ValueError(f"{path}: not what was saved (its sha256 is not {MANIFEST}'s); fetch it again")
    return manifest
