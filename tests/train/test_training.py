"""Runs on a small file: exact resume after any stop, one writer, damaged checkpoints, bad numbers."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from multihead.run import read
from multihead.train import checkpoints
from multihead.train.lock import only_writer
from multihead.train.loop import Step
from multihead.train.training import Evaluated, Resumed, Saved, Training

GOOD, BAD = ["fine", "lovely", "great", "warm", "很好"], ["dull", "cold", "poor", "slow", "很差"]


@pytest.fixture
def data(tmp_path):
    pick = random.Random(0)
    lines = ["text,label"]
    for _ in range(120):
        good = pick.random() < 0.5
        words = pick.choices(GOOD if good else BAD, k=pick.randint(1, 3)) + pick.choices(["film", "plot", "end"], k=2)
        pick.shuffle(words)
        lines.append(f"{' '.join(words)},{'good' if good else 'bad'}")
    file = tmp_path / "train.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def run_text(data: Path, out: Path, **train) -> str:
    settings = {"steps": 24, "batch_tokens": 160, "lr": 3e-3, "save_every": 5, "eval_every": 8, "threads": 1} | train
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    return (
        f'task = "classify"\nout = "{out}"\n[data]\ntrain = "{data}"\n[tokenizer]\nkind = "wordpiece"\nvocab = 200\n'
        "[model]\ndim = 16\nlayers = 2\nheads = 2\nmax_length = 32\n[train]\n" + "\n".join(lines)
    )


def training(data: Path, out: Path, fresh: bool = False, **train) -> Training:
    return Training(read(run_text(data, out, **train)), fresh=fresh)


def fingerprint(out: Path) -> str:
    return hashlib.sha256((out / "model" / "model.safetensors").read_bytes()).hexdigest()


def log(out: Path) -> list[dict]:
    records = [json.loads(line) for line in (out / "log.jsonl").read_text().split("\n") if line]
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


def whole(data: Path, out: Path, **train) -> str:
    run = training(data, out, **train)
    for _ in run:
        pass
    run.finish(replicates=0)
    return fingerprint(out)


@pytest.mark.parametrize("average", ["none", "ema"])
def test_stopped_anywhere_it_goes_on_bit_for_bit(data, tmp_path, average):
    want = whole(data, tmp_path / "whole", average=average)
    for stop_at in (1, 5, 7, 8, 23):
        out = tmp_path / f"stopped-{stop_at}"
        run = training(data, out, average=average)
        for event in run:
            if getattr(event, "step", 0) == stop_at and not isinstance(event, Saved | Evaluated):
                break  # as a kill would: nothing more is written
        torch.manual_seed(stop_at)  # nothing may hang on the state of a generator
        assert whole(data, out, average=average) == want
        assert log(out) == log(tmp_path / "whole")


def test_a_signal_saves_and_a_second_stop_in_between_is_no_harm(data, tmp_path):
    want = whole(data, tmp_path / "whole")
    out = tmp_path / "run"
    for stop_at in (3, 4, 11):
        run = training(data, out)
        for event in run:
            run.stop = getattr(event, "step", 0) >= stop_at
        assert checkpoints.steps(out / "checkpoints")[-1] == stop_at
    assert whole(data, out) == want


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(data, tmp_path):
    want = whole(data, tmp_path / "whole")
    for damage in ("flip", "cut", "missing", "state"):
        out = tmp_path / damage
        run = training(data, out)
        for event in run:
            if getattr(event, "step", 0) == 17:
                break
        newest = out / "checkpoints" / "step-15"
        file = newest / ("state.json" if damage == "state" else "model.safetensors")
        raw = bytearray(file.read_bytes())
        raw[-9] ^= 4
        if damage == "missing":
            file.unlink()
        else:
            file.write_bytes(bytes(raw[:-20]) if damage == "cut" else bytes(raw))
        run = training(data, out)
        first = next(iter(run))
        assert isinstance(first, Resumed)
        assert first.step == 10
        assert "step-15" in first.notes[0]
        assert whole(data, out) == want


def test_from_python(data, tmp_path):
    import multihead as mh

    (tmp_path / "run.toml").write_text(run_text(data, tmp_path / "run"), encoding="utf-8")
    run = mh.train(tmp_path / "run.toml", "train.steps=30")
    written = json.loads((run.out / "metrics.json").read_text(encoding="utf-8"))
    assert written["valid"]["accuracy"]["value"] == run.scores["valid"]["accuracy"].value
    model = mh.load(tmp_path / "run" / "model")
    (said,) = model.predict(["lovely great film"])
    assert said == run.loaded.predict(["lovely great film"])[0]
    with mh.watch(model.model) as seen:
        model.predict(["lovely great film"])
    assert seen[0].weights("encoder.1.self.1").shape[0] == len(seen[0].tokens)


def test_other_settings_are_refused_but_more_steps_are_not(data, tmp_path):
    out = tmp_path / "run"
    whole(data, out, steps=8)
    with pytest.raises(ValueError, match=r"train\.lr.*--fresh"):
        training(data, out, steps=8, lr=1e-3)
    training(data, out, steps=9)
    run = training(data, out, lr=1e-3, fresh=True)
    assert checkpoints.steps(out / "checkpoints") == []
    assert run.order.steps == 24


@pytest.mark.parametrize(
    "key", ["train.lora=4", "train.freeze=1", "train.smoothing=0.1", "device=cuda", "train.compile=true"]
)
def test_keys_without_effect_are_refused(data, tmp_path, key):
    with pytest.raises(ValueError, match="not built yet"):
        Training(read(run_text(data, tmp_path / "run"), [key]))


def test_one_writer_per_directory(data, tmp_path):
    out = tmp_path / "run"
    with only_writer(out), pytest.raises(ValueError, match=f"process {os.getpid()} on"):
        next(iter(training(data, out)))
    next(iter(training(data, out)))


def test_gradients_that_are_not_finite_teach_nothing_and_stop_the_run(data, tmp_path):
    run = training(data, tmp_path / "run", steps=40, eval_every=100)
    steps, before = [], run.model.readout.scores.weight

    def go_on() -> None:
        nonlocal before
        for event in run:
            if isinstance(event, Step):
                steps.append(event)
                if event.step == 6:
                    before = run.model.readout.scores.weight.detach().clone()
                    run.model.body.stem.embedding.weight.data[:] = float("inf")

    with pytest.raises(ValueError, match=r"not finite.*train\.lr"):
        go_on()
    assert not any(step.skipped for step in steps[:6])
    assert all(step.skipped for step in steps[6:])
    assert torch.equal(run.model.readout.scores.weight, before)


def test_the_cache_of_tokens_is_used_again_and_follows_the_data(data, tmp_path):
    out = tmp_path / "run"
    training(data, out)
    made = sorted((out / "cache").iterdir())
    training(data, out)
    assert sorted((out / "cache").iterdir()) == made
    data.write_text(data.read_text() + "one more film,good\n")
    training(data, out)
    assert len(sorted((out / "cache").iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_kill_9_at_random_moments(data, tmp_path, seed):
    """A process that is killed again and again ends with the bytes of one that was not."""
    want = whole(data, tmp_path / "whole")
    out = tmp_path / "killed"
    (tmp_path / "run.toml").write_text(run_text(data, out))
    code = (
        "import sys\nfrom multihead.run import read\nfrom multihead.train.training import Training\n"
        "from pathlib import Path\nrun = Training(read(Path(sys.argv[1])))\nprint('ready', flush=True)\n"
        "for event in run: pass\nrun.finish(replicates=0)\n"
    )
    pick, kills = random.Random(seed), 0
    while True:
        process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run.toml")], stdout=subprocess.PIPE)
        process.stdout.readline()
        if kills < 5:
            time.sleep(pick.random() * 0.6)
            process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        kills += 1
    assert kills >= 1
    assert fingerprint(out) == want
    assert log(out) == log(tmp_path / "whole")
