"""Low-rank updates: they start as nothing, are merged into plain weights, and nothing else notices."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open

from multihead.config import read
from multihead.inspection import ablate, watch
from multihead.models import EncoderDecoder, ModelConfig, TaskModel
from multihead.pretrained import load, save
from multihead.training.freezing import freeze_parameters
from multihead.training.lora import merge_updates
from multihead.training.run import TrainingRun

TOKENS = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 9, 3, 0]])
RANK = 2


def weights(directory) -> dict[str, torch.Tensor]:
    with safe_open(directory / "model.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@pytest.fixture
def trained(runs) -> TrainingRun:
    run = runs.make("run", start=runs.bert(), lora=RANK, steps=12, lr=1e-2)
    for _ in run:
        pass
    return run


def test_at_first_it_changes_no_bit(runs):
    plain, updated = (runs.make(f"run-{rank}", start=runs.bert(), lora=rank).model.eval() for rank in (0, RANK))
    for model in (plain, updated):
        torch.nn.init.ones_(model.readout.scores.weight)  # new in both, and drawn after the updates
    with torch.no_grad():
        assert torch.equal(plain.body(TOKENS), updated.body(TOKENS))


def test_q_and_v_change_by_little_rank_and_the_rest_not_at_all(runs, trained):
    trained.finish(replicates=0)
    before, after = weights(runs.bert()), weights(trained.out / "model")
    changed = {name for name in before.keys() & after.keys() if not torch.equal(before[name], after[name])}
    assert changed == {
        f"bert.encoder.layer.{layer}.attention.self.{part}.weight" for layer in (0, 1) for part in ("query", "value")
    }
    for name in changed:
        assert torch.linalg.matrix_rank(after[name] - before[name], rtol=1e-4) == RANK
    assert "classifier.weight" in after.keys() - before.keys()


def test_merged_is_what_was_trained(trained):
    model = trained.model.eval()
    with torch.no_grad():
        apart = model(TOKENS)
        names = {name for name, _ in model.named_parameters()}
        merge_updates(model)
        together = model(TOKENS)
    assert any("parametrizations" in name for name in names)
    assert not any("parametrizations" in name for name, _ in model.named_parameters())
    assert torch.allclose(apart, together, atol=1e-5)
    merge_updates(model)  # and once more, which does nothing


def test_the_saved_model_is_an_ordinary_one(runs, trained, tmp_path):
    """The same header, byte by byte, as a run without updates writes; and transformers opens it."""
    transformers = pytest.importorskip("transformers")
    trained.finish(replicates=0)
    full = TrainingRun(read(runs.text("full", start=runs.bert(), steps=1)))
    for _ in full:
        pass
    full.finish(replicates=0)
    headers = []
    for run in (trained, full):
        raw = (run.out / "model" / "model.safetensors").read_bytes()
        headers.append(raw[: 8 + int.from_bytes(raw[:8], "little")])
    assert headers[0] == headers[1]
    own = load(trained.out / "model")
    save(own, tmp_path / "export", family=True)
    peer = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "export").eval()
    keep = TOKENS > 0
    with torch.no_grad():
        theirs = peer(TOKENS, attention_mask=keep.long()).logits
        assert torch.allclose(own.model(TOKENS, keep), theirs, atol=1e-5)
        assert torch.allclose(trained.model.eval()(TOKENS, keep), theirs, atol=1e-5)


def test_checkpoints_hold_the_updates(trained):
    newest = max((trained.out / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
    held = weights(newest)
    rank = [tensor for name, tensor in held.items() if name.endswith(("0.up", "0.down"))]
    assert len(rank) == 8  # two layers, q and v, up and down
    assert all(RANK in tensor.shape for tensor in rank)
    assert json.loads((newest / "state.json").read_text())["best"]["step"] <= 12


def test_watch_and_ablate_see_the_updated_heads(trained):
    model, address = trained.model.eval(), "encoder.1.self.1"
    found = []
    for _ in ("apart", "merged"):
        with torch.no_grad(), watch(model) as seen:
            model(TOKENS)
        with torch.no_grad(), ablate(model, [address]):
            without = model(TOKENS)
        found.append((seen[0].weights(address), without))
        merge_updates(model)
    for apart, merged in zip(*found, strict=True):
        assert torch.allclose(apart, merged, atol=1e-5)


def test_new_attention_between_joined_models_learns_fully():
    config = ModelConfig(vocab=11, dim=8, layers=2, heads=2)
    model = TaskModel(EncoderDecoder(config), torch.nn.Linear(8, 2))
    freeze_parameters(model, 0, RANK, {id(p) for name, p in model.named_parameters() if ".cross" not in name})
    learning = [name for name, p in model.body.named_parameters() if p.requires_grad]
    assert all(".cross" in name or name.endswith((".0.up", ".0.down")) for name in learning)
    assert not any(".cross" in name and "parametrizations" in name for name in learning)
    assert sum(".cross." in name for name in learning) == 2 * 8  # four projections with a bias each


def test_a_rank_that_is_no_saving(runs):
    with pytest.raises(ValueError, match=r"train\.lora is 17"):
        runs.make("run", start=runs.bert(), lora=17)
