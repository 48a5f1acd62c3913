"""Runs on a small file: exact resume after any stop, one writer, damaged checkpoints, bad numbers."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import torch

from multihead.training import checkpoints
from multihead.training.events import Evaluated, Resumed, Saved
from multihead.training.lock import lock_directory
from multihead.training.loop import StepRecord
from multihead.training.run import TrainingRun

WAYS = {
    "plain": {},
    "ema": {"average": "ema"},
    "last": {"average": "checkpoints", "keep_checkpoints": 3},
    "frozen": {"freeze": 1},
    "low rank": {"lora": 2},
    "low rank, averaged": {"lora": 2, "average": "ema"},
    "smoothed": {"smoothing": 0.1},
    "agreeing": {"rdrop": 2.0},
    "patient": {"patience": 1, "eval_every": 2},
}


@pytest.mark.parametrize("way", WAYS)
def test_stopped_anywhere_it_goes_on_bit_for_bit(runs, way):
    settings = WAYS[way] | ({"start": runs.bert()} if "lora" in WAYS[way] else {})
    want = runs.whole("whole", **settings)
    for stop_at in (1, 5, 7, 8, 23):
        out = f"stopped-{stop_at}"
        run = runs.make(out, **settings)
        for event in run:
            if getattr(event, "step", 0) == stop_at and not isinstance(event, Saved | Evaluated):
                break  # as a kill would: nothing more is written
        torch.manual_seed(stop_at)  # nothing may hang on the state of a generator
        assert runs.whole(out, **settings) == want
        assert runs.log(out) == runs.log("whole")


@pytest.mark.parametrize("way", ["plain", "last"])
def test_a_signal_saves_and_a_second_stop_in_between_is_no_harm(runs, way):
    want = runs.whole("whole", **WAYS[way])
    for stop_at in (3, 4, 11, 21, 22):
        run = runs.make("run", **WAYS[way])
        for event in run:
            run.stop = getattr(event, "step", 0) >= stop_at
        assert checkpoints.list_steps(run.out / "checkpoints")[-1] == stop_at
    assert runs.whole("run", **WAYS[way]) == want
    assert runs.log("run") == runs.log("whole")


def test_other_data_is_no_reason_to_go_on(runs):
    """Labels were taken in their new order: what was good came out as bad."""
    runs.whole("run")
    text = runs.data.read_text(encoding="utf-8")
    runs.data.write_text(text.replace(",good", ",approve"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"labels or tokenizer have changed since step 24; start over with --fresh"):
        next(iter(runs.make("run")))
    runs.data.write_text(text, encoding="utf-8")
    runs.whole("run")


def test_nobody_else_writes_while_the_model_is_scored_and_written(runs, monkeypatch):
    run = runs.make("run")
    for _ in run:
        pass
    told = []

    def listener(values, prediction, right):
        with pytest.raises(ValueError, match="is training here"):
            runs.make("run", fresh=True)
        told.append(right)

    run.finish(replicates=0, on_row={"valid": listener})
    assert told


def test_a_mean_without_a_best_is_taken(runs):
    settings = {"average": "checkpoints", "keep_checkpoints": 3}
    runs.whole("run", **settings)
    shutil.rmtree(runs.directory / "run" / "best")
    last = list(runs.make("run", **settings))[-1]
    assert isinstance(last, Evaluated)
    assert last.best


def test_a_run_that_had_enough_takes_no_step_more(runs):
    """Killed between its last checkpoint and the end, it used to take one."""
    settings = {"patience": 1, "eval_every": 2, "steps": 100}
    run = runs.make("run", **settings)
    last = [event for event in run if isinstance(event, StepRecord)][-1].step
    assert last < 100
    run = runs.make("run", **settings)
    assert [event for event in run if isinstance(event, StepRecord)] == []
    run.finish(replicates=0)
    assert runs.log("run")[-1]["step"] == last


@pytest.mark.usefixtures("whole_tables")
@pytest.mark.parametrize("way", [{}, {"average": "ema"}, {"average": "checkpoints", "keep_checkpoints": 3}])
def test_with_nothing_held_out_every_row_is_learnt_and_the_last_weights_are_kept(runs, way):
    data = ("data.hold_out=false", f"data.test={runs.data}")
    run = runs.make("run", *data, **way)
    assert len(run.only_task.sides) == 2
    assert len(run.examples.sizes) == sum(1 for _ in run.only_task.readings["train"])
    events = list(run)
    assert not any(isinstance(event, Evaluated) for event in events)
    last = checkpoints.open_checkpoint(run.out / "checkpoints" / "step-24").tensors
    want = run.mean if "keep_checkpoints" in way else last["average" if way else "model"]
    again = runs.make("run", *data, **way)  # as after a kill between the last step and the end
    assert not any(isinstance(event, StepRecord) for event in again)
    for one in (run, again):
        one.finish(replicates=0)
        assert one.scores.keys() == {"test"}
        got = checkpoints.model_tensors(one.model)
        assert all(torch.equal(got[name], want[name]) for name in want)
    assert not way or any(not torch.equal(last["model"][name], want[name]) for name in want)


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(runs):
    want = runs.whole("whole")
    for damage in ("flip", "cut", "missing", "state"):
        run = runs.make(damage)
        for event in run:
            if getattr(event, "step", 0) == 17:
                break
        newest = run.out / "checkpoints" / "step-15"
        file = newest / ("state.json" if damage == "state" else "model.safetensors")
        raw = bytearray(file.read_bytes())
        raw[-9] ^= 4
        if damage == "missing":
            file.unlink()
        else:
            file.write_bytes(bytes(raw[:-20]) if damage == "cut" else bytes(raw))
        first = next(iter(runs.make(damage)))
        assert isinstance(first, Resumed)
        assert first.step == 10
        assert "step-15" in first.notes[0]
        assert runs.whole(damage) == want


def test_from_python(runs, tmp_path):
    import multihead as mh

    (tmp_path / "run.toml").write_text(runs.text("run"), encoding="utf-8")
    run = mh.train(tmp_path / "run.toml", "train.steps=30")
    written = json.loads((run.out / "metrics.json").read_text(encoding="utf-8"))
    assert written["valid"]["accuracy"]["value"] == run.scores["valid"]["accuracy"].value
    model = mh.load(tmp_path / "run" / "model")
    (said,) = model.predict(["lovely great film"])
    assert said == run.loaded.predict(["lovely great film"])[0]
    with mh.watch(model.model) as seen:
        model.predict(["lovely great film"])
    assert seen[0].weights("encoder.1.self.1").shape[0] == len(seen[0].tokens)


def test_other_settings_are_refused_but_more_steps_are_not(runs):
    runs.whole("run", steps=8)
    with pytest.raises(ValueError, match=r"train\.lr.*--fresh"):
        runs.make("run", steps=8, lr=1e-3)
    runs.make("run", steps=9)
    run = runs.make("run", lr=1e-3, fresh=True)
    assert checkpoints.list_steps(run.out / "checkpoints") == []
    assert run.order.steps == 24


def test_keys_without_effect_are_refused(runs):
    with pytest.raises(ValueError, match=r"torch .* sees cpu here; use one of these"):
        runs.make("run", "device=cuda")
    with pytest.raises(ValueError, match=r"train\.lora.*from scratch"):
        runs.make("run", lora=4)
    with pytest.raises(ValueError, match=r"leaves no data for evaluation; set data\.test"):
        runs.make("run", "data.hold_out=false")
    with pytest.raises(ValueError, match=r"hold_out.*data\.valid"):
        runs.make("run", "data.hold_out=false", f"data.valid={runs.data}")
    with pytest.raises(ValueError, match=r"train\.patience.*hold_out"):
        runs.make("run", "data.hold_out=false", f"data.test={runs.data}", patience=1)


def test_smoothing_beside_a_loss_without_classes_is_refused(tmp_path):
    from multihead.config import read

    file = tmp_path / "pairs.csv"
    file.write_text("text_a,text_b,label\n" + "a,b,1.5\nc,d,2.5\n" * 20)
    text = f'task = "match"\nout = "{tmp_path / "run"}"\n[data]\ntrain = "{file}"\n[match]\ntarget = "score"\n'
    with pytest.raises(ValueError, match=r"train\.smoothing.*match\.target = score"):
        TrainingRun(read(text, ["train.smoothing=0.1"]))
    with pytest.raises(ValueError, match=r"train\.rdrop supports .*not match\.target = score"):
        TrainingRun(read(text, ["train.rdrop=1"]))
    text = f'task = "mask"\nout = "{tmp_path / "run"}"\n[data]\ntrain = "{file}"\n'
    with pytest.raises(ValueError, match=r"train\.rdrop supports .*not task = mask"):
        TrainingRun(read(text, ["train.rdrop=1"]))


def test_rows_that_must_agree_are_read_twice_with_other_dropout(runs):
    """And what is said of a row twice is nearer together in the end than without."""
    apart = {}
    for agree in (0.0, 20.0):
        run = runs.make(f"run-{agree}", rdrop=agree, steps=30, lr=3e-3)
        steps = [event for event in run if isinstance(event, StepRecord)]
        task, model = run.task, run.loaded.model.train()
        batch = task.collate([run.examples[row] for row in range(32)] * 2)
        torch.manual_seed(0)
        p, q = task.logits(model, batch).softmax(-1).detach().chunk(2)
        apart[agree] = float((p - q).abs().mean())
        apart[f"tokens {agree}"] = sum(step.tokens for step in steps)
    assert apart["tokens 20.0"] == 2 * apart["tokens 0.0"]
    assert 0 < apart[20.0] < 0.9 * apart[0.0]


def test_one_writer_per_directory(runs, tmp_path):
    with lock_directory(tmp_path / "run"), pytest.raises(ValueError, match=f"process {os.getpid()} on"):
        next(iter(runs.make("run")))
    next(iter(runs.make("run")))


def test_gradients_that_are_not_finite_teach_nothing_and_stop_the_run(runs):
    run = runs.make("run", steps=40, eval_every=100)
    steps, before = [], run.model.readout.scores.weight

    def go_on() -> None:
        nonlocal before
        for event in run:
            if isinstance(event, StepRecord):
                steps.append(event)
                if event.step == 6:
                    before = run.model.readout.scores.weight.detach().clone()
                    run.model.body.stem.embedding.weight.data[:] = float("inf")

    with pytest.raises(ValueError, match=r"not finite.*train\.lr"):
        go_on()
    assert not any(step.skipped for step in steps[:6])
    assert all(step.skipped for step in steps[6:])
    assert torch.equal(run.model.readout.scores.weight, before)


def test_the_cache_of_tokens_is_used_again_and_follows_the_data(runs):
    cache = runs.make("run").out / "cache"
    made = sorted(cache.iterdir())
    runs.make("run")
    assert sorted(cache.iterdir()) == made
    runs.data.write_text(runs.data.read_text(encoding="utf-8") + "one more film,good\n", encoding="utf-8")
    runs.make("run")
    assert sum(path.is_dir() for path in cache.iterdir()) == 2


def test_what_was_freed_is_given_back_once_much_is_held(runs, monkeypatch):
    given = []
    monkeypatch.setattr("multihead.machine.memory.release_freed_memory", lambda: given.append(1))
    for room, times in ((2**60, 0), (0, 3)):
        run = runs.make(f"run-{room}", steps=3)
        run.room = room
        list(run)
        assert len(given) == times
