"""A task is one file and one entry: a toy one, added to a copy of the package, works with every command."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "multihead"
FILE = '''"""rate: how good a text is, as a number from 0 to 10."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multihead.models import TaskModel
from multihead.tasks.pair_scores import SimilarityScorer
from multihead.tasks.spec import SPECS
from multihead.tasks.task import Batch, Prediction, ReadoutKind, Scorer, Task, Values, Window, window_arrays


class Rate(Task):
    spec = SPECS["rate"]
    readout = ReadoutKind("ForSequenceClassification", "mean")

    @classmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        return []

    def classes(self) -> int:
        return 1

    def encode(self, values: Values) -> list[Window]:
        windows = [window_arrays(encoding) for encoding in self.tokenize_windows(values["text"])]
        if "label" in values:
            label = np.array(float(values["label"]) / 10, dtype=np.float32)
            windows = [{**window, "label": label} for window in windows]
        return windows

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        error = self.logits(model, batch)[:, 0] - batch["label"]
        return error.square().sum(), torch.tensor(len(error))

    def forward(self, model: TaskModel, batch: Batch) -> list[Any]:
        return list(self.logits(model, batch)[:, 0].float().cpu().numpy())

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[Any]) -> Prediction:
        return {"score": round(10 * float(np.mean(outputs)), 6)}

    def scorer(self, replicates: int = 1000) -> Scorer:
        return SimilarityScorer(replicates, (0.0, 10.0))
'''
ENTRY = """\
        TaskSpec(
            name="rate",
            implementation="multihead.tasks.rate:Rate",
            inputs=("text",),
            gold=("label",),
            label="label",
            numeric_labels=True,
            unsupported=("train.smoothing", "train.rdrop"),
        ),
"""
RUN = """
task = "rate"
[data]
train = "train.csv"
test = "train.csv"
text = "review"
[tokenizer]
kind = "char"
[model]
dim = 16
layers = 1
heads = 2
[train]
steps = 60
lr = 0.01
batch_tokens = 512
threads = 1
precision = "fp32"
compile = false
"""
SEVERAL = """
[model]
dim = 16
layers = 1
heads = 2
[train]
steps = 4
threads = 1
precision = "fp32"
compile = false
[[tasks]]
name = "stars"
task = "rate"
[tasks.rate]
[tasks.data]
train = "train.csv"
text = "review"
[[tasks]]
name = "words"
task = "mask"
auxiliary = true
[tasks.data]
train = "train.csv"
text = "review"
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the toy task: its file, and its entry."""
    package = tmp_path_factory.mktemp("source") / "multihead"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "tasks" / "rate.py").write_text(FILE, encoding="utf-8")
    specs = package / "tasks" / "spec.py"
    before = specs.read_text(encoding="utf-8")
    end = before.index("    )\n}\n")
    after = before[:end] + ENTRY + before[end:]
    specs.write_text(after, encoding="utf-8")
    changed = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    assert changed == [f"+ {line}" for line in ENTRY.splitlines()]
    return package.parent


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run: reviews whose rating is how many of their words are good."""
    folder = tmp_path_factory.mktemp("place")
    rows = [("+" * (i % 6) + "-" * (5 - i % 6) + " ." * (i % 7), 2 * (i % 6) + 0.5 * (i % 2)) for i in range(84)]
    (folder / "train.csv").write_text("review,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    (folder / "run.toml").write_text(RUN)
    (folder / "several.toml").write_text(SEVERAL)
    return folder


def multihead(source: Path, place: Path, *words: str, given: str = "", code: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, "-m", "multihead", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
        env=environment,
        input=given,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_init(source: Path, place: Path) -> None:
    text = multihead(source, place, "init", "rate", "--scratch")
    assert 'task = "rate"' in text
    assert "\n[rate]\n" in text
    assert 'label = "label"' in text
    assert "decoder_layers" not in text


def test_check_train_evaluate_predict(source: Path, place: Path) -> None:
    assert "unknown" not in multihead(source, place, "check", "run.toml", "data.test=''")
    told = multihead(source, place, "train", "run.toml", "train.smoothing=0.1", code=1)
    assert "train.smoothing needs class labels and does not support task = rate; remove one of them" in told
    multihead(source, place, "train", "run.toml")
    assert (place / "runs/rate/run.toml").read_text().startswith('task = "rate"')
    assert "spearman" in (place / "runs/rate/report.html").read_text(encoding="utf-8")
    scores = json.loads(multihead(source, place, "evaluate", "runs/rate/model", "train.csv", "--json"))
    assert scores["spearman"]["value"] > 0.8
    told = multihead(source, place, "predict", "runs/rate/model", given="+++++\n-----\n")
    good, bad = (json.loads(line)["score"] for line in told.splitlines())
    assert good > bad + 3


def test_beside_another_task(source: Path, place: Path) -> None:
    multihead(source, place, "train", "several.toml")
    told = multihead(source, place, "predict", "runs/several/model", given="+++++\n")
    assert set(json.loads(told)) == {"score"}
