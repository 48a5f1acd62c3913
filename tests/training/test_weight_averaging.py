"""Averages: the mean of the last checkpoints, taken where it scores no lower than the best step."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from multihead.training import checkpoints
from multihead.training.events import Evaluated, Note, Saved
from multihead.training.weight_averaging import average_checkpoints, checkpoints_to_average, swapped_weights


@given(st.integers(2, 5), st.integers(1, 7), st.integers(1, 40), st.sets(st.integers(1, 39)))
def test_stops_do_not_change_which_checkpoints_count(keep, every, last, stops):
    def kept(extra) -> list[int]:
        """What is on disk after a run that was also stopped at some steps, by the rule of `checkpoints.save`."""
        there: list[int] = []
        for step in range(1, last + 1):
            if step % every == 0 or step == last or step in extra:
                due = [old for old in there if old % every == 0]
                stay = {*there[max(len(there) - keep + 1, 0) :], *due[max(len(due) - keep + 1, 0) :]}
                there = [*(old for old in there if old in stay), step]
        return there

    whole = checkpoints_to_average(kept(set()), keep, every)
    assert checkpoints_to_average(kept(stops), keep, every) == whole
    assert len(whole) == min(keep, len(range(every, last, every)) + 1)
    assert whole[-1] == last


def test_save_keeps_the_due_ones_and_the_newest(tmp_path):
    for step in (5, 10, 12, 13, 15, 17):
        checkpoints.save(tmp_path, step, {}, {}, keep=2, every=5)
        left = checkpoints.list_steps(tmp_path)
    assert left == [15, 17]
    checkpoints.save(tmp_path, 18, {}, {}, keep=2, every=5)
    assert checkpoints.list_steps(tmp_path) == [15, 17, 18]
    checkpoints.save(tmp_path, 20, {}, {}, keep=2, every=5)
    assert checkpoints.list_steps(tmp_path) == [15, 18, 20]


def test_the_mean_is_of_the_files(tmp_path):
    torch.manual_seed(0)
    fixed = torch.randn(3)
    groups = [{"a": torch.randn(2, 3), "fixed": fixed} for _ in range(3)]
    for step, group in enumerate(groups):
        checkpoints.save(tmp_path, step, {"model": group}, {}, keep=3)
    tensors, used, wrong = average_checkpoints(tmp_path, [0, 1, 2])
    assert (used, wrong) == ([0, 1, 2], [])
    assert torch.allclose(tensors["a"], torch.stack([group["a"] for group in groups]).mean(0))
    assert tensors["a"].dtype == torch.float32
    assert torch.equal(tensors["fixed"], fixed)


def test_weights_are_worn_for_a_while_only():
    model = torch.nn.Linear(2, 2)
    own, other = model.weight.detach().clone(), {name: torch.ones_like(t) for name, t in model.state_dict().items()}

    def failing() -> None:
        with swapped_weights(model, other):
            assert torch.equal(model.weight, torch.ones(2, 2))
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert torch.equal(model.weight, own)


@pytest.mark.usefixtures("whole_tables")
@pytest.mark.parametrize("better", [True, False])
def test_the_mean_is_saved_if_it_scores_no_lower(runs, better):
    run = runs.make("run", average="checkpoints", keep_checkpoints=3)
    for event in run:
        if isinstance(event, Saved) and event.step == 24:
            # As if no step, or an earlier one, had been the best by far.
            run.best["score"] = -1.0 if better else 2.0
    assert isinstance(event, Evaluated)
    assert event.mean_of == (15, 20, 24)
    assert event.what == "mean of steps 15, 20, 24"
    assert event.best is better
    run.finish(replicates=0)
    best = checkpoints.open_checkpoint(run.out / "best" / f"step-{run.best['step']}").tensors["model"]
    want = average_checkpoints(run.out / "checkpoints", [15, 20, 24])[0] if better else best
    have = checkpoints.model_tensors(run.model)
    assert all(torch.equal(have[name], want[name]) for name in want)
    told = json.loads((run.out / "metrics.json").read_text())
    assert told.get("mean_of") == ([15, 20, 24] if better else None)
    assert runs.log("run")[-1]["mean_of"] == [15, 20, 24]


def test_a_damaged_checkpoint_is_left_out_and_said(runs):
    run = runs.make("run", average="checkpoints", keep_checkpoints=3)
    events = []
    for event in run:
        events.append(event)
        if isinstance(event, Saved) and event.step == 20:
            file = run.out / "checkpoints" / "step-15" / "model.safetensors"
            file.write_bytes(file.read_bytes()[:-4] + b"\0\1\2\3")
    assert isinstance(events[-2], Note)
    assert "excluded from the mean" in events[-2].text
    assert "step-15" in events[-2].text
    assert events[-1].mean_of == (20, 24)
