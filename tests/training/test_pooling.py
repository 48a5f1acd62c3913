"""A classifier pools as the vectors of the model that it starts from were pooled in training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import multihead as mh
from multihead.config import read
from multihead.io.pooling import read_pooling
from multihead.models import ClassifierReadout
from multihead.training.run import TrainingRun

from .conftest import Runs, runs_of

OLD = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}
CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
TEXTS = ["a lovely film", "a dull plot, a poor end", "great"]


def write_pooling(directory: Path, config: Any) -> Path:
    """Add the file that sentence-transformers has for its pooling module."""
    file = directory / "1_Pooling" / "config.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    return file


def pool_of(training: TrainingRun) -> str:
    assert isinstance(training.model.readout, ClassifierReadout)
    return training.model.readout.over


def train_from(runs: Runs, start: Path, *keys: str) -> TrainingRun:
    return TrainingRun(read(runs.text("run", start, steps=3), keys))


def finish(training: TrainingRun) -> Path:
    for _ in training:
        pass
    training.finish(replicates=0)
    return training.out / "model"


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        (OLD, "mean"),
        ({"word_embedding_dimension": 384, **OLD, "include_prompt": True}, "mean"),
        (CLS, "first"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode": ["cls", "mean"]}, "mean"),
        ({"pooling_mode_lasttoken": True}, ""),
        ({}, ""),
    ],
)
def test_the_mode_is_read_from_old_and_new_files(tmp_path: Path, config: dict[str, Any], pooling: str) -> None:
    assert read_pooling(tmp_path) == ""
    write_pooling(tmp_path, config)
    assert read_pooling(tmp_path) == pooling


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ("{", "not JSON"),
        ("[1]", "holds a list"),
        ({"pooling_mode_mean_tokens": "yes"}, "pooling_mode_mean_tokens is neither true nor false"),
        ({"pooling_mode_mean_tokens": 1}, "pooling_mode_mean_tokens is neither true nor false"),
        ({"pooling_mode": 3}, "pooling_mode is not the name"),
        ({"pooling_mode": [["mean"]]}, "pooling_mode is not the name"),
        ({"pooling_mode": None}, "pooling_mode is not the name"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(runs: Runs, config: Any, fault: str) -> None:
    file = write_pooling(runs.bert(), config)
    with pytest.raises(ValueError, match=fault) as error:
        mh.load(runs.bert())
    assert str(error.value).startswith(str(file))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("config", "keys", "pool"),
    [
        (OLD, (), "mean"),
        (OLD, ("classify.pool=auto",), "mean"),
        (OLD, ("classify.pool=first",), "first"),
        (CLS, (), "first"),
        (CLS, ("classify.pool=mean",), "mean"),
    ],
)
def test_auto_is_as_the_model_was_trained(runs: Runs, config: Any, keys: tuple[str, ...], pool: str) -> None:
    write_pooling(runs.bert(), config)
    training = train_from(runs, runs.bert(), *keys)
    assert pool_of(training) == pool
    if not keys:
        again = mh.load(finish(training))
        assert again.config["model_type"] == ("multihead" if pool == "mean" else "bert")
        assert again.predict(TEXTS) == training.loaded.predict(TEXTS)


def test_a_tagger_labels_tokens_all_the_same(ner_runs: Runs) -> None:
    write_pooling(ner_runs.bert(), OLD)
    assert pool_of(train_from(ner_runs, ner_runs.bert())) == "tokens"


@pytest.mark.parametrize(("key", "pool"), [("auto", "first"), ("mean", "mean")])
def test_a_pair_is_not_what_vectors_were_made_of(tmp_path: Path, key: str, pool: str) -> None:
    """On stsb, the mean gained nothing; with the first token, the model opens in transformers."""
    runs = runs_of(tmp_path, "match")
    write_pooling(runs.bert(), OLD)
    assert pool_of(train_from(runs, runs.bert(), f"match.pool={key}")) == pool


@pytest.mark.parametrize(("config", "first"), [(CLS, True), (OLD, False), ({}, False)])
def test_vectors_are_those_of_transformers(tmp_path: Path, config: Any, first: bool) -> None:
    """As sentence-transformers makes them of its hidden states: before, a model of first tokens gave means here."""
    runs = runs_of(tmp_path, "match")
    write_pooling(runs.bert(), config)
    hidden = hidden_of(runs.bert(), TEXTS)
    pooled = torch.stack([states[0] if first else states.mean(0) for states in hidden])
    expected = torch.nn.functional.normalize(pooled, dim=-1).numpy()
    np.testing.assert_allclose(mh.load(runs.bert()).embed(TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "keys", "first"),
    [(CLS, (), True), (CLS, ("match.pool=mean",), False), (OLD, (), False), ({}, ("match.pool=first",), True)],
)
def test_a_bi_encoder_is_trained_and_used_as_its_vectors_were_pooled(
    tmp_path: Path, config: Any, keys: tuple[str, ...], first: bool
) -> None:
    runs = runs_of(tmp_path, "match")
    write_pooling(runs.bert(), config)
    training = train_from(runs, runs.bert(), "match.kind=bi", *keys)
    again = mh.load(finish(training))
    assert again.config["model_type"] == "bert"
    states = hidden_of(training.out / "model", TEXTS)
    pooled = torch.stack([one[0] if first else one.mean(0) for one in states])
    expected = torch.nn.functional.normalize(pooled, dim=-1)
    for loaded in (training.loaded, again):
        np.testing.assert_allclose(loaded.embed(TEXTS), expected.numpy(), atol=1e-5)
        (answer,) = loaded.predict([{"text_a": TEXTS[0], "text_b": TEXTS[1]}])
        assert answer["score"] == pytest.approx(float(expected[0] @ expected[1]), abs=1e-5)


def hidden_of(model: Path, texts: Sequence[str]) -> list[torch.Tensor]:
    """The states [T, D] of every text, by transformers."""
    theirs = transformers.AutoModel.from_pretrained(model).eval()
    tokenizer = mh.load(model).tokenizer
    assert tokenizer is not None
    with torch.inference_mode():
        return [theirs(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0] for text in texts]


def test_a_bi_encoder_of_ours_has_means_too(tmp_path: Path) -> None:
    pairs = runs_of(make_directory(tmp_path / "match"), "match")
    vectors = finish(train_from(pairs, pairs.bert(), "match.kind=bi"))
    assert json.loads((vectors / "config.json").read_text())["model_type"] == "bert"
    assert pool_of(train_from(runs_of(make_directory(tmp_path / "classify"), "classify"), vectors)) == "mean"


def test_export_names_the_key_that_gives_it_a_place(runs: Runs) -> None:
    write_pooling(runs.bert(), OLD)
    loaded = mh.load(finish(train_from(runs, runs.bert())))
    with pytest.raises(ValueError, match=r"classifies by mean pooling.*train with classify\.pool=first"):
        mh.save(loaded, runs.directory / "exported", family=True)
    keys = ("classify.pool=first", f"out={runs.directory / 'first'}")
    loaded = mh.load(finish(train_from(runs, runs.bert(), *keys)))
    mh.save(loaded, runs.directory / "exported", family=True)


@pytest.mark.parametrize("order", [("classify", "ner"), ("ner", "classify"), ("classify", "classify")])
def test_a_trunk_stays_its_family_s(tmp_path: Path, order: tuple[str, ...]) -> None:
    """Beside a tagger, whose readout is the family's, or alone; either may come first."""
    runs = {task: runs_of(make_directory(tmp_path / f"{task} data"), task) for task in set(order)}
    bert = runs["classify"].bert()
    write_pooling(bert, OLD)
    text = f'out = "{tmp_path / "run"}"\nfrom = "{bert}"\n[train]\nsteps = 3\nthreads = 1\nprecision = "fp32"\n'
    for number, task in enumerate(order):
        text += f'[[tasks]]\nname = "{task}-{number}"\ntask = "{task}"\n[tasks.data]\ntrain = "{runs[task].data}"\n'
    training = TrainingRun(read(text))
    model = finish(training)
    assert mh.load(model).config["model_type"] == "bert"
    for subject in training.subjects:
        loaded, alone = mh.load(model, task=subject.name), tmp_path / subject.name
        assert loaded.predict(TEXTS) == subject.loaded.predict(TEXTS)
        mh.save(loaded, alone)
        assert mh.load(alone).predict(TEXTS) == loaded.predict(TEXTS)
        if subject.task.name == "ner":
            mh.save(loaded, tmp_path / "exported", family=True)
        else:
            with pytest.raises(ValueError, match=r"classify\.pool=first"):
                mh.save(loaded, tmp_path / "refused", family=True)


def make_directory(path: Path) -> Path:
    path.mkdir()
    return path
