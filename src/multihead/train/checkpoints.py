"""Checkpoints: weights, optimiser state and what else a run needs to go on, whole or not at all.

A checkpoint is written aside, synced, given a manifest of SHA-256 sums and renamed; only then is an older one removed.
Opening verifies the sums and falls back to the one before, and says so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multihead.data.disk import read_json, sha256, sync, write_json
from multihead.models.files import read_safetensors, write_tensors

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Kept:
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
    directory.mkdir(parents=True, exist_ok=True)
    aside, final = directory / f".step-{step}.partial", directory / f"step-{step}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for name, group in tensors.items():
        write_tensors(aside / f"{name}.safetensors", group)
    write_json(aside / "state.json", dict(state))
    sums = {path.name: sha256(path) for path in sorted(aside.iterdir())}
    write_json(aside / MANIFEST, {"step": step, "sha256": sums})
    sync(aside)
    if final.exists():  # a damaged one of the same step
        shutil.rmtree(final)
    os.rename(aside, final)
    sync(directory)
    older = [old for old in steps(directory) if old < step]
    due = [old for old in older if old % every == 0]
    stay = {old for group in (older, due) for old in group[len(group) - min(keep - 1, len(group)) :]}
    for old in older:
        if old not in stay:
            remove(directory / f"step-{old}")
    return final


def steps(directory: Path) -> list[int]:
    """The steps that have a checkpoint, oldest first; partial ones do not count."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name[5:]) for path in directory.glob("step-*") if path.name[5:].isdigit())


def remove(path: Path) -> None:
    """Rename first: a checkpoint half removed must not look whole."""
    doomed = path.with_name(f".{path.name}.partial")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(path, doomed)
    shutil.rmtree(doomed)


def latest(directory: Path) -> tuple[Kept | None, list[str]]:
    """The newest checkpoint that is whole, and what was wrong with newer ones."""
    wrong: list[str] = []
    for step in reversed(steps(directory)):
        try:
            return opened(directory / f"step-{step}"), wrong
        except ValueError as error:
            wrong.append(str(error))
    return None, wrong


def states(directory: Path) -> Iterator[dict[str, Any]]:
    """What checkpoints say beside their tensors, the newest first; damaged ones, which `latest` names, are left out."""
    for step in reversed(steps(directory)):
        with suppress(ValueError, OSError):
            yield read_json(directory / f"step-{step}" / "state.json")


def opened(path: Path) -> Kept:
    """A checkpoint after its files were found to be what was written."""
    if not (path / MANIFEST).is_file():
        raise ValueError(f"{path}: it has no {MANIFEST}")
    manifest = read_json(path / MANIFEST)
    for name, want in manifest["sha256"].items():
        if not (path / name).is_file():
            raise ValueError(f"{path / name}: missing")
        if sha256(path / name) != want:
            raise ValueError(f"{path / name}: its bytes have changed since it was saved")
    tensors = {
        name[:-12]: read_safetensors(path / name) for name in manifest["sha256"] if name.endswith(".safetensors")
    }
    return Kept(int(manifest["step"]), tensors, read_json(path / "state.json"))


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model; a tensor that stands under two names (tied) is kept once."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def restore(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put kept weights into a model of the same shape."""
    own = weights(model)
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
