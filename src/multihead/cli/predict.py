"""`multihead predict`: JSONL or text in, JSONL out, streaming."""

from __future__ import annotations

import json as jsons
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multihead.cli.app import DEVICE, PRECISION, verb
from multihead.cli.data_arguments import SETTINGS, override_generation, parse_columns

if TYPE_CHECKING:
    from multihead.models import TaskModel
    from multihead.tasks import Task, Values
    from multihead.tasks.generate import Generate

app = verb()


@app.command()
def predict(
    model: Annotated[str, typer.Argument(help="A model directory, or hub:owner/name.")],
    file: Annotated[
        str, typer.Argument(help="JSONL or text, one input per line, JSON, CSV, TSV or Parquet; also .gz; - is stdin.")
    ] = "-",
    columns: Annotated[
        list[str] | None,
        typer.Argument(help="Columns with other names than in training: text=review; encoding=latin-1; decode.beam=1"),
    ] = None,
    interactive: Annotated[bool, typer.Option("-i", help="Interactive prompt: one input per line.")] = False,
    name: Annotated[str | None, typer.Option("--task", help="The task to predict, if the model has several.")] = None,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
    precision: Annotated[str, typer.Option(help=PRECISION)] = "fp32",
) -> None:
    """Write one JSON line per input, in the same order. An unreadable or empty line gets an error object and prediction
    continues; the exit code is then 1.

    \b
    Example:
      multihead predict runs/ner/model new.jsonl > out.jsonl
      echo "Angela Merkel visited Beijing." | multihead predict runs/ner/model
      multihead predict runs/several/model questions.txt --task trec
      multihead predict runs/classify/model reviews.csv text=review
      multihead predict runs/translate/model new.en decode.beam=1
    """
    from rich.console import Console

    from multihead.inference.engine import WRITTEN, predict_rows
    from multihead.inference.input_lines import InputLines
    from multihead.inference.inputs import InputCounter, holds_rows, iterate_inputs, read_table, survey_tags
    from multihead.pretrained import load
    from multihead.report.status import track
    from multihead.tasks.generate import Generate

    if "=" in file and not Path(file).exists():  # no file: predict -i MODEL decode.beam=1
        file, columns = "-", [file, *(columns or [])]
    loaded = load(model, task=name).to(device, precision)
    task = loaded.make_task()
    columns = override_generation(task, columns or [])
    if interactive and isinstance(task, Generate):
        run_chat(loaded.model, task)
        return
    named, settings = columns_of(task, columns)
    # Lines of a pipe are answered as they arrive; other formats are read to their end first.
    read_all = "format" in settings or (task.spec.tags_words and file != "-")
    source = InputLines(file, interactive, settings.get("encoding", "utf-8"), read_all)
    rows = source.table or "format" in settings or (source.size > 0 and holds_rows(Path(file), task, settings))
    ahead = 1 if interactive or (file == "-" and sys.stdin.isatty()) else None
    # A progress bar would interleave with the answers.
    console = Console(stderr=True, force_terminal=False if sys.stdout.isatty() else None)
    idle = source.pipe.idle if source.pipe is not None else None
    failed, first, count, tally = 0, "", 0, InputCounter()
    try:
        if source.size:
            survey_tags(Path(file), task, settings)
        if rows:
            inputs = read_table(Path(file), task, named, settings, partial(print, file=sys.stderr))
        else:
            inputs = iterate_inputs(source, task, named, settings)
        answers = predict_rows(
            loaded.model, task, tally.count(inputs), ahead=ahead, strict=False, idle=idle, precision=loaded.precision
        )
        for count, (_, answer) in enumerate(track(answers, "predicting", console, source.share), 1):
            if "error" in answer:
                failed, first = failed + 1, first or answer["error"]["message"]
            line = jsons.dumps(answer, ensure_ascii=False, allow_nan=False)
            print(line, flush=idle is not None or count % (ahead or WRITTEN) == 0)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe: `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    if failed:
        print(f"multihead: {failed:,} of {count:,} inputs could not be read; the first: {first}", file=sys.stderr)
    if count != tally.inputs:
        fault = f"{tally.inputs:,} inputs, but {count:,} answers: answers do not correspond to inputs"
        print(f"multihead: {fault}", file=sys.stderr)
    if failed or count != tally.inputs:
        raise typer.Exit(1)


def run_chat(model: TaskModel, task: Generate) -> None:
    """Run an interactive conversation or continuation, streaming the output. /new clears the conversation."""
    from multihead.inference.input_lines import read_prompts

    messages: list[dict[str, str]] = []
    for turn, line in enumerate(read_prompts()):
        text = line.decode(errors="replace").strip("\r\n")
        if text.strip() == "/new":
            messages = []
        elif text.strip():
            values = task.validate(text, "the prompt")
            if "messages" in values:
                messages += values["messages"]
                values = {"messages": messages}
            elif sys.stdout.isatty():
                print(text, end="")
            parts = []
            for part in generate_text(model, task, values, turn):
                parts.append(part)
                print(part, end="", flush=True)
            print(flush=True)
            messages.append({"role": "assistant", "content": "".join(parts).strip()})


def generate_text(model: TaskModel, task: Generate, values: Values, turn: int) -> Iterator[str]:
    """Yield the generated text in parts as it is decoded; with beam search, the best text at the end."""
    from multihead.inference.engine import predict_rows

    how = task.generation_config()
    if how.beam == how.nbest == 1:
        yield from task.stream(model, values, turn)
    else:
        yield from (prediction["text"] for _, prediction in predict_rows(model, task, [values]))


def columns_of(task: Task, columns: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Parse text=review to {text: review}, for the input columns of the task; and the reader settings."""
    named, settings = parse_columns(columns)
    known = ("text", "tokens") if task.spec.tags_words else task.inputs
    odd = next((column for column in columns if column.partition("=")[0] not in (*known, *SETTINGS)), None)
    if odd is not None:
        names = (" or " if task.spec.tags_words else " and ").join(known)
        raise typer.BadParameter(f"{odd!r}: {task.name} reads {names}; write {known[0]}=COLUMN")
    return named, settings
