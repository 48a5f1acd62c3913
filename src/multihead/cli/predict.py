"""`multihead predict`: JSONL or text in, JSONL out, streaming."""

from __future__ import annotations

import json as jsons
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from multihead.cli.app import DEVICE, PRECISION, verb
from multihead.cli.data_arguments import SETTINGS, find_columns, override_generation, parse_columns
from multihead.io.pipes import GzipStream, is_pipe, is_stdin, to_regular_file

if TYPE_CHECKING:
    from multihead.models import TaskModel
    from multihead.tasks import Task, Values
    from multihead.tasks.generate import Generate

app = verb()
JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
TABLES = (".csv", ".tsv", ".parquet")
KNOWING = ("conll", "squad")  # formats that say themselves what their columns are
# JSON, or meant to be: an object, or an array of them, which is no input; {so} a text may begin, and [so] too.
OBJECT = re.compile(r"[\s\ufeff]*(\[\s*)?\{\s*([\"'}]|$)")
CHUNK = 1 << 16  # bytes
GZIP = b"\x1f\x8b"
MARK = 2  # bytes that tell packed data
EMPTY = "empty_input"  # the code of an input without text, whatever the format


@app.command()
def predict(
    model: Annotated[str, typer.Argument(help="A model directory, or hub:owner/name.")],
    file: Annotated[
        str, typer.Argument(help="JSONL or text, one input a line, JSON, CSV, TSV or Parquet; also .gz; - is stdin.")
    ] = "-",
    columns: Annotated[
        list[str] | None,
        typer.Argument(help="Columns named otherwise than for training: text=review; encoding=latin-1; decode.beam=1"),
    ] = None,
    interactive: Annotated[bool, typer.Option("-i", help="A prompt: one input a line, answered at once.")] = False,
    name: Annotated[str | None, typer.Option("--task", help="Of a model with several tasks, the name of one.")] = None,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
    precision: Annotated[str, typer.Option(help=PRECISION)] = "fp32",
) -> None:
    """Write one JSON line per input, in their order. A line that cannot be read, or is empty, is answered with an error
    object and the rest goes on; the exit code is then 1.

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
    # Lines of a pipe are answered as they come; what has to be looked at as a whole is read to its end first.
    whole = "format" in settings or (task.spec.tags_words and file != "-")
    source = InputLines(file, interactive, settings.get("encoding", "utf-8"), whole)
    rows = source.table or "format" in settings or (source.size > 0 and holds_rows(Path(file), task, settings))
    ahead = 1 if interactive or (file == "-" and sys.stdin.isatty()) else None
    # A bar between the lines of an answer would be in the way.
    console = Console(stderr=True, force_terminal=False if sys.stdout.isatty() else None)
    idle = source.pipe.idle if source.pipe is not None else None
    refused, first, count = 0, "", 0
    tally = InputCounter()
    try:
        if source.size:
            survey_tags(Path(file), task, settings)
        given = read_table(Path(file), task, named, settings) if rows else iterate_inputs(source, task, named, settings)
        answers = predict_rows(
            loaded.model, task, tally.count(given), ahead=ahead, strict=False, idle=idle, precision=loaded.precision
        )
        for count, (_, answer) in enumerate(track(answers, "predicting", console, source.share), 1):
            if "error" in answer:
                refused, first = refused + 1, first or answer["error"]["message"]
            line = jsons.dumps(answer, ensure_ascii=False, allow_nan=False)
            print(line, flush=idle is not None or count % (ahead or WRITTEN) == 0)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough: `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    if refused:
        what = f"{refused:,} of {count:,} inputs could not be read; the first: {first}"
        print(f"multihead: {what}", file=sys.stderr)
    if count != tally.inputs:
        print(
            f"multihead: {tally.inputs:,} inputs, but {count:,} answers: answer n is not that of input n",
            file=sys.stderr,
        )
    if refused or count != tally.inputs:
        raise typer.Exit(1)


class InputCounter:
    """How many inputs were read; every one of them has to be answered."""

    def __init__(self) -> None:
        self.inputs = 0

    def count(self, rows: Iterable[Values]) -> Iterator[Values]:
        for values in rows:
            self.inputs += 1
            yield values


def run_chat(model: TaskModel, task: Generate) -> None:
    """A conversation, or beginnings to go on with; what is written shows as it comes. /new forgets what was said."""
    messages: list[dict[str, str]] = []
    for turn, line in enumerate(read_prompts()):
        said = line.decode(errors="replace").strip("\r\n")
        if said.strip() == "/new":
            messages = []
        elif said.strip():
            values = task.validate(said, "the prompt")
            if "messages" in values:
                messages += values["messages"]
                values = {"messages": messages}
            elif sys.stdout.isatty():
                print(said, end="")
            parts = []
            for part in generate_text(model, task, values, turn):
                parts.append(part)
                print(part, end="", flush=True)
            print(flush=True)
            messages.append({"role": "assistant", "content": "".join(parts).strip()})


def generate_text(model: TaskModel, task: Generate, values: Values, turn: int) -> Iterator[str]:
    """In pieces as they come; of a search among several texts, the best one at its end."""
    from multihead.inference.engine import predict_rows

    how = task.generation_config()
    if how.beam == how.nbest == 1:
        yield from task.stream(model, values, turn)
    else:
        yield from (said["text"] for _, said in predict_rows(model, task, [values]))


class InputLines:
    """The lines of a file, of a pipe or of a prompt, as bytes, and how far they have been read.

    whole: a pipe is not answered line by line, as its format has to be seen or its rows are no lines.
    """

    def __init__(self, file: str, interactive: bool = False, encoding: str = "utf-8", whole: bool = False) -> None:
        self.file, self.interactive = file, interactive
        ending = Path(file.removesuffix(".gz")).suffix.lower()
        self.json, self.table = ending in JSON_ENDINGS, ending in TABLES and not interactive
        self.read, self.size = 0, 0
        self.share: Callable[[], float] | None = None
        self.pipe: PipeReader | None = None
        if interactive:
            return
        if not whole and not self.table and ending != ".json" and self._streams():
            # Its lines are read where they are looked at: a pipe that is opened again has lost its first ones.
            self.pipe = PipeReader(0 if is_stdin(file) else os.open(file, os.O_RDONLY), file, encoding)
        elif file != "-" or whole:
            self.size = self._check_size(Path(file), encoding)
            if not file.endswith(".gz") and not self.table:  # how much is left of packed data nobody knows
                self.share = lambda: self.read / max(self.size, 1)

    def _streams(self) -> bool:
        if os.name != "posix":  # others have no select
            return False
        return not sys.stdin.isatty() if self.file == "-" else is_pipe(Path(self.file))

    @staticmethod
    def _check_size(path: Path, encoding: str) -> int:
        """The size in bytes of what is no binary data; an empty file has no inputs, and that is no fault."""
        from multihead.data.readers.lines import read_head

        file = to_regular_file(path)
        if not file.exists() or file.is_dir() or file.stat().st_size:
            read_head(path, encoding)
        return file.stat().st_size

    def __iter__(self) -> Iterator[bytes]:
        """Only \\n ends a line. Of a line that is too long, so much is given that this can be seen."""
        from multihead.data.readers.lines import BROKEN_GZIP, LONGEST_LINE, open_bytes

        if self.interactive:
            yield from (line for line in read_prompts() if line.strip())
            return
        stream: BinaryIO | PipeReader
        held = self.pipe or (sys.stdin.buffer if self.file == "-" and not self.size else None)
        with nullcontext(held) if held is not None else open_bytes(Path(self.file)) as stream:
            try:
                while line := stream.readline(LONGEST_LINE + 1):
                    self.read += len(line)
                    yield line
                    while len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                        line = stream.readline(LONGEST_LINE)
                        self.read += len(line)
            except BROKEN_GZIP as error:
                raise ValueError(f"{self.file}: broken gzip data ({error}); fetch it again") from None


class PipeReader:
    """Lines of a pipe that can tell whether another one is there; Python's own reader would wait for it."""

    def __init__(self, number: int, file: str = "-", encoding: str = "utf-8") -> None:
        self.number, self.held = number, bytearray()
        self.file, self.encoding = file, encoding
        self.gzip: GzipStream | None = None
        self.begun = False

    def readline(self, limit: int) -> bytes:
        end, seen = self.held.find(b"\n", 0, limit) + 1, len(self.held)
        while not end and seen < limit and self._take():
            end, seen = self.held.find(b"\n", seen, limit) + 1, len(self.held)
        line = bytes(self.held[: end or limit])
        del self.held[: len(line)]
        return line

    def idle(self, seconds: float) -> bool:
        """Whether there is no line, nor comes one within so many seconds; of an end nobody has to wait."""
        until = time.monotonic() + seconds
        while b"\n" not in self.held:
            left = max(until - time.monotonic(), 0.0)
            if not select.select([self.number], [], [], left)[0]:
                return True
            if not self._take():
                return False
            if not left:
                return b"\n" not in self.held
        return False

    def _take(self) -> bool:
        """Read what is there; False: nothing will come any more."""
        from multihead.data.readers.lines import BROKEN_GZIP

        more = os.read(self.number, CHUNK)
        while more and not self.begun and len(more) < MARK and (rest := os.read(self.number, CHUNK)):
            more += rest
        if more and not self.begun:
            self._begin(more)
        if self.gzip is None:
            self.held += more
            return bool(more)
        try:  # here, as `idle` reads too
            if more:
                self.held += self.gzip.unpack(more)
            else:
                self.gzip.end()
        except BROKEN_GZIP as error:
            raise ValueError(f"{self.file}: broken gzip data ({error}); fetch it again") from None
        return bool(more)

    def _begin(self, head: bytes) -> None:
        """See what the first bytes are, as of a file: packed data is unpacked, other binary data refused."""
        from multihead.data.readers.lines import check_head

        self.begun = True
        if head.startswith(GZIP):
            self.gzip = GzipStream()
        elif self.file.endswith(".gz"):
            raise ValueError(f"{self.file}:1: named .gz, but not gzip data; fetch it again, or drop the ending")
        else:
            check_head(Path(self.file), head, self.encoding)


def read_prompts() -> Iterator[bytes]:
    while True:
        try:
            yield input("> ").encode("utf-8", "surrogateescape")
        except EOFError:
            return


def columns_of(task: Task, columns: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """text=review -> {text: review}, for the columns that a prediction needs; and how the file is read."""
    named, settings = parse_columns(columns)
    known = ("text", "tokens") if task.spec.tags_words else task.inputs
    odd = next((column for column in columns if column.partition("=")[0] not in (*known, *SETTINGS)), None)
    if odd is not None:
        wanted = (" or " if task.spec.tags_words else " and ").join(known)
        raise typer.BadParameter(f"{odd!r}: {task.name} reads {wanted}; write {known[0]}=COLUMN")
    return named, settings


def holds_rows(path: Path, task: Task, settings: dict[str, str]) -> bool:
    """Does a file hold something else than an input a line: words with an empty line after each sentence, as taggers
    are given, or one JSON text?"""
    from multihead.data.readers.detect import detect
    from multihead.data.readers.record import ReadOptions

    json = path.name.removesuffix(".gz").endswith(".json")
    if not task.spec.tags_words and not json:
        return False
    found = detect(path, ReadOptions(encoding=settings.get("encoding", "utf-8")))
    return found in KNOWING or (json and found == "json")


def roles_in(path: Path, task: Task, named: dict[str, str], settings: dict[str, str]) -> dict[str, str] | None:
    """What a table's columns are called; None: the format says it. For a tagger, those with lists of words if there are
    some, else those with text. A table that only reads with the columns of the training data is read with them."""
    from multihead.data.readers.detect import detect
    from multihead.data.readers.read import read_records
    from multihead.data.readers.record import ReadOptions

    if (settings.get("format") or detect(path, ReadOptions(encoding=settings.get("encoding", "utf-8")))) in KNOWING:
        return None
    if task.spec.tags_words and not named:
        with suppress(ValueError):  # there is no such column
            roles = find_columns(task, [path], ("tokens",), {}, settings)
            first = next(iter(read_records(path, columns=roles, **settings)), None)
            if first is not None and isinstance(first.values["tokens"], list):
                return roles
    wanted = (tuple(named) or ("text",)) if task.spec.tags_words else task.inputs
    roles = find_columns(task, [path], wanted, named, settings)
    if named or task.spec.tags_words:
        return roles
    try:
        next(iter(read_records(path, columns=roles, **settings)), None)
    except ValueError:
        with suppress(ValueError):
            whole = find_columns(task, [path], task.columns(), {}, settings)
            next(iter(read_records(path, columns=whole, **settings)), None)
            return whole
    return roles


def read_table(path: Path, task: Task, named: dict[str, str], settings: dict[str, str]) -> Iterator[Values]:
    """Rows of a table by its columns; one that cannot be used is answered in its place."""
    from multihead.data.readers.csv import HEADER
    from multihead.data.readers.read import read_records
    from multihead.data.readers.record import Record, RejectedRow, RepairedRow
    from multihead.inference.engine import RejectedInput
    from multihead.tasks.task import EmptyInput

    reading = read_records(path, columns=roles_in(path, task, named, settings), task=task.name, gold=False, **settings)
    for _, _, rows in reading.sources:
        for row in rows({}):
            if isinstance(row, Record):
                try:
                    yield {**task.validate(task.map_columns(row.values), f"line {row.line}"), "line": row.line}
                except EmptyInput as error:
                    yield RejectedInput(EMPTY, str(error))
                except ValueError as error:
                    yield RejectedInput("bad_input", str(error))
            elif isinstance(row, RejectedRow):
                yield RejectedInput(
                    EMPTY if row.code.startswith("empty") else "bad_row", f"line {row.line}: {row.reason}"
                )
            elif isinstance(row, RepairedRow) and row.code == HEADER:
                print(f"multihead: {row}", file=sys.stderr)  # else answers would be one row off without a word


def survey_tags(path: Path, task: Task, settings: dict[str, str]) -> None:
    """Let a tagger answer in the notation of the tags that a file has, if it has some."""
    from multihead.data.readers.read import LISTS, read_records
    from multihead.tasks.ner import Ner

    if not isinstance(task, Ner):
        return
    with suppress(ValueError):  # a fault of the file is told in its turn
        reading = read_records(path, columns=None, gold=False, **settings)
        if reading.sources[0][1] == "conll":
            next(iter(reading), None)
            task.write_as(reading.notation)
        elif reading.sources[0][1] in LISTS:
            task.survey(record.values for record in reading)


def iterate_inputs(source: InputLines, task: Task, named: dict[str, str], settings: dict[str, str]) -> Iterator[Values]:
    """A line that is a JSON object is taken as one, and any line of a .jsonl file is JSON; any other is the text.
    Answer n is that of line n: an empty one is answered with an error too."""
    from multihead.data.readers.columns import missing_column_error
    from multihead.data.readers.lines import LONGEST_LINE, guess_encoding, is_wide_encoding
    from multihead.inference.engine import RejectedInput
    from multihead.tasks.task import EmptyInput

    encoding = settings.get("encoding", "utf-8")
    if is_wide_encoding(encoding):  # whose lines do not end where bytes say so
        raise ValueError(f"lines of {encoding} are not read here; convert them to UTF-8")
    for number, line in enumerate(source, 1):
        bare = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).rstrip(b"\r\n")
        where = f"line {number}"
        if not bare.strip():
            yield RejectedInput(EMPTY, f"{where}: an empty line")
            continue
        if len(line) > LONGEST_LINE:
            yield RejectedInput("too_long", f"{where}: more than {LONGEST_LINE >> 20} MiB in one line; is this text?")
            continue
        try:
            row = parse_input(bare.decode(encoding), source.json)
            said = task.map_columns(row)
            for role, column in named.items() if isinstance(row, dict) else ():
                if column not in row:
                    raise ValueError(missing_column_error(role, column, list(row), where, numbered=False))
                said[role] = row[column]
            yield {**task.validate(said, where), "line": number}
        except UnicodeDecodeError as error:
            byte = f"byte {bare[error.start]:#04x} at {error.start + 1}"
            yield RejectedInput(
                "bad_encoding",
                f"{where}: {byte} is not {encoding.upper()}; say encoding={guess_encoding(bare)}, or convert it",
            )
        except InvalidLine as error:
            yield RejectedInput("bad_json", f"{where}: {error}")
        except EmptyInput as error:
            yield RejectedInput(EMPTY, str(error))
        except ValueError as error:
            yield RejectedInput("bad_input", str(error))


class InvalidLine(ValueError):
    """A line that is not the JSON it should be."""


def parse_input(text: str, json: bool) -> Any:
    from multihead.data.readers.json import parse

    if not json and not OBJECT.match(text):
        return text
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidLine(error) from None
