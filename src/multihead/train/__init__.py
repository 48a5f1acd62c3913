"""Training: the loop, the optimiser, checkpoints; a run from its file to a model."""

from pathlib import Path

from multihead.run import RunFile, read
from multihead.train.training import Training


def train(run: str | Path | RunFile, *changes: str, fresh: bool = False) -> Training:
    """Train as the run file says (with keys changed: "train.lr=3e-5"), score, and write the model; silently.

    The result holds the model (`.loaded`) and its scores (`.scores`); what is on disk is in `.out`.
    """
    training = Training(run if isinstance(run, RunFile) else read(run, changes), fresh=fresh)
    for _ in training:
        pass
    training.finish()
    return training


__all__ = ["Training", "train"]
