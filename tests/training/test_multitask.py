"""Several tasks on one trunk: one run file, one body, a readout each."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import multihead as mh
from multihead.config import difference, read, write
from multihead.inference.engine import predict_rows
from multihead.training.events import Evaluated, Saved
from multihead.training.loop import StepRecord, TrainSettings
from multihead.training.multitask_schedule import MultitaskSchedule
from multihead.training.optimizer import adamw
from multihead.training.run import TrainingRun

from .conftest import HEADERS, MODEL, ROWS, Runs

TEXTS = ["lovely great film", "dull", "Ada Jones saw 北京 film and a cold plot"]


@dataclass(frozen=True)
class Several:
    """Runs of several tasks below one directory, each on its own file."""

    directory: Path

    def block(self, name: str, task: str, more: str = "") -> str:
        train = self.directory / {"ner": "ner.conll", "mask": "text.txt", "generate": "text.txt"}.get(
            task, f"{task}.csv"
        )
        return f'[[tasks]]\nname = "{name}"\ntask = "{task}"\n{more}\n[tasks.data]\ntrain = "{train}"\n'

    def text(self, out: str, *blocks: str, start: Path | None = None, **train) -> str:
        settings = {
            "steps": 24, "batch_tokens": 160, "lr": 3e-3, "save_every": 5, "eval_every": 8, "threads": 1,
            "precision": "fp32",
        }  # fmt: skip
        lines = [f"{key} = {json.dumps(value)}" for key, value in (settings | train).items()]
        source, model = ("", MODEL) if start is None else (f'from = "{start}"\n', "")
        head = f'out = "{self.directory / out}"\n{source}{model}[train]\n'
        return head + "\n".join(lines) + "\n" + "".join(blocks)

    def two(self, out: str, **train) -> str:
        names = self.block("names", "ner", "weight = 0.7\n[tasks.ner]\ncrf = true")
        return self.text(out, self.block("mood", "classify"), names, **train)

    def bert(self) -> Path:
        return Runs(self.directory, "classify", self.directory / "classify.csv").bert()


def whole(text: str) -> TrainingRun:
    run = TrainingRun(read(text))
    for _ in run:
        pass
    run.finish(replicates=0)
    return run


@pytest.fixture
def several(tmp_path):
    for task, made in ROWS.items():
        pick = random.Random(0)
        rows = HEADERS[task] + [made(pick) for _ in range(120)]
        (tmp_path / ("ner.conll" if task == "ner" else f"{task}.csv")).write_text("\n".join(rows) + "\n", "utf-8")
    lines = [row.rpartition(",")[0] for row in (tmp_path / "classify.csv").read_text("utf-8").split("\n")[1:]]
    (tmp_path / "text.txt").write_text("\n".join(lines), "utf-8")
    return Several(tmp_path)


def sums(model: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in model.glob("*.safetensors")}


def log(run: TrainingRun) -> list[dict]:
    records = [json.loads(line) for line in (run.out / "log.jsonl").read_text("utf-8").split("\n") if line]
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


def test_two_tasks_are_learnt_together(several):
    run = whole(several.two("run", steps=240, lr=1e-2, eval_every=240))
    for subject, main in zip(run.subjects, ("accuracy", "strict.f1"), strict=True):
        loaded = mh.load(run.out / "model", task=subject.name)
        assert loaded.evaluate(subject.sides["train"]())[main].value > 0.95
    written = json.loads((run.out / "metrics.json").read_text("utf-8"))
    assert written["tasks"]["names"]["valid"]["strict.f1"]["value"] == run.scores["names"]["valid"]["strict.f1"].value


@pytest.mark.parametrize(
    "way", [{}, {"average": "ema"}, {"average": "checkpoints", "keep_checkpoints": 3}, {"lora": 2}]
)
def test_stopped_anywhere_it_goes_on_bit_for_bit(several, way):
    start = several.bert() if "lora" in way else None
    unbroken = whole(several.two("whole", start=start, **way))
    want = sums(unbroken.out / "model")
    assert set(want) == {"model.safetensors", "readouts.safetensors"}
    for stop_at in (1, 7, 13):
        text = several.two(f"stopped-{stop_at}", start=start, **way)
        for event in TrainingRun(read(text)):
            if getattr(event, "step", 0) == stop_at and not isinstance(event, Saved | Evaluated):
                break  # as a kill would: nothing more is written
        torch.manual_seed(stop_at)  # nothing may hang on the state of a generator
        again = whole(text)
        assert sums(again.out / "model") == want
        assert log(again) == log(unbroken)


def test_every_step_is_of_one_task_and_the_mean_decides(several):
    run = TrainingRun(read(several.two("run")))
    events = list(run)
    steps = [event for event in events if isinstance(event, StepRecord)]
    assert Counter(step.task for step in steps).keys() == {"mood", "names"}
    assert [record["task"] for record in log(run) if "loss" in record] == [step.task for step in steps]
    scored = [event for event in events if isinstance(event, Evaluated)]
    assert [event.main for event in scored] == ["mean"] * 3
    for event in scored:
        assert event.mains == ("mood/accuracy", "names/strict.f1")
        assert event.scores["mean"].value == pytest.approx(sum(event.scores[name].value for name in event.mains) / 2)
    assert max(event.scores["mean"].value for event in scored) == run.best["score"]
    with pytest.raises(ValueError, match="several tasks: mood, names"):
        _ = run.loaded


def test_a_step_leaves_the_other_readout_as_it_is(several):
    run = TrainingRun(read(several.two("run", weight_decay=0.5)))
    before = {s.name: [p.clone() for p in s.loaded.model.readout.parameters()] for s in run.subjects}
    first = next(event for event in run if isinstance(event, StepRecord))
    for subject in run.subjects:
        pairs = zip(before[subject.name], subject.loaded.model.readout.parameters(), strict=True)
        assert all(torch.equal(old, new) for old, new in pairs) == (subject.name != first.task)
    assert all(s.loaded.model.body is run.model.body for s in run.subjects)


def test_neighbours_of_tags_learn_fast_in_one_of_several_readouts(several):
    run = TrainingRun(read(several.two("run")))
    rates = {id(p): g["lr"] for g in adamw(run.model, 1.0).param_groups for p in g["params"]}
    chain = run.subjects[1].loaded.model.readout
    assert rates[id(chain.step)] == 100 * rates[id(chain.scores.weight)]


class Fake:
    """An order whose batches say what they are."""

    steps, warmup = 1, 0

    def __init__(self, name, epoch_steps):
        self.name, self.epoch_steps = name, epoch_steps

    def __getitem__(self, step):
        return step / self.epoch_steps, [(self.name, step)]


def test_an_epoch_goes_through_every_task_by_its_weight():
    turns = MultitaskSchedule(
        [Fake("a", 7), Fake("b", 4), Fake("c", 40)], [1.0, 2.5, 0.01], TrainSettings(epochs=3, seed=5)
    )
    assert turns.steps == 3 * (7 + 10 + 1)  # at least one step of each
    shown = [turns[step][1][0] for step in range(turns.steps)]
    for number, name in enumerate("abc"):  # each task goes on where it stopped
        mine = [place for task, place in shown if task == name]
        assert mine == list(range(len(mine)))
        assert [turns.task_of_step(step) == number for step in range(turns.steps)] == [
            task == name for task, _ in shown
        ]
    assert all(Counter(t for t, _ in shown[18 * e : 18 * e + 18]) == {"a": 7, "b": 10, "c": 1} for e in range(3))
    assert shown[:18] != [(t, p - {"a": 7, "b": 10, "c": 1}[t]) for t, p in shown[18:36]]  # drawn anew
    again = MultitaskSchedule(
        [Fake("a", 7), Fake("b", 4), Fake("c", 40)], [1.0, 2.5, 0.01], TrainSettings(epochs=3, seed=5)
    )
    assert [again[step][1][0] for step in reversed(range(turns.steps))] == shown[::-1]  # a function of the step alone
    other = MultitaskSchedule(
        [Fake("a", 7), Fake("b", 4), Fake("c", 40)], [1.0, 2.5, 0.01], TrainSettings(epochs=3, seed=6)
    )
    assert [other[step][1][0] for step in range(other.steps)] != shown


@pytest.mark.parametrize("scratch", [True, False])
def test_the_trunk_is_stored_once_and_each_task_is_a_model(several, scratch):
    run = whole(several.two("run", steps=6, start=None if scratch else several.bert()))
    model = run.out / "model"
    files = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    apart = 0
    for subject in run.subjects:
        loaded = mh.load(model, task=subject.name)
        body = dict(subject.loaded.model.named_parameters())
        assert all(torch.equal(tensor, body[name]) for name, tensor in loaded.model.named_parameters())
        assert (loaded.task, loaded.labels, loaded.options) == (
            subject.task.name,
            subject.loaded.labels,
            json.loads(json.dumps(subject.loaded.options)),
        )
        said = loaded.predict(TEXTS)
        by_hand = predict_rows(subject.loaded.model, subject.task, (subject.task.validate(t, "") for t in TEXTS))
        assert said == [prediction for _, prediction in by_hand]
        assert said == [loaded.predict([text])[0] for text in TEXTS]  # alone as in a batch
        mh.save(loaded, several.directory / subject.name)  # a plain model of one task
        assert mh.load(several.directory / subject.name).predict(TEXTS) == said
        apart += (several.directory / subject.name / "model.safetensors").stat().st_size
    assert files < 0.6 * apart
    names = load_file(model / "readouts.safetensors").keys()
    assert {name.partition("/")[0] for name in names} == {"mood", "names"}
    assert mh.load(model).embed(["a film"]).shape == (1, 16)  # the trunk alone


def test_the_answer_is_the_product_of_trunk_and_readout(several):
    """Logits by hand: the mean of the body's states through the stored matrix."""
    run = whole(several.two("run", steps=6))
    loaded = mh.load(run.out / "model", task="mood")
    stored = load_file(run.out / "model" / "readouts.safetensors")
    tokens = torch.tensor([loaded.tokenizer.encode(TEXTS[0]).ids])
    with torch.inference_mode():
        pooled = mh.load(run.out / "model").model.body(tokens).mean(1)
        chances = (pooled @ stored["mood/scores.weight"].T + stored["mood/scores.bias"]).softmax(-1)[0]
    (said,) = loaded.predict(TEXTS[:1])
    np.testing.assert_allclose(list(said["scores"].values()), chances, atol=2e-6)


def test_a_trunk_of_a_family_opens_in_transformers(several):
    transformers = pytest.importorskip("transformers")
    text = several.text("run", several.block("mood", "classify"), several.block("same", "match"), start=several.bert())
    run = whole(text)
    theirs = transformers.AutoModel.from_pretrained(run.out / "model").eval()
    loaded = mh.load(run.out / "model")
    tokens = torch.tensor([loaded.tokenizer.encode(TEXTS[0]).ids])
    with torch.inference_mode():
        torch.testing.assert_close(theirs(tokens).last_hidden_state, loaded.model.body(tokens))


def test_a_language_model_beside_a_tagger(several):
    mask = several.block("words", "mask", "auxiliary = true")
    run = TrainingRun(read(several.text("run", several.block("names", "ner"), mask, start=several.bert())))
    events = list(run)
    assert {event.task for event in events if isinstance(event, StepRecord)} == {"names", "words"}
    assert {event.main for event in events if isinstance(event, Evaluated)} == {"names/strict.f1"}
    assert list(run.subjects[1].sides) == ["train"]  # nothing is held out of what is not scored
    assert run.finish(replicates=0).keys() == {"names/valid"}
    assert json.loads((run.out / "metrics.json").read_text("utf-8"))["tasks"].keys() == {"names"}
    loaded = mh.load(run.out / "model")  # a plain tagger: the other readout is gone
    assert (loaded.task, loaded.tasks) == ("ner", ())
    assert mh.load(run.out / "model", task="names").task == mh.load(run.out / "model", task="ner").task == "ner"
    assert sums(run.out / "model").keys() == {"model.safetensors"}
    assert loaded.predict(TEXTS) == run.subjects[0].loaded.predict(TEXTS)


def test_two_of_a_kind_have_a_readout_each(several):
    """A masked language model brings one readout; the second task gets a copy, tied to the same table."""
    blocks = [several.block("a", "mask"), several.block("b", "mask")]
    run = whole(several.text("run", *blocks, start=several.bert()))
    a, b = (subject.loaded.model for subject in run.subjects)
    assert a.readout is not b.readout
    assert a.readout.weight is b.readout.weight is a.body.stem.embedding.weight
    assert not torch.equal(a.readout.bias, b.readout.bias)
    (mask,) = run.subjects[0].task.tokenizer.tokens([run.subjects[0].task.tokenizer.special["mask"]])
    gap = f"lovely {mask} film"
    assert mh.load(run.out / "model", task="b").predict([gap]) == run.subjects[1].loaded.predict([gap])


def test_a_name_is_wanted_and_known(several):
    run = whole(several.two("run", steps=2))
    model = run.out / "model"
    with pytest.raises(ValueError, match=r"several tasks: mood, names; choose one: --task mood"):
        mh.load(model).predict(["a"])
    with pytest.raises(ValueError, match=r"unknown task 'mod'; known: mood, names"):
        mh.load(model, task="mod")
    mh.save(mh.load(model, task="mood"), several.directory / "one")
    for name in ("mood", "classify"):
        assert mh.load(several.directory / "one", task=name).task == "classify"
    with pytest.raises(ValueError, match=r"unknown task 'names'; known: mood"):
        mh.load(several.directory / "one", task="names")


def test_a_damaged_or_strange_directory_is_told(several):
    model = whole(several.two("run", steps=2)).out / "model"
    readouts, told = model / "readouts.safetensors", json.loads((model / "multihead.json").read_text("utf-8"))
    told = {name: value for name, value in told.items() if name not in ("format", "seal")}
    good = readouts.read_bytes()
    readouts.write_bytes(good[:-4] + b"\0\0\0\1")
    with pytest.raises(ValueError, match=r"readouts\.safetensors: not what was saved"):
        mh.load(model, task="mood")
    readouts.write_bytes(good)
    for change, message in (
        ({"readout": {"kind": "classes", "over": "mean", "hidden": None, "bias": False}}, "is not part of"),
        ({"readout": {"kind": "odd"}}, "readout: kind is 'odd'"),
        ({"task": "odd"}, "the task of 'mood' is 'odd'"),
        ({"labels": None}, "has no entry for the task 'mood'"),
    ):
        strange = {**told, "tasks": {**told["tasks"], "mood": {**told["tasks"]["mood"], **change}}}
        (model / "multihead.json").write_text(json.dumps(strange), "utf-8")
        with pytest.raises(ValueError, match=message):
            mh.load(model, task="mood")
    mh.save(mh.load(several.bert()), model)  # another model into the same directory: no readout stays behind
    assert not readouts.exists()


def test_it_may_be_trained_on(several):
    run = whole(several.two("run", steps=2))
    runs = Runs(several.directory, "classify", several.directory / "classify.csv")
    begun = runs.make("next", start=run.out / "model")
    pairs = zip(begun.model.body.parameters(), run.model.body.parameters(), strict=True)
    assert all(torch.equal(new, old) for new, old in pairs)
    assert begun.loaded.tasks == ()


def test_faults(several):
    mood, names = several.block("mood", "classify"), several.block("names", "ner")
    for blocks, message in (
        ([mood, mood], "two blocks named 'mood'"),
        ([mood, several.block("story", "generate")], r"cannot share one body: 'mood' \(classify\) needs an encoder, "),
        ([mood.replace("classify.csv", "gone.csv"), names], r"gone\.csv"),
        ([mood.replace('train = "', 'valid = "'), names], r"tasks\[0\]\.data\.train is missing"),
        ([mood.replace("\n\n", "\nauxiliary = true\n")], "tasks are all auxiliary"),
        ([several.block("mood", "classify", "[tasks.ner]\ncrf = true"), names], "ner belongs to task = 'ner'"),
        ([mood, several.block("words", "mask")], r"mood by accuracy, words by loss.*auxiliary = true for words"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            TrainingRun(read(several.text("run", *blocks)))


def test_run_files_of_several(several):
    run = read(several.two("run"), ["tasks.names.weight=3", "tasks.mood.data.limit=5", "tasks.names.ner.crf=false"])
    assert (run.tasks[1].weight, run.tasks[0].data.limit, run.tasks[1].ner.crf) == (3.0, 5, False)
    assert read(write(run)) == run
    assert run.for_task(run.tasks[1]).ner.crf is False
    assert sorted(difference(read(several.two("run")), run)) == [
        "tasks.mood.data.limit: none -> 5", "tasks.names.ner.crf: true -> false", "tasks.names.weight: 0.7 -> 3.0",
    ]  # fmt: skip
    mood, names = several.block("mood", "classify"), several.block("names", "ner")
    turned = difference(read(several.text("run", mood, names)), read(several.text("run", names, mood)))
    assert turned == ['tasks: ["mood", "names"] -> ["names", "mood"]']
    for override, message in (
        ("tasks.nams.weight=3", "unknown task 'nams'; known: mood, names"),
        ("tasks.weight=3", "name the task and its key"),
        ("tasks.names.wait=3", r"override 'tasks\.names\.wait=3': unknown key tasks\[1\]\.wait"),
    ):
        with pytest.raises(ValueError, match=message):
            read(several.two("run"), [override])
