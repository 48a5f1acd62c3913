"""Links that lie where a run writes: nothing is written through them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from multihead.cli.train import run_training
from multihead.config import read

SETTINGS = {"steps": 12, "save_every": 4, "eval_every": 2}
FILES = (".lock", "run.toml", "log.jsonl", "metrics.json", "report.html")
FOLDERS = ("tensorboard", "cache", "checkpoints", "best", "model")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("kind", ["link", "dangling link", "hard link"])
@pytest.mark.parametrize("name", [*FILES, *FOLDERS, "model/config.json", "model/multihead.json", "checkpoints/step-4",
                                  "checkpoints/.step-4.partial", "best/.step-4.partial"])  # fmt: skip
def test_nothing_is_written_through_a_link(runs, name, kind):
    """As a command would: train and report. It ends well, or by one line that names the link."""
    folder = name in FOLDERS or "step-" in name
    if kind == "hard link" and folder:
        pytest.skip("directories have none")
    victim = runs.directory / "victims" / "victim"
    victim.parent.mkdir()
    if kind != "dangling link":
        victim.mkdir() if folder else victim.write_text("precious")
        if folder:
            (victim / "keep").write_text("precious")
    planted = runs.directory / "run" / name
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.hardlink_to(victim) if kind == "hard link" else planted.symlink_to(victim)
    before = content(victim.parent)
    fault = ""
    try:
        assert run_training(read(runs.text("run", **SETTINGS))) == 0
    except ValueError as error:
        fault = str(error)
    assert content(victim.parent) == before
    assert not fault or (str(planted) in fault and "\n" not in fault), fault


def test_a_link_at_the_lock_is_told(runs, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(ValueError, match=r"\.lock: a symbolic link, and nothing is written through one; remove it"):
        runs.make("run", **SETTINGS)
    (tmp_path / "run" / ".lock").unlink()
    os.mkfifo(tmp_path / "run" / ".lock")
    with pytest.raises(ValueError, match=r"\.lock: is not a regular file"):
        runs.make("run", **SETTINGS)


def test_the_run_directory_itself_may_be_a_link(runs, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    runs.whole("run", **SETTINGS)
    assert (tmp_path / "disk" / "model" / "multihead.json").exists()


def test_the_fresh_start_removes_links_and_not_what_they_lead_to(runs, tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "keep").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "victim")
    runs.make("run", fresh=True, **SETTINGS)
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert (tmp_path / "victim" / "keep").read_text() == "precious"
