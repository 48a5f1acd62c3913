"""`multihead heads undo`: restore a pruned model's parent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def undo(
    model: Annotated[Path, typer.Argument(help="A directory that `heads prune` wrote.")],
    out: Annotated[Path, typer.Option(help="Directory to write; it must be new or empty.")],
) -> None:
    """Restore a pruned model's parent, byte for byte; the parent itself is not needed.

    \b
    Example:
      multihead heads undo runs/ner/small --out runs/ner/whole
    """
    from multihead.pruning import undo as undone

    files = undone(model, out)
    print(f"{out}: {len(files)} files, each with the sha256 of the parent's")
