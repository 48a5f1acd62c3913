"""Several readouts on a shared encoder, stored next to it: `readouts.safetensors`, tensors named NAME/our name.

The shared encoder is a model directory of its own, the body alone; multihead.json describes every readout.
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
    """Return the weights of every readout; tensors of the body (tied embeddings) are stored with the body."""
    tensors = {}
    for name, model in models.items():
        body = {id(parameter) for parameter in model.body.parameters()}
        for ours, parameter in model.readout.named_parameters():
            if id(parameter) not in body:
                tensors[f"{name}/{ours}"] = parameter.detach()
    return tensors


def with_stored_readout(
    shared: TaskModel, options: Json, name: str, directory: Path, dtype: torch.dtype | None
) -> TaskModel:
    """Load a readout onto the shared encoder; every tensor must be present with the declared shape."""
    file = directory / READOUTS
    stored = read_safetensors(file)
    tensors = {
        f"readout.{ours[len(name) + 1 :]}": tensor for ours, tensor in stored.items() if ours.startswith(f"{name}/")
    }
    body = {f"body.{ours}": parameter.detach() for ours, parameter in shared.body.named_parameters()}
    config = native_config(TaskModel(shared.body, nn.Identity())) | {"readout": options}
    model, _ = load_tensors(native_plan(config), tensors | body, str(file), dtype)
    return model
