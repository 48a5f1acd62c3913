"""Undo data of a pruned model, so that the parent's exact bytes can be restored without it: the removed slices, the
header of its weights, and small files that the pruned model does not have itself.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from multihead.inference import Pipeline
from multihead.io.files import parse_json, read_bytes, sha256, write_bytes
from multihead.io.manifest import MANIFEST
from multihead.io.weights import read_safetensors, write_tensors
from multihead.models.config import FORMER_FIELDS, PRUNING_FIELDS
from multihead.pretrained import export_layout
from multihead.pruning.surgery import PruningPlan, configs, plan_of_model, restore_parts

FOLDER = "parent"
WEIGHTS, HEADER, SLICES = "model.safetensors", "header", "removed.safetensors"
SMALL = 64 << 20  # bytes: larger files are not part of a model's description
UNCHANGED_PREFIX = "whole:"  # prefix of names in removed.safetensors
PLACES = ("units", "keys", "values")  # likewise, with a colon: parts of a plan
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
Json = dict[str, Any]


def save_parent(
    parent: Path, full: Pipeline, smaller: Pipeline, plan: PruningPlan, removed: dict[str, Tensor], out: Path
) -> Json:
    """Write `out/parent`; return the parent's entry in multihead.json. `smaller` as it will be saved there."""
    before = {
        stack: {name: getattr(config, name) for name in PRUNING_FIELDS} for stack, config in configs(full.model).items()
    }
    record: Json = {"config": full.config, "before": before, "sha256": {}}
    weights = parent / WEIGHTS
    if not weights.is_file():
        return record | {"undo": f"the weights of its parent were not one file, {WEIGHTS}"}
    folder = out / FOLDER
    folder.mkdir(parents=True)
    header = _header(weights)
    slices = dict(removed)
    for kind in PLACES:
        slices |= {f"{kind}:{name}": torch.tensor(indices) for name, indices in getattr(plan, kind).items()}
    stored, again = read_safetensors(weights), _tensors(smaller, full.config, before, plan, slices)
    for name in stored:  # unused or renamed tensors
        if name not in again or not torch.equal(_bits(stored[name]), _bits(again[name].to(stored[name].dtype))):
            slices[UNCHANGED_PREFIX + name] = stored[name]
    write_tensors(folder / SLICES, slices)
    write_bytes(folder / HEADER, header)
    for path in sorted(parent.rglob("*")):
        name = path.relative_to(parent).as_posix()
        if not path.is_file() or name == WEIGHTS or path.stat().st_size > SMALL or ".aside" in name:
            continue
        record["sha256"][name] = sha256(path)
        if (
            full.tokenizer is None or name not in full.tokenizer.files
        ):  # the pruned model has the tokenizer's files itself
            target = folder / "files" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(target, path.read_bytes())
    record["sha256"][WEIGHTS] = sha256(weights)
    digest = hashlib.sha256()
    for part in _bytes(header, again, slices):
        digest.update(part)
    assert digest.hexdigest() == record["sha256"][WEIGHTS], "the slices do not give the parent back"
    return record


def undo(pruned: Pipeline, directory: Path, out: Path) -> list[str]:
    """Write the parent's files, byte for byte, and return their names; raise ValueError if they would differ."""
    record: Json = pruned.pruned.get("parent", {})
    if not record:
        raise ValueError(f"{directory}: not a pruned model: {MANIFEST} names no parent")
    if reason := record.get("undo"):
        raise ValueError(f"{directory}: cannot be undone: {reason}")
    folder = directory / FOLDER
    if pruned.pruned.get("trained") or not folder.is_dir():
        raise ValueError(
            f"{directory}: was trained or saved again after pruning, so the parent cannot be restored from it; "
            "undo the model that pruning wrote"
        )
    slices = read_safetensors(folder / SLICES)
    parts: dict[str, Json] = {kind: {} for kind in PLACES}
    for named, places in slices.items():
        kind, colon, name = named.partition(":")
        if colon and kind in parts:
            parts[kind][name] = _tuples(places.tolist())
    before = {
        stack: {FORMER_FIELDS.get(name, name): _tuples(value) for name, value in fields.items()}
        for stack, fields in record["before"].items()
    }
    header = read_bytes(folder / HEADER, 100_000_000)
    tensors = _tensors(pruned, record["config"], before, PruningPlan({}, **parts), slices)
    digest = hashlib.sha256()
    for part in _bytes(header, tensors, slices):
        digest.update(part)
    if digest.hexdigest() != record["sha256"][WEIGHTS]:
        raise ValueError(
            f"{directory}: its weights were changed after pruning (trained?): with the slices restored they are "
            f"not the parent's, whose sha256 is {record['sha256'][WEIGHTS][:12]}…"
        )
    out.mkdir(parents=True, exist_ok=True)
    for name in record["sha256"]:
        target = out / name
        if out.resolve() not in target.resolve().parents:
            raise ValueError(f"{directory / MANIFEST}: names {name[:80]!r}, which leads out of the directory")
        target.parent.mkdir(parents=True, exist_ok=True)
        if name != WEIGHTS:
            source = folder / "files" / name
            write_bytes(target, (source if source.exists() else directory / name).read_bytes())
    write_bytes(out / WEIGHTS, b"".join(_bytes(header, tensors, slices)))
    for name, want in record["sha256"].items():
        if sha256(out / name) != want:
            raise ValueError(f"{out / name}: not what the parent had: {directory} was changed after pruning")
    return list(record["sha256"])


def _tensors(
    smaller: Pipeline, config: Json, before: dict[str, Json], plan: PruningPlan, slices: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Return the parent's tensors by its names, as far as the model uses them."""
    now = configs(smaller.model)
    full = {stack: replace(now[stack], **before[stack]) for stack in now}
    heads = plan_of_model(full, smaller.model).heads
    model = restore_parts(smaller.model, full, replace(plan, heads=heads), slices)
    return export_layout(replace(smaller, model=model, config=config, unused_tensors={}, pruned={}))[1]


def _bytes(header: bytes, tensors: dict[str, Tensor], slices: dict[str, Tensor]) -> Iterator[bytes]:
    """Yield a safetensors file, chunk by chunk."""
    yield struct.pack("<Q", len(header))
    yield header
    entries = parse_json(header.decode(), HEADER)
    entries.pop("__metadata__", None)
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        tensor = slices.get(UNCHANGED_PREFIX + name, tensors.get(name))
        if tensor is None:
            raise ValueError(f"{HEADER}: names the tensor {name!r}, which is missing")
        yield _bits(tensor.to(DTYPES[entry["dtype"]])).numpy().tobytes()


def _bits(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor, flat."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else torch.zeros(0, dtype=torch.uint8)


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return file.read(length)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
