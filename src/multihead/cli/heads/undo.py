"""`multihead heads undo`: a pruned model's parent again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def undo(
    model: Annotated[Path, typer.Argument(help="A directory that `heads prune` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder to write; it must be new or empty.")],
) -> None:
    """Make a pruned model's parent again, byte for byte; the parent itself is not needed.

    \b
    Example:
      multihead heads undo runs/ner/small --out runs/ner/whole
    """
    from multihead.pruning import undo as undone

    files = undone(model, out)
    print(f"{out}: {len(files)} files, every one with the sha256 that the parent's had")
