"""Pruning: rank heads and units, remove them within a budget, undo it."""

from pathlib import Path

from multihead.pretrained import load
from multihead.pruning.cost import CostReport
from multihead.pruning.finetune import finetuning_run
from multihead.pruning.head_importance import HeadEffect, HeadRanking, rank
from multihead.pruning.prune import PruningResult, prune
from multihead.pruning.restore import undo as _undo
from multihead.pruning.search import PruningBudget, PruningStep
from multihead.pruning.zero_padding import pad_pruned_model


def undo(directory: str | Path, out: str | Path) -> list[str]:
    """Restore the parent of a pruned model, byte for byte, to a new directory; return the names of its files."""
    directory, out = Path(directory), Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out}: not an empty directory; give a new one")
    return _undo(load(directory, dtype=None), directory, out)


__all__ = [
    "CostReport",
    "HeadEffect",
    "HeadRanking",
    "PruningBudget",
    "PruningResult",
    "PruningStep",
    "finetuning_run",
    "pad_pruned_model",
    "prune",
    "rank",
    "undo",
]
