"""A head that training made, not a hand: its data can only be learnt by looking at the same word elsewhere."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import multihead as mh
from multihead.cli.data_arguments import rows_of
from multihead.inference import Pipeline
from multihead.inspection import ablate, numbers
from multihead.inspection.head_profile import stats
from multihead.metrics import ConfidenceInterval
from multihead.models import ClassifierReadout, Decoder, Encoder, EncoderDecoder, LMReadout, ModelConfig, TaskModel
from multihead.models.families import native_config
from multihead.pruning import PruningBudget, prune, rank
from multihead.pruning.evaluation import encode_rows, evaluate_model, make_batches
from multihead.pruning.prune import split_halves
from multihead.tasks.chat import add_default_template, add_role_tokens
from multihead.text.tokenizer import Tokenizer

LETTERS = "abcdefghijkl"


def train(loaded: Pipeline, row: Any, steps: int, enough: float) -> float:
    task = loaded.make_task()
    optimizer = torch.optim.AdamW(loaded.model.parameters(), 3e-3)
    loss = torch.tensor(float("inf"))
    for _ in range(steps):
        total, count = task.loss(loaded.model.train(), task.collate([task.encode(row())[0] for _ in range(32)]))
        loss = total / count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < enough:
            break
    loaded.model.eval()
    return loss.item()


def test_a_learnt_copy_head_is_named_and_ranked_first(tokenizer: Tokenizer) -> None:
    """Every word stands twice; its tag says whether its twin is among the first three."""
    torch.manual_seed(0)
    pick = random.Random(0)

    def row() -> dict[str, Any]:
        words = pick.sample(LETTERS, 4) * 2
        pick.shuffle(words)
        twins = [next(j for j, other in enumerate(words) if other == word and j != i) for i, word in enumerate(words)]
        return {"tokens": words, "tags": ["B-X" if twin < 3 else "O" for twin in twins]}

    config = ModelConfig(vocab=len(tokenizer), dim=48, layers=2, heads=2, max_length=16, dropout=0.0, norm_first=True)
    model = TaskModel(Encoder(config), ClassifierReadout(config.dim, 3, dropout=0.0))
    options = {"size": 16, "overlap": 0}
    loaded = Pipeline(model, native_config(model), tokenizer, labels=["O", "B-X", "I-X"], task="ner", options=options)
    assert train(loaded, row, 1500, 0.01) < 0.05
    rows = [row() for _ in range(60)]
    found = stats(loaded, rows)
    names = dict(zip(found.addresses, found.names, strict=True))
    first, second, *_ = rank(loaded, rows).effects
    assert names[first.address] == "same word"
    assert first.loss is not None
    assert second.loss is not None
    assert first.loss.interval.low > second.loss.interval.high


@pytest.fixture
def repeating(tokenizer: Tokenizer) -> tuple[Pipeline, list[dict[str, Any]]]:
    """A small language model, shortly trained: eight letters, then the same again."""
    torch.manual_seed(0)
    pick = random.Random(0)

    def row() -> dict[str, Any]:
        return {"text": " ".join(pick.sample(LETTERS, 8) * 2)}

    config = ModelConfig(vocab=len(tokenizer), dim=32, layers=2, heads=4, max_length=32, dropout=0.0, norm_first=True)
    model = TaskModel(Decoder(config), LMReadout(config))
    special = tokenizer.special
    options = {"size": 17, "overlap": 0, "stop": [special["sep"]], "start": special["cls"], "decode": {}}
    loaded = Pipeline(model, native_config(model), tokenizer, task="generate", options=options)
    train(loaded, row, 150, 0.0)
    return loaded, [row() for _ in range(40)]


def test_a_language_model_is_ranked_by_how_well_it_foretells(repeating: Any) -> None:
    loaded, rows = repeating
    found = rank(loaded, rows, ["ablation"])
    assert found.metric == "loss"
    assert found.cost["ablation"] == pytest.approx(9)  # every head is a whole evaluation
    task = loaded.make_task()
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(rows))  # running text: the order matters a little
    ready = encode_rows(task, rows)
    done = make_batches(task, [ready[i] for i in order])
    whole = evaluate_model(loaded.model, task, done).result()["loss"].value
    for effect in found.effects:
        with ablate(loaded.model, [effect.address]):
            lost = evaluate_model(loaded.model, task, done).result()["loss"].value - whole
        assert effect.loss is not None
        assert effect.loss.value == pytest.approx(lost, abs=1e-6)
    early = rank(loaded, rows, ["ablation"], early=True)
    assert len(early.effects) == 8
    assert early.cost["ablation"] <= 9


def test_a_long_document_is_read_in_windows_as_in_training(tokenizer: Tokenizer, tmp_path: Any) -> None:
    """It was read in one piece: an error where positions are a table, else lengths that were never trained on."""
    config = ModelConfig(vocab=len(tokenizer), dim=16, layers=1, heads=2, max_length=8, positions="learned")
    model = TaskModel(Decoder(config), LMReadout(config)).eval()
    special = tokenizer.special
    options = {"size": 8, "overlap": 0, "stop": [special["sep"]], "start": special["cls"], "decode": {}}
    loaded = Pipeline(model, native_config(model), tokenizer, task="generate", options=options)
    rows = [{"text": " ".join(random.Random(n).choices(LETTERS, k=50))} for n in range(3)]
    task = loaded.make_task()
    (ready, *_) = encode_rows(task, rows)
    judged = [said["tokens"] for _, said in task.score_rows(model, rows[:1]) or ()]
    assert [len(window["tokens"]) - 1 for window in ready.windows] == judged
    assert len(rank(loaded, rows, ["gradient"]).effects) == 2
    mh.save(loaded, tmp_path / "whole")
    done = prune(tmp_path / "whole", rows, tmp_path / "small", PruningBudget.read(None, "50%"), heldout=rows)
    assert done.bill.after.heads == 1
    rotary = TaskModel(Decoder(replace(config, positions="rotary")), LMReadout(config)).eval()
    found = stats(replace(loaded, model=rotary, config=native_config(rotary)), rows)
    assert found.inputs > len(rows)


def test_conversations_are_read_as_in_training(tmp_path: Any) -> None:
    signed = add_role_tokens(Tokenizer.train([" ".join(LETTERS)] * 3, "bpe", 300))
    special = signed.special
    add_default_template(signed, special["bos"], special["eos"])
    config = ModelConfig(vocab=len(signed), dim=16, layers=1, heads=2, max_length=24, positions="learned")
    model = TaskModel(Decoder(config), LMReadout(config)).eval()
    options = {"size": 24, "overlap": 0, "stop": [special["eos"]], "start": special["bos"], "decode": {}, "chat": True}
    loaded = Pipeline(model, native_config(model), signed, task="generate", options=options)
    said = [("user", "a b c"), ("assistant", "c b a")]
    rows = [{"conversation": [{"role": r, "content": f"{t} {LETTERS[n]}"} for r, t in said]} for n in range(12)]
    found = stats(loaded, rows)
    assert (found.inputs, found.tokens) == (12, sum(len(loaded.make_task().encode(row)[0]["tokens"]) for row in rows))
    assert stats(loaded, [{"messages": row["conversation"]} for row in rows]).tokens == found.tokens
    assert stats(loaded, [{"text": "a b c " * 40}]).inputs > 1  # a chat model reads plain text in windows too
    file = tmp_path / "chat.jsonl"
    file.write_text("".join(json.dumps({"messages": row["conversation"]}) + "\n" for row in rows))
    assert list(rows_of(loaded, file, None, None, gold=False)) == rows
    choosing, judging = split_halves(rows)
    assert len(choosing) + len(judging) == len(rows)
    mh.save(loaded, tmp_path / "whole")
    assert prune(tmp_path / "whole", rows, tmp_path / "small", PruningBudget.read(None, "50%")).bill.after.heads == 1


def test_a_denoising_model_reads_plain_text(tokenizer: Tokenizer) -> None:
    config = ModelConfig(vocab=len(tokenizer), dim=16, layers=1, heads=2, max_length=8, positions="learned")
    model = TaskModel(EncoderDecoder(config), LMReadout(config)).eval()
    special = tokenizer.special
    options = {"size": 8, "overlap": 0, "stop": [special["sep"]], "start": special["cls"], "decode": {}}
    loaded = Pipeline(model, native_config(model), tokenizer, task="denoise", options=options)
    rows = [{"text": "a b c d e f g h i j k l"}, {"text": "a"}]
    found = stats(loaded, rows)
    assert found.inputs == sum(len(encode_rows(loaded.make_task(), [row])[0].windows) for row in rows)
    assert {address.split(".")[2] for address in found.addresses} == {"self", "cross"}


def test_a_language_model_is_pruned_within_a_budget(repeating: Any, tmp_path: Any) -> None:
    loaded, rows = repeating
    mh.save(loaded, tmp_path / "whole")
    done = prune(tmp_path / "whole", rows, tmp_path / "small", PruningBudget.read("loss 0.3", None))
    assert done.off
    assert done.curve[0].loss.interval == ConfidenceInterval(
        0.0, 0.0
    )  # of the model itself: by the rule of three it was 3 / rows
    assert done.bill.metric == "loss"
    assert done.bill.loss.value <= 0.3
    assert sum(len(mine) for mine in numbers(mh.load(tmp_path / "small").model).values()) == 8 - len(done.off)
