"""Ways to train faster that depend on the machine: half precision, where it works, and compiled steps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import nn

from multihead.machine.precision import Name, PrecisionProbe, choose_precision, display_name, measure
from multihead.models import Decoder, Encoder, EncoderDecoder, TaskModel
from multihead.training.checkpoints import read_states

Probe = Callable[[], Mapping[str, PrecisionProbe]]


def resolve_precision(wanted: str, device: torch.device, probe: Probe | None = None) -> tuple[Name, str]:
    """What to compute in, and the reason if the machine decided. Weights and their state are fp32 in any case."""
    names: tuple[Name, ...] = ("onednn", "bf16") if device.type == "cpu" else ("bf16",)
    probe = probe or partial(measure, names, device.type)
    name = choose_precision(wanted, probe)
    return name, f"training in {display_name(name)}: {'; '.join(describe_probe(probe()))}" if wanted == "auto" else ""


def describe_probe(found: Mapping[str, PrecisionProbe]) -> list[str]:
    """What the probe saw of each way, in words."""
    return [f"{display_name(name)} here {finding.verdict}" for name, finding in found.items()]


def saved_precision(directory: Path) -> str | None:
    """What a run began in, it goes on in: the probe measures time, and might decide otherwise today."""
    return next((str(state["precision"]) for state in read_states(directory) if "precision" in state), None)


def compile_model(model: TaskModel, wanted: str | bool) -> TaskModel:
    """What the loop calls: the model itself, or a compiled view of it with the same parameters.

    The model itself stays plain, so names in checkpoints, scoring and prediction know nothing of it. "auto" is off on
    CPU. Tried with a model of MiniLM's size, one thread, a busy machine: 67 s until the first batch was through, 106 s
    more for one of another shape, and then 1.8 and 3.6 s a step where the plain model took 1.1.
    """
    if wanted is not True:
        return model
    compiler = os.environ.get("CXX", "g++")
    if not any(map(shutil.which, (compiler, "clang++"))):
        raise ValueError(f"train.compile wants a C++ compiler, and {compiler} is not there; install one, or set false")
    return cast(TaskModel, compile_bodies(model))


def compile_bodies(part: nn.Module) -> nn.Module:
    """Encoders and decoders compiled, since some tasks call them and not the model; what holds them is copied, so
    that the model keeps its own. Parameters are shared."""
    if isinstance(part, Encoder | Decoder):
        return cast(nn.Module, torch.compile(part, dynamic=True))
    holders = (Encoder, Decoder, EncoderDecoder)
    view = copy(part)
    view._modules = {
        name: compile_bodies(child) if isinstance(child, holders) else child for name, child in part._modules.items()
    }
    return view
