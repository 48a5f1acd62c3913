"""`multihead bench`: our speed beside the peers', as ratios."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.verb import verb

app = verb()


class What(StrEnum):
    attention = "attention"


def lengths(text: str) -> list[int]:
    """'128,512' -> [128, 512]."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise typer.BadParameter(f"{text!r} is not a list of lengths such as 128,512")
    return found


@app.command()
def bench(
    what: Annotated[What, typer.Argument(help="What to measure.")],
    at: Annotated[str, typer.Option("--lengths", help="Token counts, separated by commas.")] = (
        "128,256,512,1024,2048,4096,8192,16384"
    ),
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; the minimum counts.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Folder for the table and the picture.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure our speed beside the peers', as ratios.

    All lengths take about half an hour on two cores. Peers that are not installed are left out;
    pip install 'multihead[bench]' brings them.

    \b
    Example:
      multihead bench attention --lengths 128,2048 --rounds 3 --out runs/bench
    """
    measured = lengths(at)  # before the import: wrong usage is answered at once
    from multihead.bench import attention

    raise typer.Exit(attention.run(lengths=measured, rounds=rounds, out=out, json=json))
