"""Precision follows the probe, and compiled steps leave no trace in names and files."""

from __future__ import annotations

import sys

import pytest
import torch

from multihead.machine.precision import MATMUL, PrecisionProbe, display_name, measure
from multihead.models import ClassifierReadout, Encoder, EncoderDecoder, ModelConfig, TaskModel
from multihead.tasks import Classify
from multihead.text.tokenizer import Tokenizer
from multihead.training import checkpoints
from multihead.training.acceleration import compile_model, resolve_precision, saved_precision
from multihead.training.loop import StepRecord, TrainSettings, fit
from multihead.training.optimizer import adamw

CPU = torch.device("cpu")
GOOD = PrecisionProbe("bf16", error=0.004, ratio=0.5)
SLOW = PrecisionProbe("bf16", error=0.004, ratio=1.3)
WRONG = PrecisionProbe("bf16", error=0.4, ratio=0.5)
DEAD = PrecisionProbe("bf16", died="the process died with SIGILL")


@pytest.mark.parametrize(
    ("wanted", "finding", "name", "note"),
    [
        ("auto", GOOD, "bf16", "works, 0.50 of fp32's time"),
        ("auto", SLOW, "fp32", "not faster"),
        ("auto", WRONG, "fp32", "off by 40"),
        ("auto", DEAD, "fp32", "SIGILL"),
        ("bf16", GOOD, "bf16", ""),
        ("bf16", SLOW, "bf16", ""),
        ("fp32", GOOD, "fp32", ""),
    ],
)
def test_the_choice(wanted, finding, name, note):
    chosen, why = resolve_precision(wanted, CPU, lambda: {"bf16": finding})
    assert chosen == name
    assert note in why
    assert bool(why) == (wanted == "auto")


@pytest.mark.parametrize("finding", [WRONG, DEAD])
def test_bf16_where_it_does_not_work(finding):
    with pytest.raises(ValueError, match=r"bf16 on this machine .*; use fp32 or auto"):
        resolve_precision("bf16", CPU, lambda: {"bf16": finding})


def test_fp32_asks_no_probe():
    def probe():
        raise AssertionError

    assert resolve_precision("fp32", CPU, probe) == ("fp32", "")


def test_a_run_goes_on_in_the_precision_it_began_in(tmp_path):
    assert saved_precision(tmp_path) is None
    tensors = {"model": {"weight": torch.zeros(1)}, "optimizer": {"step": torch.zeros(1)}}
    checkpoints.save(tmp_path, 1, tensors, {"precision": "fp32"})
    checkpoints.save(tmp_path, 2, tensors, {"precision": "bf16"})
    assert saved_precision(tmp_path) == "bf16"
    (tmp_path / "step-2" / "state.json").write_text("{")
    assert saved_precision(tmp_path) == "fp32"


def test_the_machine_is_asked_once_and_says_why(runs):
    """On the machine at hand, whatever it can."""
    run = runs.make("run", "train.precision=auto", steps=6)
    first = next(iter(run))
    assert first.text.startswith(f"training in {display_name(run.plan.precision)}: fp32 by oneDNN here ")
    assert "; bf16 here " in first.text


def test_a_run_by_onednn_goes_on_bit_for_bit(runs):
    if not (finding := measure(("onednn",))["onednn"]).right:
        pytest.skip(f"oneDNN's fp32 on this machine {finding.verdict}")
    want = runs.whole("whole", precision="onednn", steps=12)
    run = runs.make("stopped", precision="onednn", steps=12)
    assert next(event.step for event in run if isinstance(event, StepRecord) and event.step == 7)
    assert runs.whole("stopped", precision="onednn", steps=12) == want
    assert runs.log("stopped") == runs.log("whole")


@pytest.mark.parametrize("precision", ["fp32", "onednn", "bf16"])
def test_the_loss_is_computed_as_was_chosen(precision):
    """No product of matrices here: in bf16 that kills processes on some machines."""

    class Product(Classify):
        seen: list[tuple[bool, str]]

        def loss(self, model, batch):
            self.seen.append((torch.is_autocast_enabled("cpu"), MATMUL.fp32_precision))
            return model.readout.scores.weight.square().sum(), torch.tensor(1)

    tokenizer = Tokenizer.train(["a b c"], "wordpiece", 50)
    task = Product(tokenizer, ["x", "y"], 8, 2)
    task.seen = []
    model = TaskModel(Encoder(ModelConfig(vocab=len(tokenizer), dim=8, layers=1, heads=2)), ClassifierReadout(8, 2))
    data = LengthSortedWindows(task.encode({"text": "a b", "label": "x"}))
    before = MATMUL.fp32_precision
    list(fit(model, task, data, adamw(model, 1e-3), TrainSettings(steps=2, precision=precision)))
    assert task.seen == [(precision == "bf16", "bf16" if precision == "onednn" else before)] * 2
    assert not torch.is_autocast_enabled("cpu")
    assert MATMUL.fp32_precision == before


class LengthSortedWindows(list):
    @property
    def sizes(self):
        import numpy as np

        return np.array([len(window["tokens"]) for window in self])


@pytest.mark.parametrize("body", [Encoder, EncoderDecoder])
def test_a_compiled_view_shares_all_and_changes_nothing(body):
    model = TaskModel(body(ModelConfig(vocab=11, dim=8, layers=1, heads=2)), ClassifierReadout(8, 2))
    names = list(model.state_dict())
    view = compile_model(model, True)
    assert list(model.state_dict()) == names
    assert [id(p) for p in view.parameters()] == [id(p) for p in model.parameters()]
    assert view.readout is model.readout
    sides = [view.body] if body is Encoder else [view.body.encoder, view.body.decoder]
    assert all(hasattr(side, "_orig_mod") for side in sides)
    assert isinstance(model.body, body)
    model.eval()
    view.train()
    assert all(module.training for module in model.body.modules() if not isinstance(module, EncoderDecoder))
    model.eval()
    assert not any(module.training for side in sides for module in side.modules() if not hasattr(module, "_orig_mod"))
    assert compile_model(model, "auto") is model


def test_no_compiler(runs, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ValueError, match=r"train\.compile needs a C\+\+ compiler"):
        runs.make("run", compile=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="wants a C++ compiler")
def test_compiled_steps(runs):
    """The same names, nearly the same losses, and a run that is stopped goes on."""
    small, settings = "model.layers=1", {"steps": 6, "save_every": 2, "eval_every": 3}
    runs.whole("plain", small, **settings)
    want = runs.whole("whole", small, compile=True, **settings)
    run = runs.make("run", small, compile=True, **settings)
    for event in run:
        if getattr(event, "step", 0) == 3:
            break
    assert runs.whole("run", small, compile=True, **settings) == want
    assert runs.log("run") == runs.log("whole")
    newest = [checkpoints.latest_checkpoint(runs.directory / out / "checkpoints")[0] for out in ("plain", "whole")]
    assert newest[0].tensors["model"].keys() == newest[1].tensors["model"].keys()
    first = [runs.log(out)[0] for out in ("plain", "whole")]
    assert first[0]["loss"] == pytest.approx(first[1]["loss"], rel=0.1)  # dropout draws other numbers
