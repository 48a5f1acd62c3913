"""`multihead predict`: JSONL or text in, JSONL out, streaming."""

from __future__ import annotations

import json as jsons
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from multihead.cli.verb import verb

if TYPE_CHECKING:
    from multihead.tasks import Task, Values

app = verb()


@app.command()
def predict(
    model: Annotated[str, typer.Argument(help="A model directory, or hub:owner/name.")],
    file: Annotated[str, typer.Argument(help="JSONL or text, one input a line; - is stdin.")] = "-",
    interactive: Annotated[bool, typer.Option("-i", help="A prompt: one input a line, answered at once.")] = False,
) -> None:
    """Write one JSON line per input.

    \b
    Example:
      multihead predict runs/ner/model new.jsonl > out.jsonl
      echo "Angela Merkel visited Beijing." | multihead predict runs/ner/model
    """
    from multihead.build import load
    from multihead.tasks.predict import AHEAD, predictions

    loaded = load(model)
    task = loaded.ready()
    source = prompted() if interactive else lines(file)
    ahead = 1 if interactive or (file == "-" and sys.stdin.isatty()) else AHEAD
    for _, prediction in predictions(loaded.model, task, inputs(source, task), ahead=ahead):
        print(jsons.dumps(prediction, ensure_ascii=False), flush=ahead == 1)


def lines(file: str) -> Iterator[str]:
    """Lines without their ends; only \\n ends a line."""
    if file == "-":
        yield from (line.rstrip("\r\n") for line in sys.stdin)
        return
    with open(file, encoding="utf-8-sig", newline="\n") as opened:
        yield from (line.rstrip("\r\n") for line in opened)


def prompted() -> Iterator[str]:
    while True:
        try:
            yield input("> ")
        except EOFError:
            return


def inputs(source: Iterator[str], task: Task) -> Iterator[Values]:
    """A line that is a JSON object is taken as one; any other is the text."""
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        try:
            given = jsons.loads(line) if line.lstrip().startswith("{") else line
        except ValueError as error:
            raise ValueError(f"line {number}: not JSON: {error}") from None
        yield task.checked(given, f"line {number}")
