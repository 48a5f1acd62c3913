"""Weights and answers that are no numbers: an error that names the model, never NaN in JSON."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

import multihead as mh
from multihead.config import read
from multihead.io.files import read_json, sha256, write_json
from multihead.io.seal import seal
from multihead.io.weights import read_safetensors, write_tensors
from multihead.training import checkpoints
from multihead.training.events import Resumed
from multihead.training.log import JsonlLog
from multihead.training.loop import StepRecord
from multihead.training.run import TrainingRun

TEXT = """task = "classify"
out = "{out}"
[data]
train = "{train}"
[tokenizer]
kind = "wordpiece"
vocab = 60
[model]
dim = 8
layers = 1
heads = 2
max_length = 16
[train]
steps = 12
batch_tokens = 64
save_every = 5
eval_every = 4
threads = 1
precision = "fp32"
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finite")
    rows = [f"{'fine warm' if i % 2 else 'dull cold'} film {i},{'good' if i % 2 else 'bad'}" for i in range(60)]
    (folder / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return lambda out: TEXT.format(out=folder / out, train=folder / "train.csv")


@pytest.fixture(scope="module")
def model(text):
    training = TrainingRun(read(text("good")))
    list(training)
    training.finish(replicates=0)
    return training.out / "model"


def changed(model, folder, change):
    """The model with other weights, and a manifest that knows them."""
    shutil.copytree(model, folder)
    file = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in read_safetensors(file).items()}
    for tensor in tensors.values():
        change(tensor)
    write_tensors(file, tensors)
    manifest = read_json(folder / "multihead.json")
    manifest["sha256"]["model.safetensors"] = sha256(file)
    content = {name: value for name, value in manifest.items() if name not in ("format", "seal")}
    write_json(folder / "multihead.json", seal(content))
    return folder


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_no_number_is_told_when_the_model_is_opened(model, tmp_path, value):
    wrong = changed(model, tmp_path / "wrong", lambda tensor: tensor.view(-1)[-1:].fill_(value))
    with pytest.raises(ValueError, match=r"wrong: the weight .* is not finite"):
        mh.load(wrong)


def test_sums_that_overflow_are_no_fault_of_the_weights(model, tmp_path):
    from multihead.models.finite import first_not_finite

    assert first_not_finite([("large", torch.full((4,), 3e38))]) is None
    assert first_not_finite([("wrong", torch.tensor([3e38, 3e38, float("inf")]))]) == "wrong"


def test_an_answer_that_is_no_number_names_the_model(model, tmp_path):
    wrong = changed(model, tmp_path / "wrong", lambda tensor: tensor.fill_(3e38))
    with pytest.raises(ValueError, match=r"wrong: the prediction is not finite"):
        mh.load(wrong).predict(["fine film"])


@pytest.mark.parametrize("average", ["none", "ema"])
def test_weights_that_are_no_numbers_are_never_saved(text, average):
    out = f"lost-{average}"
    training = TrainingRun(read(text(out), [f"train.average={average}"]))

    def poison():
        for event in training:
            if isinstance(event, StepRecord) and event.step == 7:
                training.model.body.stem.embedding.weight.data.fill_(float("nan"))

    with pytest.raises(ValueError, match=r"at step 8 .* is not finite.*the checkpoint of step 5 remains"):
        poison()
    assert checkpoints.list_steps(training.out / "checkpoints") == [5]
    assert checkpoints.list_steps(training.out / "best") == [4]
    again = TrainingRun(read(text(out), [f"train.average={average}"]))
    first = next(event for event in again if isinstance(event, Resumed))
    assert first.step == 5


def test_a_last_step_that_breaks_the_weights_is_not_written_as_the_model(text):
    training = TrainingRun(read(text("end"), ["data.hold_out=true"]))
    list(training)
    training.mean = {
        name: torch.full_like(t, float("nan")) for name, t in checkpoints.model_tensors(training.model).items()
    }
    with pytest.raises(ValueError, match="not finite"):
        training.finish(replicates=0)
    assert not (training.out / "model").exists()


def test_the_log_is_json_whatever_it_is_told(tmp_path):
    JsonlLog(tmp_path / "log.jsonl").add({"step": 1, "loss": float("nan"), "norm": float("inf")})
    line = (tmp_path / "log.jsonl").read_text(encoding="utf-8")
    assert json.loads(line, parse_constant=pytest.fail) == {"step": 1, "loss": None, "norm": None}
