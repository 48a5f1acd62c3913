"""Checkpoints: weights, optimiser state and what else a run needs to go on, whole or not at all.

A checkpoint is written aside, synced, given a manifest of SHA-256 sums, which holds a checksum of itself, and renamed;
only then is an older one removed. Opening verifies all sums and falls back to the one before, and says so.
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
FILES = (STATE, "model.safetensors")  # that every checkpoint has


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
    """Write directory/step-N; of the older ones, the newest `keep - 1` stay, and as many on a multiple of `every`."""
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
        if os.path.lexists(final):  # a damaged one of the same step
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
    """The steps that have a checkpoint, oldest first; partial ones do not count."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name[5:]) for path in directory.glob("step-*") if path.name[5:].isdigit())


def remove(path: Path) -> None:
    """Rename first: a checkpoint half removed must not look whole."""
    doomed = path.with_name(f".{path.name}.removed.partial")
    remove_tree(doomed)
    with name_file_in_errors(path):
        os.rename(path, doomed)
    remove_tree(doomed)


def latest_checkpoint(directory: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and what was wrong with newer ones."""
    wrong: list[str] = []
    for step in reversed(list_steps(directory)):
        try:
            return open_checkpoint(directory / f"step-{step}"), wrong
        except (ValueError, OSError) as error:
            wrong.append(str(error))
    return None, wrong


def read_states(directory: Path) -> Iterator[dict[str, Any]]:
    """What checkpoints say beside their tensors, the newest first; damaged ones, which `latest_checkpoint` names, are
    left out."""
    for step in reversed(list_steps(directory)):
        path = directory / f"step-{step}"
        with suppress(ValueError, OSError):
            check_file(path / STATE, read_manifest(path)[STATE])
            yield read_own_json(path / STATE)


def read_manifest(path: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a checkpoint, by a manifest that is whole and of this step."""
    file = path / MANIFEST
    if not file.is_file():
        raise ValueError(f"{path}: it has no {MANIFEST}")
    manifest = unseal(read_own_json(file), str(file), ("step", "sha256"))
    # Older manifests have no checksum of themselves; the directory's name says the step a second time.
    if type(manifest["step"]) is not int or f"step-{manifest['step']}" != path.name:
        raise ValueError(f"{file}: says step {str(manifest['step'])[:20]}, and the directory is {path.name}")
    sums = check_digests(manifest["sha256"], str(file), FILES)
    if odd := next((name for name in sums if Path(name).name != name), None):
        raise ValueError(f"{file}: names {odd[:80]!r}, which is no file of the checkpoint")
    return sums


def check_file(path: Path, digest: str) -> None:
    """Raise ValueError if a file is not there, or not what was written."""
    if not path.is_file():
        raise ValueError(f"{path}: missing")
    if sha256(path) != digest:
        raise ValueError(f"{path}: its bytes have changed since it was saved")


def open_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint after its files were found to be what was written."""
    sums = read_manifest(path)
    for name, digest in sums.items():
        check_file(path / name, digest)
    tensors = {name[:-12]: read_safetensors(path / name) for name in sums if name.endswith(".safetensors")}
    return Checkpoint(int(path.name[5:]), tensors, read_own_json(path / STATE))


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model; a tensor that stands under two names (tied) is kept once."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def restore_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put kept weights into a model of the same shape."""
    own = model_tensors(model)
    if own.keys() != tensors.keys():
        raise ValueError(
            f"the checkpoint is of another model: {sorted(own.keys() ^ tensors.keys())[0]} is on one side only"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != tensors[name].shape:
                here, there = list(tensor.shape), list(tensors[name].shape)
                raise ValueError(f"the checkpoint is of another model: {name} is {there} there, {here} here")
            tensor.copy_(tensors[name])


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as flat names: number of the parameter and name of the entry."""
    state = optimizer.state_dict()["state"]
    return {f"{number}.{name}": value for number, entries in state.items() for name, value in entries.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, entry = name.partition(".")
        state.setdefault(int(number), {})[entry] = tensor.clone()
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
