"""multihead export: what transformers opens, and what is refused."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from multihead.cli.export import opener
from multihead.config import read
from multihead.models import ModelConfig
from multihead.models.families import FAMILIES
from multihead.pretrained import create, join, save
from multihead.text.tokenizer import Tokenizer
from multihead.training.run import TrainingRun

BERT = ModelConfig(
    vocab=11, dim=8, layers=1, heads=2, inner=6, max_length=5, activation="gelu", positions="learned",
    embed_norm=True, token_types=2,
)  # fmt: skip


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "multihead", "export", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_export(tmp_path: Path) -> None:
    made = create("bert", "ForTokenClassification", encoder=BERT, labels=["O", "B-人"])
    save(made, tmp_path / "model")
    done = run(tmp_path / "model", "--to", "transformers", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "BertForTokenClassification" in done.stdout
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("model", "out"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    again = run(tmp_path / "model", "--out", tmp_path / "out")
    assert again.returncode == 1
    assert "not an empty directory" in again.stderr


@pytest.mark.parametrize("family", FAMILIES)
def test_the_class_that_opens_it_is_named(family: str) -> None:
    """As transformers' own tables have it, for every readout of every family."""
    for suffix in FAMILIES[family].readouts:
        architecture = FAMILIES[family].title + suffix
        if opener(architecture) == architecture:
            assert hasattr(transformers, architecture)
            continue
        known = getattr(transformers, opener(architecture))._model_mapping._model_mapping.values()
        assert architecture in {name for names in known for name in ([names] if isinstance(names, str) else names)}


def test_what_has_no_place_there_is_refused(tmp_path: Path) -> None:
    made = create("bert", "ForMaskedLM", encoder=BERT)
    save(replace(made, config={"model_type": "multihead"}), tmp_path / "model")
    done = run(tmp_path / "model", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "cannot be saved for transformers: its shape fits no family" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_joined_model_is_told_what_has_a_place_for_it(tmp_path: Path) -> None:
    gpt = replace(BERT, activation="gelu_tanh", embed_norm=False, token_types=0, norm_first=True)
    halves = create("bert", "Model", encoder=BERT), create("gpt2", "LMHeadModel", decoder=gpt)
    with pytest.raises(ValueError, match=r"encoder and decoder are of different families .* use --to multihead"):
        save(join(*halves), tmp_path / "out", family=True)
    assert not (tmp_path / "out").exists()


def test_what_would_make_it_exportable_is_named_and_does(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\n" + "fine film,good\ndull plot,bad\n" * 20)
    given = [
        "data.train=" + str(tmp_path / "train.csv"), "data.test=" + str(tmp_path / "train.csv"), "data.hold_out=false",
        "model.dim=16", "model.layers=1", "model.heads=2", "train.steps=2", "train.threads=1", "tokenizer.vocab=60",
        "tokenizer.kind=wordpiece",
    ]  # fmt: skip

    def trained(out: str, *keys: str) -> Path:
        text = f'task = "classify"\nout = "{tmp_path / out}"\n[train]\nprecision = "fp32"'
        training = TrainingRun(read(text, [*given, *keys]))
        list(training)
        training.finish(replicates=0)
        return tmp_path / out / "model"

    done = run(trained("own"), "--out", tmp_path / "no")
    assert done.returncode == 1
    named = done.stderr.partition("train with ")[2].strip().replace(" = ", "=").split(", ")
    assert len(named) == 3
    done = run(trained("bert", *named), "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "BertForSequenceClassification" in done.stdout


def test_a_tagger_that_is_told_how_words_are_written_is_refused(tmp_path: Path) -> None:
    """It opened there, and gave other answers: no tokenizer there gives it those token types."""
    made = create("bert", "ForTokenClassification", encoder=replace(BERT, token_types=6), labels=["O", "B-人"])
    save(replace(made, task="ner", options={"size": 5, "overlap": 1, "case": True}), tmp_path / "model")
    done = run(tmp_path / "model", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "ner.case" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("several", [True, False])
def test_chances_are_the_same_there(tmp_path: Path, several: bool) -> None:
    """Each label by itself, or one against the others; whatever the model that it was made from said."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(["a warm film", "a cold plot"], "wordpiece", 60)
    shape = replace(BERT, vocab=len(tokenizer), max_length=16, pad=tokenizer.special["pad"])
    stale = {"problem_type": "single_label_classification" if several else "multi_label_classification"}
    made = create("bert", "ForSequenceClassification", encoder=shape, labels=list("abc"), config=stale)
    for parameter in made.model.parameters():
        parameter.data.normal_(std=0.5)
    options = {"size": 16, "overlap": 4, **({"multi_label": True} if several else {})}
    made = replace(made, tokenizer=tokenizer, task="classify", options=options)
    save(made, tmp_path / "model")
    done = run(tmp_path / "model", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "out" / "config.json").read_text())
    assert told.get("problem_type") == ("multi_label_classification" if several else None)
    (said,) = made.predict(["a warm plot"])
    pipeline = transformers.pipeline("text-classification", str(tmp_path / "out"), top_k=None)
    assert {one["label"]: one["score"] for one in pipeline(["a warm plot"])[0]} == pytest.approx(
        said["scores"], abs=1e-5
    )
    opened = replace(made, config=made.config | stale, task=None)  # as it came: nothing is known better
    save(opened, tmp_path / "opened")
    assert json.loads((tmp_path / "opened" / "config.json").read_text())["problem_type"] == stale["problem_type"]
