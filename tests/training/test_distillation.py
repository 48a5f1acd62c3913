"""A student learns what a trained model believes beside its labels, whatever the tokenizers of the two."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from multihead.config import read
from multihead.inference.engine import predict_rows
from multihead.pretrained import load
from multihead.tasks.word_spans import join_tokens, layout_words, tags_of_tokens
from multihead.training import distillation as room
from multihead.training.run import TrainingRun

from .conftest import runs_of

SCORES = "match.target=score"
OTHER = ["tokenizer.kind=bpe", "tokenizer.vocab=300"]


@pytest.fixture(params=["classify", "match", "ner"])
def taught(request, tmp_path):
    """Runs, and the model of one that has learnt its data."""
    runs = runs_of(tmp_path, request.param)
    runs.whole("teacher", *OTHER, steps=80, lr=1e-2)
    return runs, runs.directory / "teacher" / "model"


def chances(model, rows):
    """Of every row, the chance of each label; of tags, the most likely ones."""
    loaded = load(model)
    for _, prediction in predict_rows(loaded.model, loaded.make_task(), rows):
        yield prediction


def by_token(tags, row):
    """Tags of the words that a tagger finds in a row, as tags of its tokens."""
    return tags_of_tokens(tags, layout_words(row)[2], join_tokens(row["tokens"], row.get("spaces"))[1])


def test_what_is_learnt_is_the_label_and_the_belief(taught):
    runs, model = taught
    for trust in (1.0, 0.25):
        run = runs.make(f"run-{trust}", f"data.teacher={model}", f"data.distill_weight={trust}")
        plain = runs.make("plain")
        assert len(run.examples) == len(plain.examples)
        rows = list(run.subjects[0].sides["train"]())
        for number, (row, prediction) in enumerate(zip(rows, chances(model, rows), strict=True)):
            learnt, gold = run.examples[number], plain.examples[number]
            assert learnt["tokens"].tolist() == gold["tokens"].tolist()
            if runs.task == "ner":
                first = learnt["word"] >= 0
                tag = np.eye(len(run.task.labels))[gold["labels"][first]]
                believed = (learnt["labels"][first] - (1 - trust) * tag) / trust
                np.testing.assert_allclose(learnt["labels"][gold["labels"] >= 0].sum(1), 1, atol=1e-5)
                assert not learnt["labels"][gold["labels"] < 0].any()
                if trust == 1:
                    best = by_token([run.task.labels[i] for i in believed.argmax(1)], row)
                    assert sum(a == b for a, b in zip(best, prediction["tags"], strict=True)) >= len(best) - 1
            else:
                tag = np.eye(len(run.task.labels))[gold["label"]].reshape(-1)
                want = np.array([prediction["scores"][label] for label in run.task.labels])
                np.testing.assert_allclose(learnt["label"], (1 - trust) * tag + trust * want, atol=1e-5)


def test_of_several_the_mean_is_learnt(taught):
    runs, model = taught
    runs.whole("second", *OTHER, "train.seed=2", steps=20, lr=1e-2)
    both = [str(model), str(runs.directory / "second" / "model")]
    believed = []
    for name, who in (("first", both[:1]), ("then", both[1:]), ("both", both)):
        run = runs.make(name, f"data.teacher={who}", "data.distill_weight=1.0")
        field = "labels" if runs.task == "ner" else "label"
        believed.append([run.examples[number][field] for number in range(len(run.examples))])
    assert any(abs(a - b).max() > 0.01 for a, b in zip(*believed[:2], strict=True))
    for one, other, mean in zip(*believed, strict=True):
        np.testing.assert_allclose(mean, (one + other) / 2, atol=1e-6)


def test_pieces_behind_the_first_go_on_with_what_the_word_is(tmp_path):
    runs = runs_of(tmp_path, "ner")
    runs.whole("teacher", *OTHER)
    run = runs.make("run", f"data.teacher={runs.directory / 'teacher' / 'model'}", "tokenizer.kind=char")
    labels = run.task.labels
    window = next(w for w in (run.examples[i] for i in range(len(run.examples))) if len(w["word"]) > 6)
    inside = [i for i in range(1, len(window["word"]) - 2) if window["word"][i] >= 0 > window["word"][i + 1]]
    first = next(i for i in inside if window["labels"][i + 1].any())
    word, piece = window["labels"][first], window["labels"][first + 1]
    for kind in ("PER", "LOC"):
        begins, goes_on = labels.index(f"B-{kind}"), labels.index(f"I-{kind}")
        assert piece[begins] == 0
        assert piece[goes_on] == pytest.approx(word[begins] + word[goes_on])
    assert piece[labels.index("O")] == pytest.approx(word[labels.index("O")])


def test_a_teacher_is_worth_more_than_labels_that_say_nothing(tmp_path):
    """Labels drawn by lot; all that the student knows comes from the teacher."""
    runs = runs_of(tmp_path, "classify")
    runs.whole("teacher", *OTHER, steps=80, lr=1e-2)
    lines = runs.data.read_text(encoding="utf-8").split("\n")
    good = [line for line in lines[1:] if line]
    lot = [f"{line.rpartition(',')[0]},{'good' if i % 2 else 'bad'}" for i, line in enumerate(good)]
    runs.data.write_text("\n".join([lines[0], *lot]) + "\n", encoding="utf-8")
    valid = tmp_path / "valid.csv"
    valid.write_text("\n".join([lines[0], *good]) + "\n", encoding="utf-8")
    model = runs.directory / "teacher" / "model"
    run = runs.make("run", f"data.valid={valid}", f"data.teacher={model}", "data.distill_weight=1.0", steps=80, lr=1e-2)
    for _ in run:
        pass
    run.finish(replicates=0)
    assert run.scores["valid"]["accuracy"].value > 0.9


def test_it_is_asked_once_and_goes_on_bit_for_bit(taught, monkeypatch):
    runs, model = taught
    change = f"data.teacher={model}"
    want = runs.whole("whole", change)
    run = runs.make("stopped", change)
    for event in run:
        if getattr(event, "step", 0) == 7:
            break
    monkeypatch.setattr(room.Teacher, "_predict", lambda *given: pytest.fail("asked again"))
    assert runs.whole("stopped", change) == want
    assert want != runs.whole("alone")


def test_who_cannot_teach(taught, tmp_path):
    runs, model = taught
    others = {"classify": "ner", "match": "classify", "ner": "classify"}
    (tmp_path / "other").mkdir()
    other = runs_of(tmp_path / "other", others[runs.task])
    with pytest.raises(ValueError, match=f"was trained for {runs.task}; name a model trained for {other.task}"):
        other.make("run", f"data.teacher={model}")
    text = runs.data.read_text(encoding="utf-8")
    wrong = {"classify": "good", "match": "same", "ner": "B-PER"}[runs.task]
    for name in (wrong, wrong.replace("B-", "I-")):
        text = text.replace(name, name + "ness")
    runs.data.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"have different labels: .*{wrong}"):
        runs.make("run", f"data.teacher={model}")
    if runs.task == "ner":
        with pytest.raises(ValueError, match=r"data\.teacher supports .*not a crf"):
            runs.make("run", f"data.teacher={model}", "ner.crf=true")
    if runs.task == "match":
        with pytest.raises(ValueError, match=r"data\.teacher supports .*not vectors"):
            runs.make("run", f"data.teacher={model}", "match.kind=bi")
    with pytest.raises(ValueError, match="no such"):
        runs.make("run", f"data.teacher={tmp_path / 'nowhere'}")
    with pytest.raises(ValueError, match=r"data\.teacher supports .*not mask"):
        TrainingRun(read(f'task = "mask"\nout = "{tmp_path}/m"\n[data]\ntrain = "{runs.data}"\nteacher = "{model}"\n'))


@pytest.fixture
def scoring(tmp_path):
    """The same for numbers between two ends."""
    runs = runs_of(tmp_path, "match")
    text = runs.data.read_text(encoding="utf-8").replace(",same", ",5").replace(",other", ",1")
    runs.data.write_text(text, encoding="utf-8")
    runs.whole("teacher", SCORES, *OTHER, steps=60)
    return runs, runs.directory / "teacher" / "model"


def test_scores_are_taught_too(scoring):
    """What the teacher says of it counts as much as the label."""
    runs, model = scoring
    run = runs.make("run", SCORES, f"data.teacher={model}")
    rows = list(run.subjects[0].sides["train"]())
    for number, prediction in enumerate(chances(model, rows)):
        want = (float(rows[number]["label"]) + prediction["score"]) / 2
        assert float(run.examples[number]["label"][()]) * 4 + 1 == pytest.approx(want, abs=1e-4)
    with pytest.raises(ValueError, match=r"has scores from 1\.0 to 5\.0, but the training data has classes"):
        runs.make("classes", f"data.teacher={model}")
    for _ in run:
        pass
    assert torch.isfinite(torch.stack([p.sum() for p in run.model.parameters()])).all()


INPUTS = {  # and what is in their way: other columns, another format than train's, tags that are not to be believed
    "classify": ("more.txt", "fine film\ncold plot\n\nlovely end\n"),
    "match": ("more.csv", "id,text_b,text_a\n1,Ada is in Rome,Ada went to Rome\n2,Bo is in Oslo,Bo went to Lima\n"),
    "ner": ("more.conll", "Ada O\nsaw O\nOslo O\n\n王明 O\nsaw O\n"),
}


@pytest.mark.parametrize("files", [1, 2])
def test_of_inputs_without_labels_the_best_belief_stands_for_them(taught, files):
    runs, model = taught
    name, text = INPUTS[runs.task]
    more = runs.directory / name
    more.write_text(text, encoding="utf-8")
    trust = 0.75
    given = [f"data.teacher={model}", f"data.distill_weight={trust}"]
    plain = runs.make("plain", *given)
    run = runs.make("run", *given, f"data.unlabelled={[str(more)] * files}")
    asked = list(run.subjects[0].beside())
    assert len(asked) == files * (3 if runs.task == "classify" else 2)
    assert len(run.examples) == len(plain.examples) + len(asked)
    assert "unlabelled: " in run.examples.read
    if runs.task == "classify":  # whose own column is called otherwise
        runs.data.write_text(runs.data.read_text(encoding="utf-8").replace("text,", "said,"), encoding="utf-8")
        other = runs.make("other", *given, "data.text=said", f"data.unlabelled={more}")
        assert list(other.subjects[0].beside()) == asked[:3]
    for number, (row, prediction) in enumerate(zip(asked, chances(model, asked), strict=True), len(plain.examples)):
        learnt = run.examples[number]
        if runs.task == "ner":
            first = learnt["word"] >= 0
            best = by_token([run.task.labels[i] for i in learnt["labels"][first].argmax(1)], row)
            assert best == prediction["tags"]
            assert (learnt["labels"][first].max(1) >= 1 - trust).all()
        else:
            tag = np.eye(len(run.task.labels))[run.task.labels.index(prediction["label"])]
            want = np.array([prediction["scores"][label] for label in run.task.labels])
            np.testing.assert_allclose(learnt["label"], (1 - trust) * tag + trust * want, atol=1e-5)


def test_few_labels_and_many_inputs(tmp_path):
    """Four rows with labels; what else the student knows, the teacher said of inputs."""
    runs = runs_of(tmp_path, "classify")
    runs.whole("teacher", *OTHER, steps=80, lr=1e-2)
    head, *rows = [line for line in runs.data.read_text(encoding="utf-8").split("\n") if line]
    (tmp_path / "valid.csv").write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    (tmp_path / "more.txt").write_text("".join(row.rpartition(",")[0] + "\n" for row in rows), encoding="utf-8")
    few = [*(row for row in rows if row.endswith("good"))][:2] + [*(row for row in rows if row.endswith("bad"))][:2]
    runs.data.write_text("\n".join([head, *few]) + "\n", encoding="utf-8")
    model = runs.directory / "teacher" / "model"
    more = [f"data.teacher={model}", f"data.unlabelled={tmp_path / 'more.txt'}"]
    found = []
    for changes in ([], more):
        run = runs.make(f"run-{len(changes)}", f"data.valid={tmp_path / 'valid.csv'}", *changes, steps=80, lr=1e-2)
        for _ in run:
            pass
        run.finish(replicates=0)
        found.append(run.scores["valid"]["accuracy"].value)
    assert found[1] > 0.9
    assert found[1] > found[0]


def test_unlabelled_needs_a_teacher_and_rows(taught):
    runs, model = taught
    more = runs.directory / "more.jsonl"
    with pytest.raises(ValueError, match=r"data\.unlabelled .*set data\.teacher"):
        runs.make("run", f"data.unlabelled={runs.data}")
    for text, wanted in (('{"other": "a"}\n', "more.jsonl"), ("\n", "more.jsonl")):
        more.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=wanted):
            runs.make("run", f"data.teacher={model}", f"data.unlabelled={more}")


@pytest.mark.parametrize("context", [0, 8])
@pytest.mark.parametrize(
    ("name", "text"), [("more.txt", "{}\n{}\n"), ("more.jsonl", '{{"text": "{}"}}\n{{"text": "{}"}}\n')]
)
def test_names_are_learnt_from_raw_text(tmp_path, name, text, context):
    runs = runs_of(tmp_path, "ner")
    runs.whole("teacher", *OTHER, steps=80, lr=1e-2)
    model = runs.directory / "teacher" / "model"
    more = tmp_path / name
    more.write_text(text.format("Ada saw Oslo.", "Eve saw Rome"), encoding="utf-8")
    taught = [f"data.teacher={model}", f"ner.context={context}", f"data.valid={runs.data}"]
    run = runs.make("run", *taught, f"data.unlabelled={more}")
    assert [values["tokens"] for values in run.subjects[0].beside()] == [
        ["Ada", "saw", "Oslo", "."],
        ["Eve", "saw", "Rome"],
    ]
    assert "unlabelled: 2 rows: 2 used" in run.examples.read
    names = run.task.labels
    for number in (-2, -1):  # the teacher has never seen a full stop
        window = run.examples[len(run.examples) + number]
        assert [names[i] for i in window["labels"][window["word"] >= 0].argmax(1)][:3] == ["B-PER", "O", "B-LOC"]


def test_scores_of_inputs_without_labels(scoring):
    runs, model = scoring
    more = runs.directory / "more.csv"
    more.write_text(INPUTS["match"][1], encoding="utf-8")
    run = runs.make("run", SCORES, f"data.teacher={model}", f"data.unlabelled={more}")
    asked = list(run.subjects[0].beside())
    for number, prediction in enumerate(chances(model, asked), len(run.examples) - len(asked)):
        assert float(run.examples[number]["label"][()]) * 4 + 1 == pytest.approx(prediction["score"], abs=1e-4)


def test_who_is_stopped_while_asking_goes_on(taught, monkeypatch, caplog):
    """Answers are kept by the piece: nothing is asked twice, nor after other settings, and it changes no weight."""
    runs, model = taught
    monkeypatch.setattr(room, "AHEAD", 10)
    teaching = [f"data.teacher={model}", "data.distill_weight=0.6"]
    whole = runs.whole("whole", *teaching, steps=5)
    asked, ask, stops = [], room.Teacher._predict, iter([False, True])

    def stopping(self, piece, *rest):
        if next(stops, False):
            raise KeyboardInterrupt
        asked.append(len(piece))
        return ask(self, piece, *rest)

    monkeypatch.setattr(room.Teacher, "_predict", stopping)
    monkeypatch.setattr(room.token_cache, "TELL", 0)
    with pytest.raises(KeyboardInterrupt):
        runs.make("run", *teaching, steps=5)
    with caplog.at_level("INFO"):
        assert runs.whole("run", *teaching, steps=5) == whole
    again = runs.make("run", *teaching, steps=5)
    rows = sum(1 for _ in again.subjects[0].sides["train"]())
    assert sum(asked) == rows
    assert any(f"of {rows} rows, less than a minute left" in line for line in caplog.messages)
    assert "120 rows: 120 used" in again.examples.read
    runs.make("run", *OTHER, f"data.teacher={model}", "data.distill_weight=0.2", fresh=True)
    assert sum(asked) == rows
