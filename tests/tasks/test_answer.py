"""answer: which tokens are learnt as the answer, and rows that teach none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from multihead.data.readers.read import read_records
from multihead.inference.engine import predict_rows
from multihead.models import ClassifierReadout, Encoder, ModelConfig, TaskModel
from multihead.tasks.answer import Answer
from multihead.text.tokenizer import Tokenizer
from multihead.training.dataset import Split, encode_dataset

CONTEXT = "The tower was built in 1889 by Gustave Eiffel ."
LONG = {"question": "Who?", "context": "one two three four five six seven " * 9}


def made(kind: str = "wordpiece", size: int = 64) -> Answer:
    return Answer(Tokenizer.train([CONTEXT, "Who built it?", LONG["context"]], kind, 300), [], size, 4, no_answer=True)


def spans(task: Answer, text: str) -> list[list[int]]:
    answers = [{"text": text, "start": CONTEXT.index(text)}]
    windows = task.encode({"question": "Who built it?", "context": CONTEXT, "answers": answers})
    assert task.skip_reason(windows) == ""
    return [window["span"].tolist() for window in windows]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_spaces_at_the_ends_of_an_answer_change_nothing(kind: str) -> None:
    task = made(kind)
    want = spans(task, "1889")
    assert want != [[0, 0]]
    assert spans(task, " 1889") == spans(task, "1889 ") == spans(task, " 1889 ") == want


@torch.no_grad()
def test_an_answer_that_no_window_holds_is_not_learnt_as_none() -> None:
    task = made(size=24)
    lost = {**LONG, "answers": [{"text": LONG["context"].strip(), "start": 0}]}
    windows = task.encode(lost)
    assert len(windows) > 1
    assert "contains the full answer" in task.skip_reason(windows)
    none = task.encode({**LONG, "answers": []})
    assert task.skip_reason(none) == ""
    assert all(window["span"].tolist() == [0, 0] for window in none)
    config = ModelConfig(vocab=len(task.tokenizer), dim=8, layers=1, heads=2, max_length=24, token_types=2)
    model = TaskModel(Encoder(config), ClassifierReadout(8, 2))
    assert task.loss(model, task.collate(windows))[0].item() == 0
    assert len(list(predict_rows(model, task, [lost]))) == 1  # it can be asked and scored all the same


def test_such_rows_are_left_out_and_told(tmp_path: Path) -> None:
    whole = LONG["context"].strip()
    answers = [("one", 0), (whole, 0), ("two ", 4)]
    lines = [
        f'{{"question": "Who?", "context": "{whole}", "answers": [{{"text": "{text}", "start": {start}}}]}}\n'
        for text, start in answers
    ]
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    task = made(size=24)
    reading = read_records(str(tmp_path / "rows.jsonl"), task="answer")
    found = encode_dataset(task, Split(reading), tmp_path / "cache", "key")
    (note,) = found.notes
    assert note.startswith("1 rows are not used: no window")
    assert note.endswith("rows.jsonl:2")
    assert found.inputs is not None
    assert found.inputs.rows == 2
