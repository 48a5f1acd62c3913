"""SIGINT and SIGTERM at many moments of real commands: the right exit code, a line at most, never lost."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
HANG = 120  # seconds
# As the console script, with a line that tells when signals are caught: Python's own start-up cannot be covered.
START = """
import sys
from multihead.cli import signals
before = signals.catch_signals
def caught():
    before()
    sys.stderr.write("caught\\n")
    sys.stderr.flush()
signals.catch_signals = caught
from multihead.cli.main import main
sys.exit(main())
"""
RUN = """task = "classify"
out = "run"
[data]
train = "train.csv"
text = "review"
label = "verdict"
[tokenizer]
kind = "wordpiece"
vocab = 200
[model]
dim = 16
layers = 1
heads = 2
max_length = 32
[train]
steps = 4
threads = 1
precision = "fp32"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, multihead, reviews) -> Path:
    path: Path = tmp_path_factory.mktemp("signals")
    (path / "train.csv").write_text(reviews(100, 0), encoding="utf-8")
    (path / "many.csv").write_text(reviews(20_000, 1), encoding="utf-8")
    (path / "run.toml").write_text(RUN, encoding="utf-8")
    done = multihead("train", "run.toml", cwd=path)
    assert done.returncode == 0, done.stderr
    return path


VERBS = {
    "predict": ["predict", "run/model", "many.csv", "text=review"],
    "evaluate": ["evaluate", "run/model", "many.csv"],
    "train": ["train", "run.toml", "out=long", "--fresh", "train.steps=100000"],
}


def stop(folder: Path, verb: str, number: signal.Signals, delay: float, *more: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command that got a signal so long after it began to catch them."""
    command = [sys.executable, "-c", START, *VERBS[verb], *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == "caught\n"
        time.sleep(delay)
        assert child.poll() is None, "it was done before the signal came: give it more to do"
        child.send_signal(number)
        out, errors = child.communicate(timeout=HANG)
    return child.returncode, out, errors


def check(folder: Path, verb: str, delays: list[float]) -> None:
    for turn, delay in enumerate(delays):
        number = (signal.SIGINT, signal.SIGTERM)[turn % 2]
        code, out, errors = stop(folder, verb, number, delay)
        assert code == CODES[number], (delay, number, code, errors)
        assert "Traceback" not in errors + out
        assert "ignored" not in errors
        assert len(errors.splitlines()) <= 1, (delay, errors)


@pytest.mark.parametrize("verb", VERBS)
def test_at_a_few_moments(folder: Path, verb: str) -> None:
    check(folder, verb, [0.0, 0.15, 0.4, 0.9])


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_at_forty_moments(folder: Path, verb: str) -> None:
    check(folder, verb, [3.0 * turn / 40 for turn in range(40)])


def test_the_printed_command_goes_on_from_anywhere(folder: Path, tmp_path: Path) -> None:
    """Whole, whatever the directory is called, and in a narrow terminal."""
    out = folder / "a [red] name" / ("long" * 20)
    first = [sys.executable, "-c", START, *VERBS["train"], f"out={out}"]
    with subprocess.Popen(first, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        until = time.monotonic() + HANG
        while not (out / "log.jsonl").exists() and child.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        child.send_signal(signal.SIGTERM)
        text, _ = child.communicate(timeout=HANG)
    command = re.search(r"^stopped and saved; to resume: multihead (train .+)$", text, re.MULTILINE)
    assert command, text
    again = [sys.executable, "-c", START, *shlex.split(command[1])]
    with subprocess.Popen(again, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        line = next((line for line in child.stdout if "going on" in line), "")
        child.send_signal(signal.SIGTERM)
    assert re.match(r"going on from step \d+", line)
    assert list(tmp_path.iterdir()) == []


SWALLOWING = """
import os, signal, sys, types
from multihead.cli import app as cli, main
app = cli.verb()
@app.command()
def swallow() -> None:
    {body}
    print("went on")
sys.modules["swallow"] = types.ModuleType("swallow")
sys.modules["swallow"].app = app
main.VERBS["doctor"] = ("swallow", "")
main.main()
"""


@pytest.mark.parametrize(
    "body",
    [
        "class Owner:\n        def __del__(self): os.kill(os.getpid(), signal.SIGTERM)\n    Owner()",
        "import atexit; atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM)); return",
        "try: os.kill(os.getpid(), signal.SIGTERM)\n    except: pass",
    ],
    ids=["__del__", "atexit", "a bare except"],
)
def test_where_an_exception_would_be_dropped(body: str) -> None:
    command = [sys.executable, "-c", SWALLOWING.format(body=body), "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    assert done.returncode in (143, -signal.SIGTERM)  # a shell calls both 143
    assert "Traceback" not in done.stderr


def test_a_reader_that_does_not_read_cannot_hold_it(folder: Path) -> None:
    command = [sys.executable, "-c", START, *VERBS["predict"]]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        time.sleep(6)  # the pipe is full by now
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=HANG) == 143
