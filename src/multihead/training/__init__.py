"""Training: the loop, the optimiser, checkpoints; a run from its file to a model."""

from pathlib import Path

from multihead.config import RunConfig, read
from multihead.recipes import run_file
from multihead.training.run import TrainingRun


def train(run: str | Path | RunConfig, *changes: str, fresh: bool = False) -> TrainingRun:
    """Train as a run file or a bundled recipe says ("train.lr=3e-5" changes a key), score, write the model; silently.

    The result holds the model (`.loaded`) and its scores (`.scores`); what is on disk is in `.out`.
    """
    if isinstance(run, str) and "\n" not in run:  # else a run file's text
        run = run_file(run)
    training = TrainingRun(run if isinstance(run, RunConfig) else read(run, changes), fresh=fresh)
    for _ in training:
        pass
    training.finish()
    return training


__all__ = ["TrainingRun", "train"]
