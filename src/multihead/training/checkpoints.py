"""Checkpoints: weights, optimizer state and everything else that a run needs to resume, written atomically.

A checkpoint is written to a temporary directory, synced, given a manifest of SHA-256 sums (with a checksum of itself),
and renamed; only then is an older one removed. Opening verifies all sums and falls back to the previous checkpoint with
a warning.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multihead.io.files import make_directory, name_file_in_errors, read_own_json, remove_tree, sha256, sync, write_json
from multihead.io.seal import check_digests, seal, unseal
from multihead.io.weights import read_safetensors, write_tensors

MANIFEST, STATE = "manifest.json", "state.json"
FILES = (STATE, "model.safetensors")  # required in every checkpoint


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint."""

    step: int
    tensors: dict[str, dict[str, Tensor]]  # file -> its tensors
    state: dict[str, Any]


def save(
    directory: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    keep: int = 2,
    every: int = 1,
) -> Path:
    """Write directory/step-N; retain the newest `keep - 1` older ones, and as many on a multiple of `every`."""
    make_directory(directory)
    aside, final = directory / f".step-{step}.partial", directory / f"step-{step}"
    remove_tree(aside)
    make_directory(aside)
    for name, group in tensors.items():
        write_tensors(aside / f"{name}.safetensors", group)
    write_json(aside / STATE, dict(state))
    with name_file_in_errors(aside):
        sums = {path.name: sha256(path) for path in sorted(aside.iterdir())}
    write_json(aside / MANIFEST, seal({"step": step, "sha256": sums}))
    with name_file_in_errors(final):
        sync(aside)
        if os.path.lexists(final):  # a damaged checkpoint of the same step
            remove(final)
        os.rename(aside, final)
        sync(directory)
    older = [old for old in list_steps(directory) if old < step]
    due = [old for old in older if old % every == 0]
    stay = {old for group in (older, due) for old in group[len(group) - min(keep - 1, len(group)) :]}
    for old in older:
        if old not in stay:
            remove(directory / f"step-{old}")
    return final


def list_steps(directory: Path) -> list[int]:
    """Return the steps that have a complete checkpoint, oldest first."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name[5:]) for path in directory.glob("step-*") if path.name[5:].isdigit())


def remove(path: Path) -> None:
    """Remove a checkpoint; rename first, so that a partly removed one does not look complete."""
    doomed = path.with_name(f".{path.name}.removed.partial")
    remove_tree(doomed)
    with name_file_in_errors(path):
        os.rename(path, doomed)
    remove_tree(doomed)


def latest_checkpoint(directory: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest intact checkpoint, and the faults of newer ones."""
    wrong: list[str] = []
    for step in reversed(list_steps(directory)):
        try:
            return open_checkpoint(directory / f"step-{step}"), wrong
        except (ValueError, OSError) as error:
            wrong.append(str(error))
    return None, wrong


def read_states(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON state of checkpoints, newest first, without damaged ones, which `latest_checkpoint` reports."""
    for step in reversed(list_steps(directory)):
        path = directory / f"step-{step}"
        with suppress(ValueError, OSError):
            check_file(path / STATE, read_manifest(path)[STATE])
            yield read_own_json(path / STATE)


def read_manifest(path: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a checkpoint, from an intact manifest of this step."""
    file = path / MANIFEST
    if not file.is_file():
        raise ValueError(f"{path}: {MANIFEST} is missing")
    manifest = unseal(read_own_json(file), str(file), ("step", "sha256"))
    # Older manifests have no checksum of themselves; compare the step with the directory's name instead.
    if type(manifest["step"]) is not int or f"step-{manifest['step']}" != path.name:
        raise ValueError(f"{file}: names step {str(manifest['step'])[:20]}, but the directory is {path.name}")
    sums = check_digests(manifest["sha256"], str(file), FILES)
    if odd := next((name for name in sums if Path(name).name != name), None):
        raise ValueError(f"{file}: names {odd[:80]!r}, which is not a checkpoint file")
    return sums


def check_file(path: Path, digest: str) -> None:
    """Raise ValueError if a file is missing or does not match its checksum."""
    if not path.is_file():
        raise ValueError(f"{path}: missing")
    if sha256(path) != digest:
        raise ValueError(f"{path}: checksum mismatch: the file has changed since it was saved")


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a checkpoint after verifying its files."""
    sums = read_manifest(path)
    for name, digest in sums.items():
        check_file(path / name, digest)
    tensors = {name[:-12]: read_safetensors(path / name) for name in sums if name.endswith(".safetensors")}
    return Checkpoint(int(path.name[5:]), tensors, read_own_json(path / STATE))


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the state of a model; a tensor with two names (tied) is stored once."""
    tensors: dict[str, Tensor] = {}
    ids: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in ids:
            ids.add(id(tensor))
            tensors[name] = tensor.detach()
    return tensors


def restore_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load checkpoint weights into a model of the same shape."""
    current = model_tensors(model)
    if current.keys() != tensors.keys():
        raise ValueError(
            f"the checkpoint is of another model: {sorted(current.keys() ^ tensors.keys())[0]} is missing on one side"
        )
    with torch.no_grad():
        for name, tensor in current.items():
            if tensor.shape != tensors[name].shape:
                here, there = list(tensor.shape), list(tensors[name].shape)
                raise ValueError(f"the checkpoint is of another model: {name} is {there} there, {here} here")
            tensor.copy_(tensors[name])


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer state by flat names: parameter index and entry name."""
    state = optimizer.state_dict()["state"]
    return {f"{number}.{name}": value for number, entries in state.items() for name, value in entries.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, entry = name.partition(".")
        state.setdefault(int(number), {})[entry] = tensor.clone()
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
