"""Runs on small made files, one for each of three tasks."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from multihead.config import read
from multihead.models import ModelConfig
from multihead.pretrained import create, save
from multihead.text.tokenizer import Tokenizer
from multihead.training import partial_embedding as rows
from multihead.training.run import TrainingRun

GOOD, BAD = ["fine", "lovely", "great", "warm", "很好"], ["dull", "cold", "poor", "slow", "很差"]
NAMES, PLACES = ["Ada", "Bo", "Cleo", "王明", "Eve"], ["Rome", "Oslo", "Lima", "北京", "Cork"]
MODEL = '[tokenizer]\nkind = "wordpiece"\nvocab = 200\n[model]\ndim = 16\nlayers = 2\nheads = 2\nmax_length = 32\n'


def classify(pick: random.Random) -> str:
    good = pick.random() < 0.5
    words = pick.choices(GOOD if good else BAD, k=pick.randint(1, 3)) + pick.choices(["film", "plot", "end"], k=2)
    pick.shuffle(words)
    return f"{' '.join(words)},{'good' if good else 'bad'}"


def match(pick: random.Random) -> str:
    name, place = pick.choice(NAMES), pick.choice(PLACES)
    same = pick.random() < 0.5
    other = place if same else pick.choice([p for p in PLACES if p != place])
    return f"{name} went to {place}{pick.choice(['', ' today'])},{name} is in {other},{'same' if same else 'other'}"


def ner(pick: random.Random) -> str:
    words = [(pick.choice(NAMES), "B-PER"), ("saw", "O"), (pick.choice(PLACES), "B-LOC"), ("film", "O")]
    if pick.random() < 0.5:
        words[1:1] = [("Jones", "I-PER")]
    return "\n".join(f"{word} {tag}" for word, tag in words[: pick.randint(2, 5)]) + "\n"


ROWS = {"classify": classify, "match": match, "ner": ner}
HEADERS = {"classify": ["text,label"], "match": ["text_a,text_b,label"], "ner": []}


@dataclass(frozen=True)
class Runs:
    """Runs below one directory, all on the same file."""

    directory: Path
    task: str
    data: Path

    def text(self, out: str, start: Path | None = None, **train) -> str:
        settings = {
            "steps": 24, "batch_tokens": 160, "lr": 3e-3, "save_every": 5, "eval_every": 8, "threads": 1,
            "precision": "fp32",
        }  # fmt: skip
        lines = [f"{key} = {json.dumps(value)}" for key, value in (settings | train).items()]
        source, model = ("", MODEL) if start is None else (f'from = "{start}"\n', "")
        return (
            f'task = "{self.task}"\nout = "{self.directory / out}"\n{source}[data]\ntrain = "{self.data}"\n{model}'
            "[train]\n" + "\n".join(lines)
        )

    def make(self, out: str, *changes: str, fresh: bool = False, **train) -> TrainingRun:
        return TrainingRun(read(self.text(out, **train), changes), fresh=fresh)

    def whole(self, out: str, *changes: str, **train) -> str:
        """The SHA-256 of the weights that a run ends with."""
        run = self.make(out, *changes, **train)
        for _ in run:
            pass
        run.finish(replicates=0)
        return self.fingerprint(out)

    def fingerprint(self, out: str) -> str:
        return hashlib.sha256((self.directory / out / "model" / "model.safetensors").read_bytes()).hexdigest()

    def log(self, out: str) -> list[dict]:
        """Without times."""
        lines = (self.directory / out / "log.jsonl").read_text(encoding="utf-8").split("\n")
        records = [json.loads(line) for line in lines if line]
        return [{k: v for k, v in record.items() if k != "seconds"} for record in records]

    def bert(self, *more: str) -> Path:
        """A small BERT to start from, as transformers has them; its weights are random. more: texts that it knows
        beside those of the data."""
        directory = self.directory / f"bert-{len(more)}"
        if not directory.exists():
            texts = [*self.data.read_text(encoding="utf-8").split("\n"), *more]
            tokenizer = Tokenizer.train(texts, "wordpiece", 200 if not more else 400)
            torch.manual_seed(0)
            config = ModelConfig(
                vocab=len(tokenizer), dim=16, layers=2, heads=2, max_length=32, activation="gelu", positions="learned",
                norm_first=False, embed_norm=True, final_norm=False, token_types=2, pad=tokenizer.special["pad"],
                dropout=0.1, norm_eps=1e-12,
            )  # fmt: skip
            save(create("bert", "ForMaskedLM", encoder=config, tokenizer=tokenizer), directory)
        return directory


def runs_of(directory: Path, task: str) -> Runs:
    pick = random.Random(0)
    data = directory / ("train.conll" if task == "ner" else "train.csv")
    rows = HEADERS[task] + [ROWS[task](pick) for _ in range(120)]
    data.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return Runs(directory, task, data)


@pytest.fixture
def runs(tmp_path):
    return runs_of(tmp_path, "classify")


@pytest.fixture
def ner_runs(tmp_path):
    return runs_of(tmp_path, "ner")


@pytest.fixture(params=ROWS)
def each_runs(tmp_path, request):
    return runs_of(tmp_path, request.param)


@pytest.fixture
def whole_tables(monkeypatch):
    """Checkpoints hold every row of the embeddings, as the model in the end does."""
    monkeypatch.setattr(rows, "WORTH", -1.0)
