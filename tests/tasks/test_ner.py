"""ner with a conditional random field, from rows to a directory and back; context among rows and alone."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import multihead as mh
from multihead.config import read as read_run
from multihead.data.readers.notation import TagNotation
from multihead.data.readers.read import read_records
from multihead.inference.engine import evaluate, predict_rows, run_windows
from multihead.models import ClassifierReadout, Encoder, ModelConfig, TaskModel
from multihead.models.crf import CRFReadout, crf_nll
from multihead.pretrained import create, save, with_readout
from multihead.pruning.evaluation import encode_rows, make_batches, run_batches, score
from multihead.tasks import Batch, Ner
from multihead.tasks.ner import TagScorer
from multihead.tasks.word_spans import add_context, join_sentences
from multihead.text.tokenizer import Tokenizer
from multihead.training.loop import TrainSettings, fit
from multihead.training.optimizer import adamw
from multihead.training.run import TrainingRun

WORDS = ["Ada", "Bo", "Jones", "visited", "Rome", "Oslo", "."]


def row(i: int) -> dict:
    return {
        "tokens": [WORDS[i % 2], "Jones", "visited", WORDS[4 + i // 2 % 2], "."],
        "tags": ["B-PER", "I-PER", "O", "B-LOC", "O"],
    }


def make(size: int = 48, **options) -> tuple[TaskModel, Ner, list[dict]]:
    rows = [row(i) for i in range(16)]
    tokenizer = Tokenizer.train([" ".join(r["tokens"]) for r in rows], "char", 60)
    task = Ner(tokenizer, Ner.collect_labels(rows), size, 4, **options)
    torch.manual_seed(0)
    config = ModelConfig(
        vocab=len(tokenizer), dim=24, layers=1, heads=2, max_length=size, dropout=0.0, positions="learned",
        token_types=2, pad=tokenizer.special["pad"],
    )  # fmt: skip
    model = TaskModel(Encoder(config), ClassifierReadout(24, len(task.labels), dropout=0.0))
    task.adapt(model)
    return model, task, rows


class TaggedWindows(list):
    @property
    def sizes(self):
        return np.array([len(window["tokens"]) for window in self])


def trained(steps: int = 60, **options) -> tuple[TaskModel, Ner, list[dict]]:
    model, task, rows = make(**options)
    data = TaggedWindows(window for values in rows for window in task.encode(values))
    list(fit(model, task, data, adamw(model, 3e-3), TrainSettings(steps=steps, batch_tokens=400, warmup=5)))
    return model, task, rows


def test_the_loss_is_of_words_and_other_pieces() -> None:
    model, task, rows = make(crf=True)
    assert isinstance(model.readout, CRFReadout)
    with torch.no_grad():
        for part in (model.readout.start, model.readout.end, model.readout.step):
            part.normal_()
    batch = task.collate([task.encode(values)[0] for values in rows[:3]])
    assert (batch["word"] < 0).sum() > (~batch["keep"]).sum() + 6  # some words are in pieces
    total, count = task.loss(model, batch)
    logits = task.logits(model, batch)
    want = torch.zeros((), dtype=torch.float64)
    for b in range(3):
        first = batch["word"][b] >= 0
        start, _, step = (torch.tensor(part) for part in task.rules)
        scores, tags = logits[b][first][None].double(), batch["labels"][b][first][None]
        want += crf_nll(
            scores, tags, torch.tensor([5]), (model.readout.start + start)[None], model.readout.end[None],
            model.readout.step + step,
        ).sum()  # fmt: skip
        inner = ~first & (batch["labels"][b] >= 0)
        want += torch.nn.functional.cross_entropy(logits[b][inner], batch["labels"][b][inner], reduction="sum")
    assert total.item() == pytest.approx(want.item(), rel=1e-5)
    assert int(count) == int((batch["labels"] >= 0).sum())


def test_rows_are_independent_and_padding_changes_nothing() -> None:
    model, task, rows = make(crf=True)
    several = [task.encode(rows[0])[0], task.encode({"tokens": ["Rome"] * 9, "tags": ["B-LOC"] + ["I-LOC"] * 8})[0]]
    together, count = task.loss(model, task.collate(several))
    apart = [task.loss(model, task.collate([window])) for window in several]
    assert together.item() == pytest.approx(sum(loss.item() for loss, _ in apart), rel=1e-5)
    assert int(count) == sum(int(n) for _, n in apart)


def test_it_learns_and_tells_how_sure() -> None:
    model, task, rows = trained(crf=True)
    assert evaluate(model, task, rows, 0).result()["strict.f1"].value == 1
    (_, found), *_ = predict_rows(model, task, rows)
    assert [(e["label"], e["text"]) for e in found["entities"]] == [("PER", "Ada Jones"), ("LOC", "Rome")]
    assert all(0.5 < e["score"] <= 1 for e in found["entities"])
    ((_, raw),) = predict_rows(model, task, [{"text": "Ada Jones visited Rome ."}])
    assert [e["text"] for e in raw["entities"]] == ["Ada Jones", "Rome"]


def test_learnt_moves_decide() -> None:
    """Where the words say nothing, what was learnt of neighbours does."""
    model, task, _ = make(crf=True)
    readout = model.readout
    assert isinstance(readout, CRFReadout)
    o, b = task.numbers["O"], task.numbers["B-LOC"]
    with torch.no_grad():
        readout.scores.weight.zero_()
        readout.scores.bias.zero_()
        readout.start[b] = 5
        readout.step[b, o] = readout.step[o, b] = 5
    ((_, found),) = predict_rows(model, task, [{"tokens": WORDS}])
    assert found["tags"] == ["B-LOC", "O", "B-LOC", "O", "B-LOC", "O", "B-LOC"]
    with torch.no_grad():
        readout.end[o] = 50
    ((_, found),) = predict_rows(model, task, [{"tokens": WORDS}])
    assert found["tags"][-1] == "O"


def test_windows_of_a_long_sentence() -> None:
    """Only the first window begins the sentence, only the last one ends it; decoding runs over all of it."""
    model, task, _ = trained(crf=True, size=16)
    long = {"tokens": row(0)["tokens"] * 12, "tags": row(0)["tags"] * 12}
    windows = task.encode(long)
    assert len(windows) > 2
    ends = [window["ends"].tolist() for window in windows]
    assert ends[0] == [1, 0]
    assert ends[-1] == [0, 1]
    assert all(pair == [0, 0] for pair in ends[1:-1])
    loss, _ = task.loss(model, task.collate(windows))
    assert 0 <= loss.item() < 1e4  # a window may begin inside an entity: nothing is forbidden there
    ((_, found),) = predict_rows(model, task, [long])
    assert len(found["tags"]) == 60


def test_tags_that_continue_nothing_open_an_entity() -> None:
    model, task, _ = make(crf=True)
    broken = {"tokens": ["Ada", "visited", "Rome", "Oslo"], "tags": ["I-PER", "O", "B-LOC", "I-PER"]}
    mended = {**broken, "tags": ["B-PER", "O", "B-LOC", "B-PER"]}
    losses = [task.loss(model, task.collate(task.encode(values)))[0].item() for values in (broken, mended)]
    assert losses[0] == losses[1] < 100


def test_a_row_without_any_word() -> None:
    model, task, rows = make(crf=True)
    empty = task.encode({"tokens": [], "tags": []})
    loss, _ = task.loss(model, task.collate([*empty, task.encode(rows[0])[0]]))
    assert torch.isfinite(loss)
    assert [p for _, p in predict_rows(model, task, [{"tokens": []}])] == [{"entities": [], "text": "", "tags": []}]


RUN = """
task = "ner"
out = "{out}"
[data]
train = "{data}"
[tokenizer]
kind = "wordpiece"
vocab = 80
[model]
dim = 16
layers = 1
heads = 2
max_length = 32
[train]
steps = 12
batch_tokens = 200
save_every = 3
threads = 1
[ner]
crf = true
"""


def test_a_run_resumes_saves_loads_and_is_refused_by_transformers(tmp_path: Path, stopped: Any) -> None:
    data = tmp_path / "train.conll"
    data.write_text(
        "\n\n".join("\n".join(map("\t".join, zip(*row(i).values(), strict=True))) for i in range(60)) + "\n"
    )
    run = stopped(RUN, data)
    again = mh.load(tmp_path / "whole" / "model")
    assert isinstance(again.model.readout, CRFReadout)
    assert again.model.readout.step.abs().max() > 0
    rows = [row(i) for i in range(4)]
    assert again.predict(rows) == [p for _, p in predict_rows(run.model, run.task, rows)]
    assert again.evaluate(rows).keys() >= {"strict.f1"}
    with pytest.raises(ValueError, match="conditional random field"):
        save(again, tmp_path / "hub", family=True)


def test_on_a_familys_body(tmp_path: Path) -> None:
    _, task, rows = make(crf=True)
    config = ModelConfig(
        vocab=len(task.tokenizer), dim=24, layers=1, heads=2, max_length=48, positions="learned", token_types=2,
        embed_norm=True, activation="gelu", norm_eps=1e-12, attention_dropout=0.1,
    )  # fmt: skip
    bert = with_readout(create("bert", "Model", encoder=config), "ForTokenClassification", task.labels)
    bert.tokenizer, bert.task, bert.options = task.tokenizer, "ner", {"size": 48, "crf": True}
    task.adapt(bert.model)
    with pytest.raises(ValueError, match="conditional random field"):
        save(bert, tmp_path / "model", family=True)
    save(bert, tmp_path / "model")
    again = mh.load(tmp_path / "model")
    assert again.predict(rows[:2]) == bert.predict(rows[:2])


def test_neighbours_are_of_the_same_document() -> None:
    rows = [{"tokens": [f"w{i}", f"v{i}"], "document": document} for i, document in enumerate((0, 0, 1, None, None, 1))]
    found = list(add_context([*rows, {"text": "raw"}], 3))
    assert [r.get("tokens") for r in found] == [*(r["tokens"] for r in rows), None]
    assert found[1]["shown"].before == ["w0", "v0"]
    assert found[0]["shown"].after == ["w1", "v1"]
    assert (found[2]["shown"].before, found[2]["shown"].after) == ([], [])
    assert all("shown" not in r for r in (found[3], found[4], found[6]))
    assert found[5]["shown"].before == []


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from([0, 0, 1, None])), max_size=30), st.integers(1, 12))
def test_neighbours_show_all_that_is_wanted_and_every_word_about_three_times(
    made: list[tuple[int, int | None]], count: int
) -> None:
    rows = [
        {"tokens": [f"{i}x{k}" for k in range(n)], "tags": [f"{i}"] * n, "document": document}
        for i, (n, document) in enumerate(made)
    ]
    found = list(add_context(rows, count))
    assert [r["tokens"] for r in found] == [r["tokens"] for r in rows]
    parts = [  # rows of one document that follow each other
        [word for values in some for word in values["tokens"]]
        for key, some in groupby(rows, key=lambda values: values["document"])
        if key is not None
    ]
    every = {id(r["shown"]): r["shown"] for r in found if "shown" in r}
    assert [word for shown in every.values() for word in shown.words] == [word for part in parts for word in part]
    for values in found:
        if values["document"] is None:
            assert "shown" not in values
            continue
        shown, at, size = values["shown"], values["at"], len(values["tokens"])
        assert shown.words[at : at + size] == values["tokens"]
        assert shown.tags[at : at + size] == values["tags"]
        assert len(shown.words) <= max(count, max(len(r["tokens"]) for r in found if r.get("shown") is shown))
        if shown.words:
            whole = next(part for part in parts if shown.words[0] in part)
            first = whole.index(shown.words[0])
            last = first + len(shown.words)
            assert shown.before == whole[max(0, first - count) : first]
            assert shown.after == whole[last : last + count]


@torch.inference_mode()
def test_sentences_that_are_shown_together_are_read_once() -> None:
    model, task, rows = make(size=300, context=15)
    documents = [{**values, "document": i // 10} for i, values in enumerate(rows)]
    prepared = list(task.prepare(documents))
    together = {id(values["shown"]) for values in prepared}
    assert len(together) < len(rows) / 2
    lone = []
    for values in prepared:  # the same words around it, in a window of its own
        own = {**values, "shown": replace(values["shown"], windows=None)}
        windows = task.encode(own)
        lone.append(task.postprocess(own, windows, run_windows(model, task, windows)))
    seen = []

    class Counted(Ner):
        def forward(self, model: TaskModel, batch: Batch) -> list[np.ndarray[Any, Any]]:
            seen.append(len(batch["tokens"]))
            return super().forward(model, batch)

    counted = Counted(task.tokenizer, task.labels, task.size, task.overlap, **task.options)
    found = [prediction for _, prediction in predict_rows(model, counted, documents)]
    assert sum(seen) == len(together)
    assert [f["tags"] for f in found] == [f["tags"] for f in lone]
    done = make_batches(task, encode_rows(task, documents))
    assert sum(len(batch["tokens"]) for _, batch in done.batches) == len(together)
    assert sum(int((batch["labels"] != -100).sum()) for _, batch in done.batches) == sum(
        int((task.encode(values)[0]["labels"] != -100).sum()) for values in rows
    )
    scorers = [task.scorer(0) for _ in range(2)]
    score(task, done, run_batches(done, lambda batch: task.forward(model, batch)), scorers[0])
    for index, (values, prediction) in enumerate(zip(documents, found, strict=True)):
        scorers[1].add(values, prediction, index)
    assert scorers[0].result() == scorers[1].result()


@given(st.lists(st.tuples(st.integers(1, 7), st.sampled_from([0, 1, None])), max_size=20), st.integers(1, 20))
def test_stretches_hold_every_word_once_and_of_one_document(made: list[tuple[int, int | None]], count: int) -> None:
    rows = [
        {"tokens": [f"{i}x{k}" for k in range(n)], "tags": [f"{document}"] * n, "document": document}
        for i, (n, document) in enumerate(made)
    ]
    found = list(join_sentences(rows, count))
    for name in ("tokens", "tags"):
        assert [x for r in found for x in r[name]] == [x for r in rows for x in r[name]]
    assert all(len(set(r["tags"])) == 1 for r in found)
    own = [len(r["tokens"]) for r in rows]
    assert all(len(r["tokens"]) <= count or len(r["tokens"]) in own for r in found)
    for one, other in pairwise(found):  # nothing is cut that could stay together
        if one["document"] is not None and one["document"] == other["document"]:
            following = int(other["tokens"][0].split("x")[0])
            assert len(one["tokens"]) + own[following] > count
    assert sum(r["document"] is None for r in found) == sum(r["document"] is None for r in rows)


def test_a_document_ends_with_its_file() -> None:
    rows = [{"tokens": [f"{file}{i}"], "tags": ["O"], "document": 0, "file": file} for file in "ab" for i in range(2)]
    assert [r["tokens"] for r in join_sentences(rows, 9)] == [["a0", "a1"], ["b0", "b1"]]
    shown = [(values["shown"], values["at"]) for values in add_context(rows, 9)]
    assert [(one.before, one.words, one.after, at) for one, at in shown] == [
        ([], [f"{file}0", f"{file}1"], [], i) for file in "ab" for i in range(2)
    ]


def test_tags_of_another_scheme_are_named() -> None:
    with pytest.raises(ValueError, match=r"'U-LOC' are not BIO; set ner\.scheme = \"BILOU\""):
        Ner.collect_labels([{"tags": ["O", "B-PER", "U-LOC"]}])
    with pytest.raises(ValueError, match="BMES"):
        Ner.collect_labels([{"tags": ["B-PER", "M-PER", "E-PER"]}])
    assert Ner.collect_labels([{"tags": ["NN", "S-x"]}]) == ["NN", "S-x"]


def test_a_row_that_stands_alone_is_not_held_back() -> None:
    asked = []

    def rows():
        for i in range(3):
            asked.append(i)
            yield {"text": f"text {i}"}

    for i, _ in enumerate(add_context(rows(), 5)):
        assert asked == list(range(i + 1))


def test_tokens_are_scored_as_a_user_gets_them_from_raw_text() -> None:
    """A file cut into characters, with numbers and Latin letters among the Chinese ones: tokens and text are one."""
    model, task, _ = make()
    text = "王伟1963年在IBM工作，去了Rome。"
    ((_, tokens), (_, raw)) = predict_rows(model, task, [{"tokens": list(text)}, {"text": text}])
    assert tokens["text"] == text
    assert tokens["entities"] == raw["entities"]
    assert len(tokens["tags"]) == len(text)
    (by_tokens,), (by_text,) = task.encode({"tokens": list(text)}), task.encode({"text": text})
    assert by_tokens["tokens"].tolist() == by_text["tokens"].tolist()


def test_half_of_a_token_is_no_right_entity() -> None:
    values = {"tokens": ["Ada-Jo", "left"], "tags": ["B-PER", "O"]}
    whole = {"start": 0, "end": 6, "label": "PER", "text": "Ada-Jo", "score": 1.0}
    scorers = []
    for end in (6, 3):
        scorers.append(TagScorer(["O", "B-PER", "I-PER"], 0))
        prediction = {"text": "Ada-Jo left", "entities": [{**whole, "end": end}], "tags": ["B-PER", "O"]}
        assert scorers[-1].add(values, prediction, 0) == (end == 6)
    assert [scorer.result()["strict.f1"].value for scorer in scorers] == [1.0, 0.0]


TOKEN = st.text(alphabet="aB1.,'\"(-%年京，。é\u0301\u3000 \U0001f600", min_size=1, max_size=4).filter(str.strip)


@pytest.fixture(scope="module")
def talkative() -> tuple[TaskModel, Ner]:
    """What it says does not matter, but it says much."""
    model, task, _ = make(size=24)
    with torch.no_grad():
        model.readout.scores.weight.mul_(40)
    return model, task


@given(st.data())
def test_offsets_are_of_the_text_that_a_prediction_holds(talkative: tuple[TaskModel, Ner], data: st.DataObject) -> None:
    model, task = talkative
    tokens = data.draw(st.lists(TOKEN, min_size=1, max_size=12))
    values: dict[str, Any] = {"tokens": tokens}
    if data.draw(st.booleans()):
        values["spaces"] = data.draw(st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
    ((_, found),) = predict_rows(model, task, [task.validate(task.map_columns(values), "here")])
    at = 0
    for token in tokens:  # all tokens stand in the text, in their order, with spaces between them at most
        assert found["text"][at:].lstrip(" ").startswith(token.lstrip(" "))
        at = found["text"].index(token, at) + len(token)
    assert not found["text"][at:]
    assert len(found["tags"]) == len(tokens)
    for entity in found["entities"]:
        assert found["text"][entity["start"] : entity["end"]] == entity["text"]
        assert entity["text"] == entity["text"].strip(" ")
    ((_, raw),) = predict_rows(model, task, [{"text": found["text"]}])
    assert raw["entities"] == found["entities"]  # the offsets that a user gets of the same text


def test_answers_are_in_the_notation_of_the_inputs_tags(tmp_path: Path) -> None:
    """Of files, of lists and of streams; inputs without tags are answered as the training data is written."""
    train = tmp_path / "train.conll"
    tags = ["B-PER", "E-PER", "O", "S-LOC", "O"], ["B-PER", "M-PER", "E-PER", "O"]
    words = row(0)["tokens"], ["Ada", "Bo", "Jones", "."]
    both = [zip(*pair, strict=True) for pair in zip(words * 20, tags * 20, strict=True)]
    train.write_text("\n\n".join("\n".join(map("\t".join, rows)) for rows in both) + "\n")
    run = RUN.format(out=tmp_path / "out", data=train).replace("crf = true", "")
    run = run.replace("[tokenizer]", f'valid = "{train}"\n[tokenizer]').replace("save_every = 3\n", "lr = 1e-2\n")
    training = TrainingRun(read_run(run))
    for _ in training:
        pass
    training.finish(replicates=0)
    model = mh.load(tmp_path / "out" / "model")
    tokens = {"tokens": ["Ada", "Bo", "Jones", "."]}
    bio = model({**tokens, "tags": ["B-LOC", "I-LOC", "O", "B-LOC"]})["tags"]
    assert set(bio) <= set(training.subjects[0].task.labels)
    assert set(bio) != {"O"}
    assert model(tokens)["tags"] == TagNotation("BMES").write(bio) != bio
    for letters in ("BIIB", "IIII", "BILU", "BIES", "BMES"):
        right = TagNotation(letters).write(bio)
        given = {**tokens, "tags": [*(f"{letter}-LOC" for letter in letters[:3]), "O"]}
        assert model(given)["tags"] == right
        assert [answer["tags"] for answer in model([tokens, given])] == [right, right]
        assert [answer["tags"] for answer in model(iter([given, tokens]))] == [right, right]


def test_columns_of_a_user_are_not_taken_for_ours(tmp_path: Path) -> None:
    """`at` moved every tag of a row, and `shown` or `belief` ended in a traceback."""
    odd = {"shown": 1, "at": 3, "of": 4, "belief": "x", "notation": "BMES", "raw_text": 5, "line": 7}
    for name, more in (("plain", {}), ("odd", odd)):
        rows = "".join(json.dumps({**row(i), **more}) + "\n" for i in range(60))
        (tmp_path / f"{name}.jsonl").write_text(rows)
    readings = [
        [record.placed for record in read_records(tmp_path / f"{name}.jsonl", task="ner")] for name in ("plain", "odd")
    ]
    assert [{**values, "file": ""} for values in readings[0]] == [{**values, "file": ""} for values in readings[1]]
