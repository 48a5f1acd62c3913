"""Heads: what each of them does over data, what a task loses without it, a smaller model without those it can spare."""

from pathlib import Path

from multihead.heads.bill import Bill
from multihead.heads.choose import Budget, Point
from multihead.heads.keepsake import undo as _undo
from multihead.heads.padded import padded
from multihead.heads.profile import Profile, stats
from multihead.heads.pruning import Pruned, prune
from multihead.heads.ranking import Effect, Ranking, rank
from multihead.heads.recover import recovery
from multihead.heads.uses import Uses, uses
from multihead.pretrained import load


def undo(directory: str | Path, out: str | Path) -> list[str]:
    """The parent of a pruned model, byte for byte, into a new directory; the names of its files."""
    directory, out = Path(directory), Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out}: not an empty directory; give a new one")
    return _undo(load(directory, dtype=None), directory, out)


__all__ = [
    "Bill",
    "Budget",
    "Effect",
    "Point",
    "Profile",
    "Pruned",
    "Ranking",
    "Uses",
    "padded",
    "prune",
    "rank",
    "recovery",
    "stats",
    "undo",
    "uses",
]
