"""Several readouts on one trunk, in our own layout beside it: `readouts.safetensors`, tensors named NAME/our name.

The trunk is a model directory of its own, the body alone; multihead.json says of every readout what it is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multihead.io.weights import read_safetensors
from multihead.models.families import load_tensors, native_config, native_plan
from multihead.models.readouts import TaskModel

READOUTS = "readouts.safetensors"
Json = dict[str, Any]


def readout_tensors(models: Mapping[str, TaskModel]) -> dict[str, Tensor]:
    """The weights of every readout; what is the body's own (a tied table) stands with the body."""
    found = {}
    for name, model in models.items():
        body = {id(parameter) for parameter in model.body.parameters()}
        for ours, parameter in model.readout.named_parameters():
            if id(parameter) not in body:
                found[f"{name}/{ours}"] = parameter.detach()
    return found


def with_stored_readout(
    trunk: TaskModel, told: Json, name: str, directory: Path, dtype: torch.dtype | None
) -> TaskModel:
    """A readout on the trunk; every tensor of it is there and has the shape that is told, or nothing is loaded."""
    file = directory / READOUTS
    stored = read_safetensors(file)
    own = {f"readout.{ours[len(name) + 1 :]}": tensor for ours, tensor in stored.items() if ours.startswith(f"{name}/")}
    body = {f"body.{ours}": parameter.detach() for ours, parameter in trunk.body.named_parameters()}
    config = native_config(TaskModel(trunk.body, nn.Identity())) | {"readout": told}
    model, _ = load_tensors(native_plan(config), own | body, str(file), dtype)
    return model
