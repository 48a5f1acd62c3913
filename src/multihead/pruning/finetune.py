"""A short training after pruning, which lets the parts that are left take over from those that are gone."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from multihead.config import RunConfig, read
from multihead.inference import Pipeline
from multihead.pretrained import load
from multihead.training import TrainingRun


def finetuning_run(directory: str | Path, run: str | Path | RunConfig, *changes: str) -> TrainingRun:
    """A training that begins where the pruned model in `directory` stands, readout included. Iterate it, then
    `finish()`: the model is in the run's own `out`, and what pruning wrote stays as it is."""
    told = run if isinstance(run, RunConfig) else read(run, [*changes, f"from={directory}"])
    training = TrainingRun(told)
    copy_readout(training, load(directory))
    return training


def copy_readout(training: TrainingRun, pruned: Pipeline) -> None:
    """Gives a new training the readout of a model for the same task: a run file's `from` brings the body alone."""
    if pruned.task != training.task.name or pruned.labels != training.loaded.labels:
        raise ValueError(
            f"the run trains {training.task.name} ({', '.join(training.loaded.labels[:9])}), the pruned model does "
            f"{pruned.task} ({', '.join(pruned.labels[:9])}); recover on the data that it was trained on"
        )
    training.model.readout = deepcopy(pruned.model.readout).to(training.model.device)
    training.loaded.pruned = {**pruned.pruned, "trained": True}
