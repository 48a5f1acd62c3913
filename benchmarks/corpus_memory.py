"""`multihead bench corpus`: how much more memory training takes on a large text than on a small one.

Each run is a process of its own: it learns a tokenizer, fills the token cache, plans its batches and takes some steps.
Counted is the highest resident memory (VmHWM), which includes pages of mapped files that are held at that moment; and,
seen every few milliseconds, what of it is the process's own (RssAnon).

As a program, `python -m benchmarks.corpus_memory TASK FILE OUT` is one such run; it prints the two as JSON.
"""

from __future__ import annotations

import gzip
import json as jsons
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from multihead import config as runs
from multihead.machine import memory
from multihead.recipes import recipe
from multihead.training.run import TrainingRun

TASKS = ("generate", "mask", "denoise")
BAR = 200 * 2**20  # bytes that the largest text may take more than the smallest
MB = 10**6
WORDS = 200_000  # that are made up; the commonest are many times as frequent as most
LINE = 12  # words of a made line
EVERY = 0.005  # seconds between looks at the process's own memory
RUN = """
task = "{task}"
out = {out}
[data]
train = {text}
valid = {valid}
[tokenizer]
kind = "char"
[model]
dim = 64
layers = 2
heads = 2
max_length = 128
[train]
steps = 20
batch_tokens = 4096
eval_rows = 1
precision = "fp32"
"""


@dataclass(frozen=True)
class CorpusResult:
    """One run: bytes of text, and of memory at the highest."""

    task: str
    text: int
    peak: int
    own: int


@dataclass(frozen=True)
class CorpusReport:
    lines: list[CorpusResult]

    def more(self, line: CorpusResult) -> int:
        """Bytes above the smallest text of the same task."""
        return line.peak - min((one for one in self.lines if one.task == line.task), key=lambda one: one.text).peak

    @property
    def holds(self) -> bool:
        return all(self.more(line) < BAR for line in self.lines)

    def json(self) -> str:
        lines = [{**asdict(line), "more": self.more(line)} for line in self.lines]
        return jsons.dumps({"holds": self.holds, "bar": BAR, "lines": lines}, indent=1)


def write_text(path: Path, size: int) -> None:
    """So many bytes: lines of Shakespeare's and lines of made words, half and half; about 60 bytes a line."""
    with path.open("wb") as file:
        for block in _blocks():
            file.write(block[: size - file.tell()])
            if file.tell() >= size:
                return


def _blocks() -> Iterator[bytes]:
    draw = np.random.Generator(np.random.PCG64(0))
    bundled = recipe("shakespeare") / "tinyshakespeare.txt.gz"
    played = [line for line in gzip.decompress(bundled.read_bytes()).decode().split("\n") if line]
    letters = np.array(list("etaoinshrdlu"))
    words = np.array(["".join(letters[draw.integers(0, 12, 2 + draw.poisson(4))]) for _ in range(WORDS)])
    chances = np.cumsum(1 / np.arange(2, WORDS + 2))
    while True:
        chosen = words[np.searchsorted(chances, draw.random(20_000 * LINE) * chances[-1])].tolist()
        made = [" ".join(chosen[i : i + LINE]) for i in range(0, len(chosen), LINE)]
        both = [*made, *(played[i] for i in draw.integers(0, len(played), len(made)))]
        yield "".join(both[i] + "\n" for i in draw.permutation(len(both))).encode()


def run(tasks: Sequence[str], sizes: Sequence[int], out: Path | None, json: bool) -> int:
    """Measure, print, save; 0 when the bar holds, 1 when it does not. sizes: megabytes."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        shown = progress.add_task("", total=len(tasks) * len(sizes))

        def tick(now: str, done: int = 0) -> None:
            progress.update(shown, description=now, advance=done)

        report = CorpusReport(list(measure(tasks, sizes, tick)))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "corpus.json").write_text(report.json(), encoding="utf-8")
    if json:
        print(report.json())
    else:
        show(report, Console())
    return 0 if report.holds else 1


def measure(tasks: Sequence[str], sizes: Sequence[int], tick: Callable[..., None]) -> Iterator[CorpusResult]:
    with tempfile.TemporaryDirectory() as scratch:
        for size in sorted(sizes):
            text = Path(scratch) / "text.txt"
            tick(f"writing {size:,} MB of text")
            write_text(text, size * MB)
            for task in tasks:
                tick(f"{task}, {size:,} MB")
                out = Path(scratch) / f"{task}-{size}"
                found = peaks(task, text, out)
                shutil.rmtree(out)
                tick(f"{task}, {size:,} MB", 1)
                yield CorpusResult(task, size * MB, found["peak"], found["own"])


def peaks(task: str, text: Path, out: Path) -> dict[str, int]:
    """One run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.corpus_memory", task, str(text), str(out)]
    child = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if child.returncode:
        raise ValueError(f"{task} on {text} died: {child.stderr.strip()[-2000:]}")
    found: dict[str, int] = jsons.loads(child.stdout.splitlines()[-1])
    return found


def train_watched(task: str, text: Path, out: Path) -> dict[str, int]:
    """Train for some steps, watching this process's memory."""
    out.mkdir(parents=True)
    valid = out / "valid.txt"
    write_text(valid, 20_000)
    names = {"out": jsons.dumps(str(out / "run")), "text": jsons.dumps(str(text)), "valid": jsons.dumps(str(valid))}
    most, done = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(EVERY):
            most = max(most, _own_memory())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    for _ in TrainingRun(runs.read(RUN.format(task=task, **names))):
        pass
    done.set()
    watcher.join()
    return {"peak": memory.peak_bytes(), "own": most}


def _own_memory() -> int:
    """Memory of this process that is no file's; all of it where that cannot be told apart."""
    try:
        return int(Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        return memory.resident_bytes()


def show(report: CorpusReport, console: Console) -> None:
    caption = f"Peak: highest resident memory, mapped files included. Bar: less than {BAR / 2**20:.0f} MB more."
    table = Table(title="Memory of training on running text", caption=caption)
    for column in ("task", "text, MB", "peak, MB", "of it own, MB", "more, MB", ""):
        table.add_column(column, justify="left" if column in ("task", "") else "right")
    for line in report.lines:
        more = report.more(line)
        verdict = "[green]ok[/]" if more < BAR else "[bold red]FAIL[/]"
        cells: list[Any] = [f"{line.text / MB:,.0f}", *(f"{part / 2**20:,.0f}" for part in (line.peak, line.own, more))]
        table.add_row(line.task, *cells, verdict)
    console.print(table)


if __name__ == "__main__":
    sys.stdout.write(jsons.dumps(train_watched(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))) + "\n")
