"""Embeddings of which only the rows that the data has are learnt: the same model, for less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from multihead.config import read
from multihead.pretrained import load
from multihead.training import checkpoints, partial_embedding
from multihead.training.partial_embedding import PartialEmbedding
from multihead.training.run import TrainingRun

TABLE = "bert.embeddings.word_embeddings.weight"


@pytest.fixture
def wide(runs) -> Path:
    """A BERT that knows far more words than the data has."""
    words = " ".join(f"{a}{b}{c}" for a in "klmn" for b in "aeiou" for c in "klmnprst")
    return runs.bert(*[words] * 5)


@pytest.mark.parametrize(
    "way", [{}, {"average": "ema"}, {"average": "checkpoints", "keep_checkpoints": 3}, {"accumulate": 2}]
)
def test_the_model_is_the_same_bit_for_bit(runs, wide, way, monkeypatch):
    settings = {"start": wide, "clip": 0.0, **way}  # the norm of fewer numbers is summed in another order
    some = runs.whole("some", **settings)
    monkeypatch.setattr(partial_embedding, "WORTH", -1.0)
    assert runs.whole("all", **settings) == some
    assert runs.log("some") == [line | {"norm": pytest.approx(line["norm"], rel=1e-5)} if "norm" in line else line
                                for line in runs.log("all")]  # fmt: skip


def test_rows_that_the_data_lacks_stay_and_cost_nothing(runs, wide):
    run = runs.make("run", start=wide)
    for _ in run:
        pass
    table = run.model.body.stem.embedding
    assert isinstance(table, PartialEmbedding)
    learnt = np.unique(np.concatenate(run.examples.tokens))
    kept = checkpoints.open_checkpoint(run.out / "checkpoints" / "step-24").tensors
    assert len(kept["model"]["body.stem.embedding.weight"]) == len(table.weight) < 0.8 * len(table.every)
    assert max(len(t) for t in kept["optimizer"].values() if t.dim()) < len(table.every)
    run.finish(replicates=0)
    before, after = (load_file(path / "model.safetensors")[TABLE] for path in (wide, run.out / "model"))
    same = (before == after).all(1).numpy()
    assert before.shape == after.shape
    assert not same[learnt].any()
    assert same.sum() >= len(table.every) - len(table.weight)
    assert type(run.model.body.stem.embedding) is nn.Embedding


@pytest.mark.parametrize("stop_at", [7, 12])
def test_stopped_it_goes_on_bit_for_bit(runs, wide, stop_at):
    want = runs.whole("whole", start=wide, average="ema")
    run = runs.make("run", start=wide, average="ema")
    for event in run:
        if getattr(event, "step", 0) == stop_at:
            break
    for _ in run:  # the same one once more
        pass
    run.finish(replicates=0)
    assert runs.fingerprint("run") == want
    (run.out / "model" / "model.safetensors").unlink()
    assert runs.whole("run", start=wide, average="ema") == want


def test_scoring_knows_every_token_and_training_only_its_own():
    torch.manual_seed(0)
    table = nn.Embedding(9, 4, padding_idx=2)
    used = torch.tensor([1, 0, 1, 0, 0, 1, 1, 0, 1], dtype=torch.bool)
    some, tokens = PartialEmbedding(table, used), torch.arange(9)[None]
    assert torch.equal(some.eval()(tokens), table(tokens))
    some.train()
    assert torch.equal(some(tokens[:, used]), table(tokens[:, used]))
    some(tokens[:, used]).sum().backward()
    assert some.weight.grad is not None
    assert (some.weight.grad == 0).all(1).tolist() == [False, True, False, False, False]  # but for the padding
    with pytest.raises(IndexError):
        some(tokens)
    with torch.no_grad():
        some.weight += 1
    assert torch.equal(some.eval()(tokens)[0], table.weight + used[:, None])
    assert torch.equal(some.full_embedding().weight, table.weight + used[:, None])


def test_tables_that_are_read_out_frozen_or_needed_whole_are_left(runs, wide):
    (runs.directory / "train.txt").write_text("".join(f"fine film {n}\n" for n in range(60)))
    text = runs.text("mask", start=wide).replace("classify", "mask").replace("train.csv", "train.txt")
    for run in (
        TrainingRun(read(text)),
        runs.make("low", start=wide, lora=2),
        runs.make("frozen", start=wide, freeze=1),
    ):
        next(iter(run))
        assert type(run.model.body.stem.embedding) is nn.Embedding
    body = load(wide).model.body
    partial_embedding.shrink_embedding(body, [np.arange(len(body.stem.embedding.weight) - 5)], [])
    assert type(body.stem.embedding) is nn.Embedding  # nearly every token is in the data


def test_a_checkpoint_of_another_shape_is_told(runs, wide, monkeypatch):
    monkeypatch.setattr(partial_embedding, "WORTH", -1.0)
    runs.whole("run", start=wide)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"another model: body\.stem\.embedding\.weight is \[\d+, 16\] there"):
        runs.whole("run", start=wide)
