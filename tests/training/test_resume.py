"""What lies in a run's directory when it is taken up again: damaged files, files of another run, litter."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from multihead.report.build import curves_of, lengths_of
from multihead.training import checkpoints
from multihead.training.events import Note, Resumed
from multihead.training.lock import lock_directory
from multihead.training.log import read_record
from multihead.training.resume import sweep_litter

SETTINGS = {"steps": 12, "save_every": 4, "eval_every": 2}


def flip(path: Path, byte: int = -9) -> None:
    raw = bytearray(path.read_bytes())
    raw[byte] ^= 4
    path.write_bytes(bytes(raw))


def notes(run) -> list[str]:
    return [event.text for event in run if isinstance(event, Note)]


@pytest.mark.parametrize("damage", ["flip", "manifest", "foreign"])
def test_a_damaged_best_model_gives_way_to_the_one_before(runs, damage):
    run = runs.make("run", **SETTINGS)
    list(run)
    best = run.out / "best" / f"step-{run.best['step']}"
    before = checkpoints.list_steps(run.out / "best")[-2]
    if damage == "foreign":
        runs.whole("other", seed=7, **SETTINGS)
        shutil.rmtree(best)
        shutil.copytree(max((runs.directory / "other" / "best").iterdir()), best)
    else:
        flip(best / ("model.safetensors" if damage == "flip" else "manifest.json"))
    again = runs.make("run", **SETTINGS)
    (note,) = notes(again)
    assert str(best) in note
    assert f"falling back to the previous best, step {before}" in note
    again.finish(replicates=0)
    want = checkpoints.open_checkpoint(run.out / "best" / f"step-{before}").tensors["model"]
    assert again.best["step"] == before
    assert all((again.model.state_dict()[name] == want[name]).all() for name in want if "embedding" not in name)
    assert json.loads((run.out / "metrics.json").read_text())["step"] == before


def test_a_best_model_damaged_while_the_run_goes_on_is_told(runs, caplog):
    run = runs.make("run", **SETTINGS)
    list(run)
    flip(run.out / "best" / f"step-{run.best['step']}" / "model.safetensors")
    run.finish(replicates=0)
    assert "checksum mismatch: the file has changed since it was saved; falling back to" in caplog.text


def test_damaged_states_start_over_and_end_well(runs):
    want = runs.whole("run", **SETTINGS)
    for path in (runs.directory / "run" / "checkpoints").iterdir():
        text = (path / "state.json").read_text()
        (path / "state.json").write_text(text.replace('"best"', '"bust"'))
    run = runs.make("run", **SETTINGS)
    first = next(event for event in run if isinstance(event, Resumed))
    assert first.step == 0
    assert all("state.json: checksum mismatch" in fault for fault in first.notes)
    assert runs.whole("run", **SETTINGS) == want


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("what", ["brace", "key", "cache", "tokenizer"])
def test_a_damaged_cache_is_built_again(runs, caplog, what, fresh):
    want = runs.whole("run", **SETTINGS)
    cache = runs.directory / "run" / "cache"
    beside = next(path for path in cache.glob("*.json") if not path.name.startswith("tokenizer"))
    whole = {path.name: path.read_bytes() for path in cache.glob("*.json")}
    if what == "brace":
        flip(beside, 0)
    elif what == "key":
        beside.write_text(beside.read_text().replace('"shapes"', '"shares"'))
    elif what == "cache":
        file = beside.with_suffix("") / "tokens.values"
        file.chmod(0o644)
        flip(file)
    else:
        file = next(cache.glob("tokenizer-*.json"))
        file.write_text(file.read_text().replace("film", "fidm"))
    run = runs.make("run", fresh=fresh, **SETTINGS)
    assert caplog.text.count("again") == 1
    assert str(cache) in caplog.text
    assert {path.name: path.read_bytes() for path in cache.glob("*.json")} == whole
    list(run)
    run.finish(replicates=0)
    assert runs.fingerprint("run") == want


@pytest.mark.parametrize("damage", [b"\xff", b"}", b"\n"])
def test_a_damaged_line_of_the_log_is_left_out_and_told(runs, damage):
    whole = runs.whole("run", **SETTINGS)
    log = runs.directory / "run" / "log.jsonl"
    lines = log.read_bytes().split(b"\n")
    lines[3] = lines[3][:20] + damage + lines[3][21:]
    log.write_bytes(b"\n".join(lines))
    run = runs.make("run", **SETTINGS)
    (note,) = notes(run)
    assert note.startswith(f"{log}:4: damaged line")
    assert len(runs.log("run")) == len(lines) - 2
    run.finish(replicates=0)
    assert runs.fingerprint("run") == whole


def test_every_changed_bit_of_the_log_is_survived(runs):
    """The report draws from what is left of it."""
    run = runs.make("run", **SETTINGS)
    list(run)
    lines = run.log.path.read_bytes().split(b"\n")
    whole = b"\n".join(lines[:3]) + b"\n"  # two steps and an evaluation
    damaged = 0
    for bit in range(8 * len(whole)):
        raw = bytearray(whole)
        raw[bit // 8] ^= 1 << bit % 8
        run.log.path.write_bytes(raw)
        damaged += any(read_record(line) is None for line in bytes(raw).split(b"\n") if line)
        curves = curves_of(run.log.path, "accuracy", run.only_task)
        assert all(isinstance(value, int | float) for curve in curves for value in (*curve.steps, *curve.values))
        lengths_of(run, run.only_task)
    assert damaged > 1000


def test_a_damaged_run_file_is_written_again(runs):
    runs.whole("run", **SETTINGS)
    file = runs.directory / "run" / "run.toml"
    good = file.read_text()
    file.write_text(good.replace("task", "tas\0", 1))
    with pytest.raises(ValueError, match=r"different settings \(train\.seed"):
        runs.make("run", seed=3, **SETTINGS)
    run = runs.make("run", **SETTINGS)
    assert "run.toml:1: invalid TOML" in notes(run)[0]
    assert file.read_text() == good
    shutil.rmtree(run.out / "checkpoints")  # nothing else knows what it said: it may be the user's own
    file.write_text("task")
    with pytest.raises(ValueError, match="--fresh"):
        runs.make("run", **SETTINGS)


def test_a_checkpoint_of_another_run_is_refused(runs):
    runs.whole("run", **SETTINGS)
    runs.whole("other", **SETTINGS, seed=7)
    step = runs.directory / "run" / "checkpoints" / "step-12"
    shutil.rmtree(step)
    shutil.copytree(runs.directory / "other" / "checkpoints" / "step-12", step)
    with pytest.raises(
        ValueError, match=r"step-12: belongs to another run \(train\.seed: 7 -> 1\); remove it"
    ) as caught:
        list(runs.make("run", **SETTINGS))
    assert str(step) in str(caught.value)
    shutil.rmtree(step)
    list(runs.make("run", **SETTINGS))


def test_a_checkpoint_of_another_run_is_left_out_of_a_mean(runs):
    settings = SETTINGS | {"average": "checkpoints", "keep_checkpoints": 3}
    runs.whole("run", **settings)
    runs.whole("other", **settings, seed=7)
    step = runs.directory / "run" / "checkpoints" / "step-8"
    shutil.rmtree(step)
    shutil.copytree(runs.directory / "other" / "checkpoints" / "step-8", step)
    assert any(
        "excluded from the mean" in note and "step-8: belongs to another run" in note
        for note in notes(runs.make("run", **settings))
    )


def test_litter_of_killed_runs_is_removed_and_nothing_else(runs, tmp_path):
    runs.whole("run", **SETTINGS)
    out = tmp_path / "run"
    gone = [".run.toml.99999999.aside", "checkpoints/.step-4.partial", "best/.step-2.removed.partial",
            "model/.config.json.99999999.aside", "model/.tmpa1B2c3", "cache/.x.json.99999999.aside"]  # fmt: skip
    stay = [
        ".mine.html.99999999.aside",
        "model/.config.json.1.aside",
        "notes.partial",
        "checkpoints/.other",
        ".tmpa1B2c3",
    ]
    for name in (*gone, *stay):
        path = out / name
        path.mkdir() if name.endswith(".partial") else path.write_text("x")
    with lock_directory(out), pytest.raises(ValueError, match="is training here"):
        runs.make("run", **SETTINGS)
    assert all((out / name).exists() for name in (*gone, *stay))
    runs.make("run", **SETTINGS)
    assert [name for name in gone if (out / name).exists()] == []
    assert [name for name in stay if not (out / name).exists()] == []


def test_litter_is_not_looked_for_behind_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".step-4.partial").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    sweep_litter(tmp_path / "run")
    assert (tmp_path / "elsewhere" / ".step-4.partial").exists()
