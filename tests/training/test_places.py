"""The copy of the run file in `out` means the same run from every directory, and never another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from multihead.config import difference, read
from multihead.training.events import Resumed
from multihead.training.loop import StepRecord
from multihead.training.run import TrainingRun


@pytest.fixture
def project(runs, monkeypatch) -> Path:
    """A directory as people have them: data, a model and a run file, whose paths are relative."""
    runs.bert()
    text = runs.text("", start=Path("bert-0"))
    text = text.replace(f'out = "{runs.directory}"', 'out = "runs/x"').replace(str(runs.data), runs.data.name)
    (runs.directory / "run.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(runs.directory)
    assert str(runs.directory) not in text
    return runs.directory


@pytest.fixture
def elsewhere(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


def stop_at(training: TrainingRun, step: int) -> None:
    for event in training:
        if isinstance(event, StepRecord) and event.step == step:
            training.stop = True


def resumed_at(training: TrainingRun) -> list[int]:
    events = list(training)
    training.finish(replicates=0)
    return [event.step for event in events if isinstance(event, Resumed)]


def test_the_saved_copy_goes_on_from_another_directory(project, elsewhere, runs, monkeypatch):
    assert resumed_at(TrainingRun(read("run.toml", ["out=runs/whole"]))) == []
    stop_at(TrainingRun(read("run.toml")), 7)
    monkeypatch.chdir(elsewhere)
    training = TrainingRun(read(project / "runs/x/run.toml"))
    assert resumed_at(training) == [7]
    assert list(elsewhere.iterdir()) == [], "nothing was begun here"
    assert runs.fingerprint("runs/x") == runs.fingerprint("runs/whole")


def test_the_same_run_file_from_two_directories_is_one_run(project, elsewhere, monkeypatch):
    """`from` was "bert-0" in one of them and an absolute path in the other: a difference that was none."""
    out = f"out={project / 'runs/x'}"
    stop_at(TrainingRun(read("run.toml", [out])), 7)
    monkeypatch.chdir(elsewhere)
    assert resumed_at(TrainingRun(read(project / "run.toml", [out]))) == [7]
    (elsewhere / "link").symlink_to(project)
    assert difference(read(project / "runs/x/run.toml"), read("link/run.toml", [out])) == []
    (elsewhere / "bert-0").mkdir()  # another model of that name is a difference
    (line,) = difference(read(project / "runs/x/run.toml"), read(project / "run.toml", [out]))
    assert line == f'from: "{project / "bert-0"}" -> "bert-0"'


def test_a_run_that_was_moved_asks_where_to_go_on(project, elsewhere, monkeypatch):
    stop_at(TrainingRun(read("run.toml")), 7)
    moved = (project / "runs/x").rename(elsewhere / "moved")
    with pytest.raises(
        ValueError, match=r"but the checkpoints are next to this file \(was the run moved\?\)"
    ) as caught:
        read(moved / "run.toml")
    message = str(caught.value)
    assert "\n" not in message
    assert f"to resume here, add out={moved}; to train there, add out={project / 'runs/x'}" in message
    assert resumed_at(TrainingRun(read(moved / "run.toml", [f"out={moved}"]))) == [7]
    assert not (project / "runs/x").exists()
    assert read(moved / "run.toml").out == str(moved), "it knows its new place from now on"


def test_a_copy_of_an_older_version_asks_from_another_directory(project, elsewhere, monkeypatch):
    """Those have the `out` that was typed."""
    stop_at(TrainingRun(read("run.toml")), 7)
    saved = project / "runs/x/run.toml"
    saved.write_text(saved.read_text("utf-8").replace(f'out = "{project / "runs/x"}"', 'out = "runs/x"'), "utf-8")
    assert read(saved).out == "runs/x", "where it was started, it is right"
    monkeypatch.chdir(elsewhere)
    with pytest.raises(ValueError, match="to resume here, add out="):
        read(saved)
    assert read(saved, ["out=new"]).out == "new", "what is typed is meant"


def test_the_home_directory(monkeypatch, tmp_path):
    """A directory called ~ was made."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read('task = "ner"\nout = "~/runs"\ndata.train = "x"\n').out == str(tmp_path / "runs")
