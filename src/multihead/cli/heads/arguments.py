"""Arguments that the `multihead heads` commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Argument(help="A model directory, or hub:owner/name.")]
Data = Annotated[Path, typer.Argument(help="Any file that `train` reads.")]
Columns = Annotated[
    list[str] | None, typer.Argument(help="Columns with other names than in training: text=review label=verdict")
]
Limit = Annotated[int | None, typer.Option(help="Read at most this many examples.")]
Task = Annotated[str | None, typer.Option(help="The task to use, if the model has several.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
