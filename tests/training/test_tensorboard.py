"""What TensorBoard reads back: every step once, also after a run was stopped and taken up again."""

from __future__ import annotations

import sys
import time

import pytest

STEPS = list(range(1, 25))


def points(directory) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(directory), {"scalars": 0}).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_every_step_once(runs):
    runs.whole("whole")
    want = points(runs.directory / "whole" / "tensorboard")
    assert {"loss", "lr", "norm", "tokens per second", "valid/accuracy"} <= want.keys()
    assert [step for step, _ in want["loss"]] == STEPS
    assert [step for step, _ in want["valid/accuracy"]] == [8, 16, 24]
    steps = [record for record in runs.log("whole") if "loss" in record]
    for name in ("loss", "lr", "norm"):
        assert [value for _, value in want[name]] == pytest.approx([record[name] for record in steps], rel=1e-6)

    for stop_at in (3, 12, 17):  # before the first checkpoint; then behind one, with points that are not to stay
        run = iter(runs.make("run"))
        next(event for event in run if getattr(event, "step", 0) == stop_at)
        run.close()  # all is on the disk, more than a kill leaves
        time.sleep(1.01)  # files are read in the order of their names: the second, then a counter whose 10 is before 9
    runs.whole("run")
    have = points(runs.directory / "run" / "tensorboard")
    del want["tokens per second"], have["tokens per second"]
    assert have == want
    assert len(list((runs.directory / "run" / "tensorboard").iterdir())) == 4


def test_starting_over_takes_old_curves_away(runs):
    runs.whole("run", steps=6)
    run = runs.make("run", steps=6, fresh=True)
    assert not (run.out / "tensorboard").exists()


def test_without_tensorboard_nothing_is_written(runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as Python knows a module that cannot be imported
    runs.whole("run", steps=6)
    assert not (runs.directory / "run" / "tensorboard").exists()
