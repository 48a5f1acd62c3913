"""New models begin in a state that they can learn from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import multihead as mh
from multihead.config import read
from multihead.models import ClassifierReadout
from multihead.training.run import TrainingRun

from .conftest import Runs, runs_of

TASKS = {
    "classify": "text,label\n" + "".join(f"{word} film,{i % 2}\n" for i, word in enumerate("abcdefghijklmnop")),
    "mask": "".join(f"{word} film is long\n" for word in "abcdefghijklmnop"),
    "translate": "".join(f"{word} film\tein {word} film\n" for word in "abcdefghijklmnop"),
    "generate": "".join(f"{word} film is long\n" for word in "abcdefghijklmnop"),
}


@pytest.mark.parametrize("norm_first", ["true", "false"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("task", list(TASKS))
def test_tokens_are_heard(task: str, positions: str, norm_first: str, tmp_path: Path) -> None:
    """Of what comes out of a new stem, a good part tells tokens apart: positions and types must not drown them."""
    suffix = {"classify": "csv", "translate": "tsv"}.get(task, "txt")
    (tmp_path / f"a.{suffix}").write_text(TASKS[task])
    (tmp_path / "run.toml").write_text(
        f'task = "{task}"\nout = "{tmp_path}/out"\n[data]\ntrain = "{tmp_path}/a.{suffix}"\n'
        + ('format = "pairs"\n' if task == "translate" else "")
        + '[tokenizer]\nkind = "bpe"\nvocab = 300\n[train]\nsteps = 1\nthreads = 1\n'
        + f'[model]\ndim = 64\nlayers = 1\nheads = 2\nmax_length = 32\npositions = "{positions}"\n'
        + f"norm_first = {norm_first}\n"
    )
    body = TrainingRun(read(tmp_path / "run.toml")).model.eval().body
    for side in (getattr(body, name, None) for name in ("encoder", "decoder")) if task == "translate" else (body,):
        stem = side.stem
        tokens = torch.randint(10, stem.embedding.num_embeddings, (200, 8))
        with torch.no_grad():
            x = stem(tokens, slice(0, 8))  # [200, 8, D]
        apart = x.var(0).sum()  # by the token, at the same place
        assert apart > 0.2 * x.square().mean((0, 1)).sum() * 8


@pytest.mark.parametrize(
    ("start", "pool", "over", "kind"),
    [(False, "auto", "mean", "multihead"), (False, "first", "first", "multihead"), (True, "auto", "first", "bert"),
     (True, "mean", "mean", "multihead")],
)  # fmt: skip
def test_what_is_judged(runs: Runs, start: bool, pool: str, over: str, kind: str) -> None:
    """A new model judges the mean of all tokens; one of a family does what its family does, unless it is told."""
    run = TrainingRun(read(runs.text("run", runs.bert() if start else None), [f"classify.pool={pool}"]))
    readout = run.model.readout
    assert isinstance(readout, ClassifierReadout)
    assert readout.over == over
    assert (readout.dense is None) == (over == "mean")
    for _ in run:
        pass
    run.finish(replicates=0)
    again = mh.load(runs.directory / "run" / "model")
    assert again.config["model_type"] == kind
    texts = ["a lovely film", "a dull plot, a poor end", "great"]
    assert again.predict(texts) == run.loaded.predict(texts)


def test_vectors_know_no_first_and_second(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, "match")
    with pytest.raises(ValueError, match=r"match\.symmetric needs kind"):
        runs.make("run", "match.kind=bi", "match.symmetric=true")


def test_a_pair_without_an_order_is_told_as_one_input(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, "match")
    run = runs.make("run", "match.symmetric=true", steps=4)
    assert len(run.examples) == 2 * run.examples.inputs.rows
    assert run.examples.inputs.windowed == 0
    for _ in run:
        pass
    run.finish(replicates=0)
    again = mh.load(runs.directory / "run" / "model")
    a, b = {"text_a": "Ada went to Rome", "text_b": "Bo"}, {"text_a": "Bo", "text_b": "Ada went to Rome"}
    assert again.predict([a]) == again.predict([b])
