"""Machine-dependent acceleration: mixed precision, where it works, and compiled steps."""

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


def resolve_precision(requested: str, device: torch.device, probe: Probe | None = None) -> tuple[Name, str]:
    """Return the compute precision, and the reason if it was chosen by a probe. Weights and optimizer state stay
    fp32."""
    names: tuple[Name, ...] = ("onednn", "bf16") if device.type == "cpu" else ("bf16",)
    probe = probe or partial(measure, names, device.type)
    name = choose_precision(requested, probe)
    return (
        name,
        f"training in {display_name(name)}: {'; '.join(describe_probe(probe()))}" if requested == "auto" else "",
    )


def describe_probe(findings: Mapping[str, PrecisionProbe]) -> list[str]:
    """Describe the probe's verdict for each precision."""
    return [f"{display_name(name)} here {finding.verdict}" for name, finding in findings.items()]


def saved_precision(directory: Path) -> str | None:
    """Return the precision that a run started in; a resumed run keeps it, since the probe measures time and may
    vary."""
    return next((str(state["precision"]) for state in read_states(directory) if "precision" in state), None)


def compile_model(model: TaskModel, requested: str | bool) -> TaskModel:
    """Return the model for the training loop: the model itself, or a compiled view with the same parameters.

    The model itself stays uncompiled, so checkpoints, evaluation and prediction are unaffected. "auto" is off on CPU.
    Measured with a MiniLM-sized model, one thread, a busy machine: 67 s until the first batch, 106 s more for another
    shape, and then 1.8 and 3.6 s per step where the uncompiled model took 1.1.
    """
    if requested is not True:
        return model
    compiler = os.environ.get("CXX", "g++")
    if not any(map(shutil.which, (compiler, "clang++"))):
        raise ValueError(
            f"train.compile needs a C++ compiler, and {compiler} was not found; install one, or set it to false"
        )
    return cast(TaskModel, compile_bodies(model))


def compile_bodies(part: nn.Module) -> nn.Module:
    """Compile encoders and decoders, since some tasks call them directly; containers are copied, so that the model
    keeps its own. Parameters are shared."""
    if isinstance(part, Encoder | Decoder):
        return cast(nn.Module, torch.compile(part, dynamic=True))
    holders = (Encoder, Decoder, EncoderDecoder)
    view = copy(part)
    view._modules = {
        name: compile_bodies(child) if isinstance(child, holders) else child for name, child in part._modules.items()
    }
    return view
