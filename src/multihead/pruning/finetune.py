"""Fine-tuning after pruning, which lets the remaining parts take over from the removed ones."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from multihead.config import RunConfig, read
from multihead.inference import Pipeline
from multihead.pretrained import load
from multihead.training import TrainingRun


def finetuning_run(directory: str | Path, run: str | Path | RunConfig, *changes: str) -> TrainingRun:
    """Set up training from the pruned model in `directory`, readout included. Iterate it, then `finish()`: the model is
    in the run's own `out`, and the pruned model is unchanged."""
    config = run if isinstance(run, RunConfig) else read(run, [*changes, f"from={directory}"])
    training = TrainingRun(config)
    copy_readout(training, load(directory))
    return training


def copy_readout(training: TrainingRun, pruned: Pipeline) -> None:
    """Copy the readout of a model for the same task to a new training run, whose `from` loads only the body."""
    if pruned.task != training.task.name or pruned.labels != training.loaded.labels:
        raise ValueError(
            f"the run trains {training.task.name} ({', '.join(training.loaded.labels[:9])}), the pruned model is for "
            f"{pruned.task} ({', '.join(pruned.labels[:9])}); fine-tune on the data that it was trained on"
        )
    training.model.readout = deepcopy(pruned.model.readout).to(training.model.device)
    training.loaded.pruned = {**pruned.pruned, "trained": True}
