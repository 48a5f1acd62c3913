"""From a file to answers, through the commands as a person types them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer

import multihead as mh
from multihead.cli.data_arguments import open_reader
from multihead.cli.train import run_of


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, multihead: Any, reviews: Any) -> Path:
    folder = tmp_path_factory.mktemp("place")
    (folder / "train.csv").write_text(reviews(200, 0))
    (folder / "test.csv").write_text(reviews(60, 1))
    (folder / "run.toml").write_text(
        'task = "classify"\nout = "runs/a"\n[data]\ntrain = "train.csv"\ntest = "test.csv"\ntext = "review"\n'
        'label = "verdict"\n[tokenizer]\nkind = "wordpiece"\nvocab = 300\n[model]\ndim = 16\nlayers = 1\nheads = 2\n'
        "max_length = 32\n[train]\nsteps = 80\nlr = 5e-3\nbatch_tokens = 300\nthreads = 1\n"
    )
    done = multihead("train", "run.toml", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)
    assert scores["test"]["accuracy"]["value"] > 0.95
    return folder


def test_a_run_leaves_what_it_promises(place: Path, multihead: Any) -> None:
    for name in ("model/model.safetensors", "model/config.json", "model/tokenizer.json", "model/multihead.json",
                 "run.toml", "log.jsonl", "metrics.json", "report.html"):  # fmt: skip
        assert (place / "runs/a" / name).is_file(), name
    again = multihead("train", "runs/a/run.toml", cwd=place)
    assert again.returncode == 0, again.stderr
    assert "all finished; scoring again; --fresh starts over" in again.stdout


def test_predict_streams_text_and_json(place: Path, multihead: Any) -> None:
    lines = "a lovely fine one\n" + json.dumps({"text": "poor and cold"}) + "\n"
    done = multihead("predict", "runs/a/model", cwd=place, given=lines)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line) for line in done.stdout.split("\n") if line)
    assert (first["label"], second["label"]) == ("good", "bad")
    assert first["score"] == max(first["scores"].values())
    broken = multihead("predict", "runs/a/model", cwd=place, given='fine\n{"text": 3}\n')
    assert broken.returncode == 1
    assert "line 2" in broken.stderr
    assert "Traceback" not in broken.stderr


def test_evaluate_and_compare(place: Path, multihead: Any) -> None:
    done = multihead("evaluate", "runs/a/model", "test.csv", "text=review", "label=verdict", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((place / "runs/a/metrics.json").read_text())
    assert json.loads(done.stdout)["accuracy"] == metrics["test"]["accuracy"]
    remembered = multihead("evaluate", "runs/a/model", "test.csv", "--json", cwd=place)
    assert remembered.stdout == done.stdout
    header, rest = (place / "test.csv").read_text().split("\n", 1)
    assert header == "review,verdict"
    (place / "usual.csv").write_text(f"text,label\n{rest}")
    assert multihead("evaluate", "runs/a/model", "usual.csv", "--json", cwd=place).stdout == done.stdout
    (place / "others.csv").write_text(f"body,label\n{rest}")
    wrong = multihead("evaluate", "runs/a/model", "others.csv", cwd=place)
    assert wrong.returncode == 1
    assert "no column 'text' for text; the file has: body, label" in wrong.stderr
    odd = multihead("evaluate", "runs/a/model", "test.csv", "text=review", "labl=verdict", cwd=place)
    assert odd.returncode == 2
    assert "classify has no 'labl'; it has: text, label" in odd.stderr
    same = multihead("compare", "runs/a/model", "runs/a/model", "test.csv", "text=review", "label=verdict", cwd=place)
    assert same.returncode == 0, same.stderr
    assert "only the second has right: 0" in same.stdout
    assert multihead("train", "run.toml", "out=runs/raw", "train.steps=1", cwd=place).returncode == 0
    models = ("runs/a/model", "runs/raw/model")
    other = multihead("compare", *models, "test.csv", "text=review", "label=verdict", cwd=place)
    flips = [json.loads(line) for line in other.stdout.splitlines() if line.startswith("{")]  # a line each, unbroken
    assert len(flips) == 5
    rows = (place / "test.csv").read_text().splitlines()
    assert all(rows[flip["line"] - 1] == f"{flip['text']},{flip['label']}" for flip in flips)
    assert all(flip["first"]["label"] != flip["second"]["label"] for flip in flips)


def test_rows_that_are_not_scored_are_told(place: Path, multihead: Any) -> None:
    (place / "[some].csv").write_text("text,label\nfine,good\nbroken\ncold,bad\npoor,bad\nbroken too\n")
    told = "5 rows: 3 used, 2 rejected\n  2 × wrong number of fields\n  first: [some].csv:3: 1 fields"
    one = ("evaluate", "runs/a/model", "[some].csv")
    two = ("compare", "runs/a/model", "runs/a/model", "[some].csv")
    assert told in multihead(*one, cwd=place).stdout
    for command in ((*one, "--json"), two):
        done = multihead(*command, cwd=place)
        assert done.returncode == 0, done.stderr
        assert told in done.stderr
        assert "rejected" not in done.stdout


def test_no_row_has_no_score(place: Path, multihead: Any) -> None:
    (place / "none.csv").write_text("text,label\nbroken\nbroken too\n")
    for command in (("evaluate", "--json", "runs/a/model"), ("compare", "runs/a/model", "runs/a/model")):
        done = multihead(*command, "none.csv", cwd=place)
        assert (done.returncode, done.stdout) == (1, "")
        assert "none.csv: no example to score\n  2 rows: 0 used, 2 rejected" in done.stderr
    with pytest.raises(ValueError, match="no example to score"):
        mh.load(place / "runs/a/model").evaluate([])


def test_mixed_tags_are_scored_in_the_scheme_that_is_said(tmp_path: Path, multihead: Any) -> None:
    mixed = ["Ada I-PER\nsaw O\nRome I-LOC\n", "Bo B-PER\nsaw O\n"] * 30
    (tmp_path / "mixed.conll").write_text("\n".join(mixed))
    sentences = [zip(*(line.split() for line in sentence.splitlines()), strict=True) for sentence in mixed]
    rows = [json.dumps(dict(zip(("tokens", "tags"), sentence, strict=True))) for sentence in sentences]
    (tmp_path / "mixed.jsonl").write_text("\n".join(rows))
    keys = [
        "ner.scheme=IOB1",
        "data.valid=mixed.conll",
        "out=o",
        "model.dim=8",
        "model.layers=1",
        "model.heads=2",
        "train.steps=1",
    ]
    done = multihead("train", "--task", "ner", "--data", "mixed.conll", *keys, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    task = mh.load(tmp_path / "o/model").make_task()
    with pytest.raises(ValueError, match=r"or set ner\.scheme = "):
        list(open_reader(task, tmp_path / "mixed.conll", []))
    for file in ("mixed.conll", "mixed.jsonl"):
        for said in ("scheme=IOB1", "ner.scheme=IOB1"):
            first = next(iter(open_reader(task, tmp_path / file, [said])))
            assert first.values["tags"] == ["B-PER", "O", "B-LOC"]
    for wrong, told in (
        ("scheme=iob", "unknown scheme 'iob'; use one of: IOB1, BIO"),
        ("shceme=BIO", "encoding, scheme"),
    ):
        with pytest.raises(typer.BadParameter, match=told):
            open_reader(task, tmp_path / "mixed.conll", [wrong])
    done = multihead("evaluate", "o/model", "mixed.conll", "scheme=IOB1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "strict.f1" in json.loads(done.stdout)


@pytest.mark.parametrize(
    ("flag", "value", "key"),
    [
        ("task", "ner", "task=ner"),
        ("data", ["my rows.csv"], "data.train='my rows.csv'"),
        ("data", ["a.en", "a.de"], r"data\.train='\[\"a\.en\", \"a\.de\"\]'"),
        ("start", "a/b", "from=a/b"),
    ],
)
def test_flags_beside_a_run_file_are_refused(flag: str, value: str | list[str], key: str) -> None:
    given = {"task": None, "data": None, "start": None, flag: value}
    with pytest.raises(typer.BadParameter, match=f"without a run file; change the file's key: {key}"):
        run_of(["run.toml"], **given)


def test_training_files_without_a_run_file() -> None:
    """Of two parallel ones the first was dropped without a word."""
    both = (str(Path("a.en").absolute()), str(Path("a.de").absolute()))
    assert run_of([], "translate", ["a.en", "a.de"], None).data.train == both
    assert run_of([], "ner", ["a.en"], None).data.train == both[0]
    assert run_of(["data.train=['a.en', 'a.de']"], "translate", None, None).data.train == both
    with pytest.raises(typer.BadParameter, match="give --task and --data"):
        run_of(["data.valid=a.conll"], "ner", [], None)


def test_tables_are_predicted_by_their_columns(place: Path, multihead: Any) -> None:
    rows = (place / "test.csv").read_text().splitlines()[1:]
    done = multihead("predict", "runs/a/model", "test.csv", "text=review", cwd=place)
    assert done.returncode == 0, done.stderr
    texts = "".join(row.rpartition(",")[0] + "\n" for row in rows)
    assert done.stdout == multihead("predict", "runs/a/model", cwd=place, given=texts).stdout
    assert done.stdout == multihead("predict", "runs/a/model", "test.csv", cwd=place).stdout  # as in the training data
    named = "".join(json.dumps({"review": text}) + "\n" for text in texts.splitlines())
    assert done.stdout == multihead("predict", "runs/a/model", cwd=place, given=named).stdout
    other = named.replace("review", "body")
    assert done.stdout == multihead("predict", "runs/a/model", "-", "text=body", cwd=place, given=other).stdout
    first, second = mh.load(place / "runs/a/model").predict([{"review": texts.splitlines()[0]}, texts.splitlines()[0]])
    assert first == second
    odd = multihead("predict", "runs/a/model", "test.csv", "review", cwd=place)
    assert odd.returncode == 2
    assert "write text=COLUMN" in odd.stderr
    (place / "lost.csv").write_text("body,label\nfine,good\n")
    lost = multihead("predict", "runs/a/model", "lost.csv", cwd=place)
    assert lost.returncode == 1
    assert "no column 'text'" in lost.stderr


def test_wrong_paths_are_told_with_the_right_ones(place: Path, multihead: Any) -> None:
    run = multihead("predict", "runs/a", "test.csv", cwd=place)
    assert "runs/a is a run; its model, once it is trained, is runs/a/model" in run.stderr
    assert "did you mean runs/a/run.toml?" in multihead("check", "runs/a", cwd=place).stderr
    assert "create one: multihead init TASK > no.toml" in multihead("train", "no.toml", cwd=place).stderr
    gone = multihead("check", "run.toml", "from=path/to/model", cwd=place)
    assert gone.returncode == 1
    assert "no such model" in gone.stdout
    told = json.loads(multihead("check", "run.toml", "from=path/to/model", "--json", cwd=place).stdout)
    assert told[0]["code"] == "no model"


def test_a_file_of_another_kind_is_named(place: Path, multihead: Any) -> None:
    (place / "words.conll").write_text("Ada B-PER\nran O\n\nBo B-PER\n")
    for verb in ("check", "train"):
        done = multihead(verb, "run.toml", "data.train=words.conll", "out=runs/other", cwd=place)
        assert done.returncode == 1
        assert "words.conll:1: the task needs text and label, the file has tokens, tags" in done.stderr.replace(
            "\n", ""
        )


def test_check_is_a_gate(place: Path, multihead: Any, reviews: Any) -> None:
    copied = multihead("check", "run.toml", "data.test=train.csv", cwd=place)
    assert copied.returncode == 1
    assert "stop" in copied.stdout
    (place / "odd.csv").write_text(reviews(20, 2) + "what is this,so-so\n")
    unseen = multihead("check", "run.toml", "data.test=odd.csv", cwd=place)
    assert unseen.returncode == 1
    assert "so-so" in unseen.stdout


def test_check_counts_what_a_teacher_labels(place: Path, multihead: Any) -> None:
    tested = (place / "test.csv").read_text(encoding="utf-8").split("\n")[1].rsplit(",", 1)[0]
    (place / "more.txt").write_text(f"{tested}\nanother text\n", encoding="utf-8")
    done = multihead("check", "run.toml", "data.teacher=runs/a/model", "data.unlabelled=more.txt", cwd=place)
    assert "unlabelled: 2 rows: 2 used, 0 rejected" in done.stdout
    assert "also occur in unlabelled: 1 exactly" in done.stdout.replace("\n", " ")


def test_check_stops_what_train_would_refuse_and_prints_what_stands_there(place: Path, multihead: Any) -> None:
    folder = place / "[old] data"
    folder.mkdir()
    rows = [f"text number {i},{i % 30}" for i in range(300)]
    (folder / "train.csv").write_text("\n".join(["review,verdict", *rows]) + "\n")
    (folder / "test.csv").write_text("review,verdict\nanother text,34\n")
    names = [f"data.{side}={folder / side}.csv" for side in ("train", "test")]
    numbered = multihead("check", "run.toml", *names, cwd=place)  # more than 20 numbers were taken for a scale
    assert numbered.returncode == 1
    assert "labels that do not occur in train: '34'" in numbered.stdout
    (folder / "train.csv").write_text("\n".join(["review,verdict", "[/b] cut, off, short", *rows]) + "\n")
    told = multihead("check", "run.toml", names[0], cwd=place)
    assert "[old] data/train.csv:2" in told.stdout.replace("\n", "")
    one = "\n".join(["review,verdict", *(f"text {i},good" for i in range(40))])
    (folder / "train.csv").write_text(one + "\n")
    same = multihead("check", "run.toml", names[0], "data.test=''", cwd=place)
    assert same.returncode == 1
    assert "every row has the label 'good'; a classifier needs at least two" in same.stdout.replace("\n", " ")


def test_check_sets_up_as_training_would(place: Path, multihead: Any) -> None:
    rows = [{"text": f"text {i}", "label": ["good", "bad"] if i == 7 else "good"} for i in range(40)]
    (place / "lists.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = ["data.train=lists.jsonl", "data.test=''", "data.text=text", "data.label=label"]
    for verb in ("check", "train"):
        done = multihead(verb, "run.toml", *changes, "out=runs/lists", cwd=place)
        assert done.returncode == 1
        said = (done.stdout + done.stderr).replace("\n", " ")
        assert "lists.jsonl:8: 2 labels for one text; set classify.multi_label = true" in said
    rows = [f"{'many words ' * (400 if i == 5 else 1)}{i},{'good' if i % 2 else 'bad'}" for i in range(60)]
    (place / "long.csv").write_text("\n".join(["review,verdict", *rows]) + "\n")
    told = multihead("check", "run.toml", "data.train=long.csv", "data.test=''", cwd=place)
    assert told.returncode == 0
    assert re.search(
        r"note  train: 1 of 5\d inputs \(1\.\d%\) are longer than \d+ tokens and split into windows", told.stdout
    )


def test_a_signal_saves_and_tells_how_to_go_on(place: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "multihead", "train", "run.toml", "out=runs/stopped", "train.steps=100000"]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True, env=environment) as process:
        log = place / "runs/stopped/log.jsonl"
        for _ in range(600):
            if log.exists() and log.stat().st_size:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert f"multihead train {place / 'runs/stopped/run.toml'}" in said
    assert list((place / "runs/stopped/checkpoints").glob("step-*"))


def test_wrong_run_files_are_one_line(place: Path, multihead: Any) -> None:
    done = multihead("train", "run.toml", "train.lrr=3", cwd=place)
    assert done.returncode in (1, 2)
    assert "lr" in done.stderr
    assert "Traceback" not in done.stderr
    missing = multihead("train", "run.toml", "data.train=nothing.csv", "out=runs/none", cwd=place)
    assert missing.returncode == 1
    assert "nothing.csv" in missing.stderr


def test_check_tells_of_questions_without_an_answer(tmp_path: Path, multihead: Any) -> None:
    rows = [
        {
            "question": f"where is {i}",
            "context": "in Paris",
            "answers": [{"text": "Paris", "start": 3}] if i % 3 else [],
        }
        for i in range(60)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "b.jsonl").write_text(json.dumps({**rows[1], "question": "who", "context": "a, Paris"}) + "\n")
    (tmp_path / "run.toml").write_text(
        'task = "answer"\nout = "out"\n[data]\ntrain = "a.jsonl"\nvalid = "b.jsonl"\n[model]\ndim = 16\nheads = 2\n'
    )
    told = multihead("check", "run.toml", cwd=tmp_path).stdout
    assert re.search(r"train: 20 of 60 inputs \(33\.3%\) have no answer.* answer\.no_answer = true", told)
    assert "no answer" not in multihead("check", "run.toml", "answer.no_answer=true", cwd=tmp_path).stdout
