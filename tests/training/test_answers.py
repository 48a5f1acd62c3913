"""`answer` from a file: what the token cache stores small must come back as the loss wants it."""

from __future__ import annotations

import json
from pathlib import Path

from multihead.config import read
from multihead.training.run import TrainingRun

COLOURS = ["red", "blue", "green", "white"]


def test_answers_train_from_a_file_and_are_found(tmp_path: Path) -> None:
    paragraphs = []
    for i in range(24):
        ball, box = COLOURS[i % 4], COLOURS[(i + 1 + i // 4) % 4]
        context = f"the ball is {ball} and the box is {box} today"
        asked = [
            {
                "id": f"{i} {thing}",
                "question": f"what is the {thing}",
                "answers": [{"text": text, "answer_start": at}],
            }
            for thing, text, at in (("ball", ball, 12), ("box", box, 12 + len(ball) + 16))
        ]
        paragraphs.append({"context": context, "qas": asked})
    (tmp_path / "train.json").write_text(json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]}))
    (tmp_path / "run.toml").write_text(
        f'task = "answer"\nout = "{tmp_path / "out"}"\n[data]\ntrain = "train.json"\nvalid = "train.json"\n'
        '[tokenizer]\nkind = "wordpiece"\nvocab = 100\n[model]\ndim = 32\nlayers = 2\nheads = 2\nmax_length = 64\n'
        "[train]\nsteps = 150\nbatch_tokens = 512\nlr = 3e-3\nthreads = 1\n"
    )
    training = TrainingRun(read(tmp_path / "run.toml"))
    for _ in training:
        pass
    scores = training.finish(replicates=0)["valid"].result()
    assert scores["f1"].value > 90


def test_a_question_without_end_is_cut_and_told(tmp_path: Path) -> None:
    rows = [
        {"question": "what " * (90 if i == 3 else 1), "context": "it is red", "answers": [{"text": "red", "start": 6}]}
        for i in range(12)
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run.toml").write_text(
        f'task = "answer"\nout = "{tmp_path / "out"}"\n[data]\ntrain = "train.jsonl"\nvalid = "valid.jsonl"\n'
        '[tokenizer]\nkind = "wordpiece"\nvocab = 60\n[model]\ndim = 16\nlayers = 1\nheads = 2\nmax_length = 48\n'
        "[train]\nsteps = 1\nthreads = 1\n"
    )
    (tmp_path / "valid.jsonl").write_text(json.dumps(rows[3]) + "\n")
    training = TrainingRun(read(tmp_path / "run.toml"))
    assert any(note.startswith("1 rows are longer than 48 tokens: ") for note in training.examples.notes)
    for _ in training:
        pass
    assert training.finish(replicates=0)["valid"].result()["f1"].value >= 0  # it is scored all the same
