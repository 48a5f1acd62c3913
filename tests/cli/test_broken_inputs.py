"""Some hundred broken files through predict, evaluate, check and the set-up of train: a line that says what is wrong,
never a traceback, and no input without its answer."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from multihead.cli.main import _run
from multihead.cli.train import run_of
from multihead.training.run import TrainingRun

SPEC = importlib.util.spec_from_file_location("broken_files", Path(__file__).parent / "broken_files.py")
assert SPEC is not None
assert SPEC.loader is not None
BROKEN = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(BROKEN)
ROWS, CASES, good = BROKEN.ROWS, list(BROKEN.every()), BROKEN.good
TINY = [
    "model.dim=8", "model.layers=1", "model.heads=2", "model.max_length=64", "tokenizer.vocab=300", "train.steps=1",
    "train.threads=1", "train.precision=fp32",
]  # fmt: skip
HANG = 10  # seconds of computing


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For each task a good file to validate on, and a model that has learnt next to nothing."""
    folder = tmp_path_factory.mktemp("broken")
    for task in ROWS:
        (folder / f"{task}.jsonl").write_bytes(good(task)["jsonl"] * 8)
        training = set_up(folder, task, folder / f"{task}.jsonl", folder / task)
        for _ in training:
            pass
        training.finish(replicates=0)
    return folder


def set_up(folder: Path, task: str, file: Path, out: Path) -> TrainingRun:
    changes = [f"out={out}", f"data.valid={folder / f'{task}.jsonl'}", *TINY]
    return TrainingRun(run_of(changes, task, [str(file)], None), fresh=True)


def code_of(*words: str) -> Any:
    """The exit code of a command; an exception that the command does not expect would be a traceback."""
    with pytest.raises(SystemExit) as caught:
        _run(list(words))
    return caught.value.code or 0


def test_there_are_enough() -> None:
    assert len({(task, name) for task, name, _, _ in CASES}) == len(CASES) >= 400


@pytest.mark.parametrize("task", ROWS)
def test_predict_answers_every_input_or_fails(task: str, place: Path, capfd: Any) -> None:
    for file, count in files(task, place):
        code, (out, errors) = timed(file, "predict", str(place / task / "model"), str(file)), capfd.readouterr()
        answers = [json.loads(line, parse_constant=float_is_no_json) for line in out.split("\n")[:-1]]
        failed = sum("error" in answer for answer in answers)
        assert (code, bool(errors)) == ((1, True) if failed else (code, code == 1 or bool(errors))), (file.name, errors)
        if code == 0 or "inputs could not be read" in errors:
            assert count in (None, len(answers)), (file.name, len(answers), errors)
        else:
            assert file.name in errors, errors


@pytest.mark.slow
@pytest.mark.parametrize("task", ROWS)
def test_evaluate_counts_every_row_or_fails(task: str, place: Path, capfd: Any) -> None:
    for file, count in files(task, place):
        code, (out, errors) = timed(file, "evaluate", str(place / task / "model"), str(file)), capfd.readouterr()
        if code == 1:
            assert file.name in errors, errors
            continue
        rows = re.search(r"^([\d,]+) rows: ([\d,]+) used, ([\d,]+) rejected", out, re.MULTILINE)
        assert rows, (file.name, out)
        assert int(rows[1]) == int(rows[2]) + int(rows[3])
        assert count in (None, int(rows[1])), (file.name, out)


@pytest.mark.slow
@pytest.mark.parametrize("task", ROWS)
def test_train_and_check_agree(task: str, place: Path, capfd: Any) -> None:
    """What train refuses, check stops at."""
    run = place / "check.toml"
    for file, _ in files(task, place):
        model = "[model]\ndim = 8\nlayers = 1\nheads = 2\nmax_length = 64\n[tokenizer]\nvocab = 300\n"
        data = f'train = "{file}"\nvalid = "{place / f"{task}.jsonl"}"\n'
        run.write_text(f'task = "{task}"\nout = "{place / "out"}"\n[data]\n{data}{model}', "utf-8")
        code, (out, errors) = timed(file, "check", str(run)), capfd.readouterr()
        assert "stop" in out or file.name in errors if code == 1 else not errors, (file.name, out, errors)
        refused = refusal(place, task, file)
        named = file.name in refused or "was not seen in training; labels are" in refused  # names the row that has it
        assert not refused or (named and code == 1), (file.name, code, refused)


def refusal(place: Path, task: str, file: Path) -> str:
    try:
        set_up(place, task, file, place / "out")
    except ValueError as error:
        return str(error)
    return ""


def files(task: str, place: Path) -> Any:
    for number, (other, name, data, count) in enumerate(CASES):
        if other == task:
            file = place / f"{number}-{name}"
            file.write_bytes(data)
            yield file, count
            file.unlink()


def timed(file: Path, *words: str) -> Any:
    started = time.process_time()
    code = code_of(*words)
    assert code in (0, 1), file.name
    assert time.process_time() - started < HANG, file.name
    return code


def float_is_no_json(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def given(place: Path, task: str, data: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "multihead", "predict", str(place / task / "model")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, input=data, capture_output=True, check=False, env=environment)


def test_what_is_piped_is_no_text_by_accident(place: Path) -> None:
    """An array, and an object behind a mark that `cat a.jsonl b.jsonl` leaves, were tagged as if they were text."""
    rows = good("ner")
    done = given(place, "ner", rows["json"] + b"\n" + rows["jsonl"] + b"\xef\xbb\xbf" + rows["jsonl"])
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["error" in answer for answer in answers] == [True, False, False, True, False]
    assert done.returncode == 1


def test_a_pipe_with_broken_gzip_data_is_named(place: Path) -> None:
    """It said Aborted!"""
    packed = next(data for task, name, data, _ in CASES if (task, name) == ("ner", "half.conll.gz"))
    done = given(place, "ner", packed)
    assert done.returncode == 1
    assert done.stderr.startswith(b"multihead: -: broken gzip data"), done.stderr
