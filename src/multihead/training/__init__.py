"""Training: the loop, the optimizer, checkpoints; from a run file to a trained model."""

from pathlib import Path

from multihead.config import RunConfig, read
from multihead.recipes import run_file
from multihead.training.run import TrainingRun


def train(run: str | Path | RunConfig, *changes: str, fresh: bool = False) -> TrainingRun:
    """Train from a run file or a bundled recipe ("train.lr=3e-5" overrides a key), evaluate, and save the model;
    silently.

    The result holds the model (`.loaded`) and its scores (`.scores`); files are in `.out`.
    """
    if isinstance(run, str) and "\n" not in run:  # otherwise the text of a run file
        run = run_file(run)
    training = TrainingRun(run if isinstance(run, RunConfig) else read(run, changes), fresh=fresh)
    for _ in training:
        pass
    training.finish()
    return training


__all__ = ["TrainingRun", "train"]
