"""Frozen parts stay as they are, keep no activations, and are named by address."""

from __future__ import annotations

import pytest
import torch

from multihead.models import Encoder, EncoderDecoder, LanguageModel, ModelConfig, TaskModel
from multihead.training import checkpoints
from multihead.training.freezing import freeze_parameters
from multihead.training.run import TrainingRun

SMALL = ModelConfig(vocab=11, dim=8, layers=3, heads=2, max_length=16)


def changed(run: TrainingRun) -> set[str]:
    """The parts of the model that training changed: `stem`, `blocks.0`, …, `readout`."""
    before = {name: tensor.clone() for name, tensor in checkpoints.model_tensors(run.model).items()}
    for _ in run:
        pass
    after = checkpoints.model_tensors(run.model)
    names = [name for name in after if not torch.equal(before[name], after[name])]
    return {name.removeprefix("body.").removeprefix("stack.").partition(".")[0] + _number(name) for name in names}


def _number(name: str) -> str:
    return f".{name.split('blocks.')[1].partition('.')[0]}" if "blocks." in name else ""


@pytest.mark.parametrize(
    ("freeze", "want"),
    [
        (0, {"stem", "blocks.0", "blocks.1", "norm", "readout"}),
        (1, {"blocks.1", "norm", "readout"}),
        (2, {"norm", "readout"}),
        (["encoder.1"], {"stem", "blocks.0", "norm", "readout"}),
        (["embeddings", "encoder.1"], {"blocks.0", "norm", "readout"}),
    ],
)
def test_what_learns(runs, freeze, want):
    assert changed(runs.make("run", freeze=freeze, steps=3)) == want


def test_names_that_are_not_there(runs):
    with pytest.raises(ValueError, match=r"'encoder\.7'; this model has: embeddings, encoder\.0, encoder\.1$"):
        runs.make("run", freeze=["encoder.0", "encoder.7"])
    with pytest.raises(ValueError, match=r"train\.freeze is 3; this model has only 2 layers"):
        runs.make("run", freeze=3)
    assert changed(runs.make("run", freeze=["encoder.0"], steps=2))  # the fault did not take the directory


def test_nothing_is_kept_for_frozen_layers(runs):
    run, kept = runs.make("run", freeze=1, steps=1), {}

    def look(block, _, out) -> None:
        kept[block.address] = out.requires_grad

    for block in run.model.body.stack.blocks:
        block.register_forward_hook(look)
    next(event for event in run if hasattr(event, "loss"))
    assert kept == {"encoder.0": False, "encoder.1": True}


def test_what_a_task_adds_learns_in_any_case(ner_runs):
    run = ner_runs.make("run", "ner.case=true", freeze=2, steps=1)
    stem = run.model.body.stem
    assert stem.types.weight.requires_grad
    assert not stem.embedding.weight.requires_grad


def test_both_stacks_of_an_encoder_decoder():
    model = TaskModel(EncoderDecoder(SMALL), torch.nn.Linear(8, 2))
    freeze_parameters(model, 1, 0, {id(p) for p in model.parameters()})
    learning = {name.rpartition("blocks.")[0] for name, p in model.named_parameters() if p.requires_grad}
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert learning == {"body.encoder.stack.", "body.decoder.stack.", ""}
    assert all("stem" in name or "blocks.0." in name for name in frozen)
    assert any("decoder.stack.blocks.0.cross" in name for name in frozen)


def test_relative_positions_belong_to_the_embeddings():
    model = TaskModel(
        Encoder(ModelConfig(vocab=11, dim=8, layers=2, heads=2, positions="relative")), torch.nn.Linear(8, 2)
    )
    freeze_parameters(model, ["embeddings"], 0, {id(p) for p in model.parameters()})
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert any("position" in name for name in frozen)
    assert not any("blocks" in name for name in frozen)


def test_a_model_with_nothing_left_to_learn():
    model = LanguageModel(ModelConfig(vocab=11, dim=8, layers=2, heads=2, norm_first=False, tied=True))
    with pytest.raises(ValueError, match="nothing to train"):
        freeze_parameters(model, 2, 0, {id(p) for p in model.parameters()})
