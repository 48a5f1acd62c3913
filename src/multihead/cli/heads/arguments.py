"""Arguments that the verbs of `multihead heads` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Argument(help="A model directory, or hub:owner/name.")]
Data = Annotated[Path, typer.Argument(help="Any file that `train` reads.")]
Columns = Annotated[
    list[str] | None, typer.Argument(help="Columns named otherwise than for training: text=review label=verdict")
]
Limit = Annotated[int | None, typer.Option(help="Read only so many rows.")]
Task = Annotated[str | None, typer.Option(help="Of a model with several tasks, the name of one.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
