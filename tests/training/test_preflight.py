"""What would go wrong later is told before the first step; nothing that is there is lost; keys do what they say."""

from __future__ import annotations

import json
import re
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from multihead.cli.training_output import announce
from multihead.config import read
from multihead.data.readers.read import read_records
from multihead.data.validation import check
from multihead.metrics import Score
from multihead.tasks.match import SimilarityScorer
from multihead.training import time_estimate
from multihead.training.dataset import STRETCH, Split
from multihead.training.events import Evaluated, Note, Saved, format_duration
from multihead.training.preflight import try_setup
from multihead.training.run import TrainingRun, is_due
from multihead.training.task_data import read_all

from .conftest import MODEL


def made(place: Path, head: str, data: str, train: str = "steps = 4", model: str = MODEL) -> str:
    settings = f"[train]\nthreads = 1\nprecision = 'fp32'\nbatch_tokens = 160\n{train}\n"
    return f'{head}\nout = "{place / "run"}"\n[data]\n{data}\n{model}{settings}'


def csv(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def run(text: str, *changes: str, fresh: bool = False) -> TrainingRun:
    training = TrainingRun(read(text, changes), fresh=fresh)
    for _ in training:
        pass
    training.finish(replicates=0)
    return training


def labels(data: Any) -> list[int]:
    return [int(data[i]["label"]) for i in range(len(data))]


def test_two_tasks_on_one_file_learn_their_own_columns(tmp_path: Path) -> None:
    rows = [f"text number {i} is long,{i % 2},{i // 2 % 2}" for i in range(40)]
    file = csv(tmp_path / "both.csv", "text,toxic,spam", rows)
    blocks = "".join(
        f'[[tasks]]\nname = "{name}"\ntask = "classify"\n[tasks.data]\ntrain = "{file}"\nvalid = "{file}"\n'
        f'label = "{name}"\n'
        for name in ("toxic", "spam")
    )
    text = f'out = "{tmp_path / "run"}"\n{MODEL}[train]\nsteps = 1\nthreads = 1\nprecision = "fp32"\n{blocks}'
    toxic, spam = (part.data for part in TrainingRun(read(text)).parts)
    assert labels(toxic) == [i % 2 for i in range(40)]
    assert labels(spam) == [i // 2 % 2 for i in range(40)]


def test_another_column_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    file = csv(
        tmp_path / "t.csv", "title,body,label", [f"short {i},a longer text {i} of words,{i % 2}" for i in range(30)]
    )
    text = made(tmp_path, 'task = "classify"', f'train = "{file}"\nvalid = "{file}"')
    titles = run(text, "data.text=title").examples.sizes
    bodies = run(text, "data.text=body", fresh=True).examples.sizes
    assert int(bodies.max()) > int(titles.max())


def test_fresh_deletes_nothing_for_a_run_that_cannot_be(runs) -> None:
    runs.whole("run")
    before = {path.name for path in (runs.directory / "run").iterdir()}
    with pytest.raises(ValueError, match="no such file"):
        runs.make("run", "data.train=typo.csv", fresh=True)
    assert {path.name for path in (runs.directory / "run").iterdir()} == before
    going = runs.make("other", steps=8)
    events = iter(going)
    next(event for event in events if isinstance(event, Saved))
    with pytest.raises(ValueError, match="is training here"):
        runs.make("other", steps=8, fresh=True)
    for _ in events:
        pass
    assert runs.make("other", steps=9, fresh=True).out.exists()
    assert not (runs.directory / "other" / "checkpoints").exists()


def test_a_label_that_only_held_out_rows_have_is_known(tmp_path: Path) -> None:
    rows = [f"text {i},{'rare' if i == 4 else 'ab'[i % 2]}" for i in range(60)]
    side = None
    for i in range(60):  # some text that the hash holds out
        rows[4] = f"rare text {i},rare"
        file = csv(tmp_path / "t.csv", "text,label", rows)
        training = TrainingRun(read(made(tmp_path, 'task = "classify"', f'train = "{file}"')), fresh=True)
        side = {row["label"] for row in training.only_task.sides["train"]()}
        if "rare" not in side:
            break
    assert side == {"a", "b"}
    assert training.only_task.labels == ["a", "b", "rare"]
    for _ in training:
        pass
    assert "valid" in training.finish(replicates=0)


def test_data_to_score_on_is_looked_at_before_training(tmp_path: Path) -> None:
    file = csv(tmp_path / "t.csv", "text,label", [f"text {i},{'ab'[i % 2]}" for i in range(40)])
    test = csv(tmp_path / "test.csv", "text,label", ["fine,a", "odd,mixed"])
    text = made(tmp_path, 'task = "classify"', f'train = "{file}"\nvalid = "{file}"')
    with pytest.raises(ValueError, match=r"test\.csv:3: label 'mixed' was not seen in training; labels are: a, b"):
        TrainingRun(read(text, [f"data.test={test}"]))
    few = csv(tmp_path / "few.csv", "text,label", ["one,a", "two,b", "three,a"])
    with pytest.raises(ValueError, match=r"held out for validation is empty; set data\.valid, or add rows"):
        TrainingRun(read(made(tmp_path, 'task = "classify"', f'train = "{few}"')))


def test_weights_of_no_label_are_refused(tmp_path: Path) -> None:
    file = csv(tmp_path / "t.csv", "text,label", [f"text {i},{'ab'[i % 2]}" for i in range(40)])
    text = made(tmp_path, 'task = "classify"', f'train = "{file}"\nvalid = "{file}"')
    with pytest.raises(ValueError, match="unknown label 'goood'; labels are: a, b"):
        TrainingRun(read(text, ["classify.class_weights={goood=5.0}"]))
    with pytest.raises(ValueError, match="remove one of them"):
        TrainingRun(read(text, ["classify.class_weights=balanced", "classify.multi_label=true"]))


def test_a_limit_is_of_all_files_together(tmp_path: Path) -> None:
    files = [csv(tmp_path / f"{n}.csv", "text,label", [f"{n} text {i},{'ab'[i % 2]}" for i in range(40)]) for n in "pq"]
    data = f'train = ["{files[0]}", "{files[1]}"]\nvalid = "{files[0]}"\nlimit = 20'
    text = made(tmp_path, 'task = "classify"', data)
    assert len(TrainingRun(read(text)).examples) == 20
    assert len(TrainingRun(read(text, ["data.weights=[1.0, 1.0]"]), fresh=True).examples) == 20


def test_with_steps_too_every_epoch_is_scored(runs) -> None:
    training = runs.make("run", steps=24, eval_every=0)
    each = training.order.epoch_steps
    assert 1 < each < 12
    scored = [event.step for event in training if isinstance(event, Evaluated)]
    assert scored == [*range(each, 24, each), 24]


@pytest.mark.parametrize("epochs", range(1, 9))
def test_the_last_epoch_ends_with_the_last_step(epochs: int) -> None:
    """An epoch is not always a whole number of steps; nothing is scored twice for that."""
    for steps in range(epochs, 700):
        scored = [step for step in range(1, steps + 1) if is_due(step, steps / epochs) or step == steps]
        assert len(scored) == epochs


def test_a_score_that_is_no_number_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"text {i},other {i},{i % 5}" for i in range(40)]
    file = csv(tmp_path / "t.csv", "text_a,text_b,label", rows)
    same = csv(tmp_path / "same.csv", "text_a,text_b,label", ["one,two,3", "three,four,3"])
    data = f'train = "{file}"\nvalid = "{same}"'
    head = 'task = "match"\nmatch.target = "score"'
    training = run(made(tmp_path, head, data, "steps = 6\neval_every = 2"))
    assert training.best["score"] is None
    lines = [json.loads(line) for line in (training.out / "log.jsonl").read_text().splitlines()]
    assert any("valid" in line for line in lines)

    real = SimilarityScorer.result
    calls: list[int] = []

    def later(self: Any) -> dict[str, Score]:
        calls.append(1)
        return real(self) if len(calls) < 2 else {**real(self), self.main: Score(1 / len(calls))}

    monkeypatch.setattr(SimilarityScorer, "result", later)
    training = TrainingRun(read(made(tmp_path, head, data, "steps = 6\neval_every = 2")), fresh=True)
    scored = [event for event in training if isinstance(event, Evaluated)]
    assert [event.best for event in scored] == [True, True, False]


def test_the_best_model_outlives_the_checkpoints_that_speak_of_it(runs) -> None:
    """It used to go as soon as a better one came, though a kill before the next checkpoint goes back behind that."""
    training = runs.make("run", steps=24, save_every=12, eval_every=2)
    for event in training:
        if isinstance(event, Evaluated) and event.step == 22:
            break  # as a kill would
    state = json.loads((training.out / "checkpoints" / "step-12" / "state.json").read_text())
    assert (training.out / "best" / f"step-{state['best']['step']}").exists()
    runs.whole("run", steps=24, save_every=12, eval_every=2)
    kept = sorted((training.out / "best").iterdir())
    assert 1 <= len(kept) <= 2  # as many as checkpoints


def test_a_damaged_checkpoint_does_not_end_the_run_that_made_it(runs) -> None:
    training = runs.make("run", steps=12, save_every=4, eval_every=2)
    for event in training:
        if isinstance(event, Saved) and event.step == 4:
            (event.path / "state.json").write_text("{")
    assert training.finish(replicates=0)


def test_a_best_model_that_is_gone_is_chosen_anew(runs) -> None:
    training = runs.make("run", steps=12, save_every=4, eval_every=2)
    for event in training:
        if isinstance(event, Saved) and event.step == 8:
            break
    shutil.rmtree(training.out / "best")
    again = runs.make("run", steps=12, save_every=4, eval_every=2)
    notes = [event.text for event in again if isinstance(event, Note)]
    assert any("selects a new one" in note for note in notes)
    assert again.finish(replicates=0)


def test_the_script_of_the_target_decides_how_bleu_splits(tmp_path: Path) -> None:
    for name, target, language in (
        ("zh", "他去了北京。", "zh"),
        ("ja", "彼は東京へ行きました。", "ja"),
        ("th", "เขาไปกรุงเทพฯ", "th"),
        ("de", "er ging", ""),
    ):
        file = tmp_path / f"{name}.tsv"
        file.write_text("".join(f"he went {i}\t{target}{i}\n" for i in range(20)))
        text = made(tmp_path, 'task = "translate"', f'train = "{file}"\nvalid = "{file}"\nformat = "pairs"')
        assert TrainingRun(read(text), fresh=True).task.options["language"] == language


def test_the_script_of_the_target_decides_what_rouge_counts(tmp_path: Path) -> None:
    for name, target, by in (
        ("zh", "他去了北京。", "characters"),
        ("th", "เขาไปกรุงเทพฯ", "characters"),
        ("ru", "он ушёл домой", "characters"),
        ("fr", "le garçon s'en allait à l'été", "words"),
    ):
        file = tmp_path / f"{name}.tsv"
        file.write_text("".join(f"he went {i}\t{target}{i}\n" for i in range(20)))
        text = made(tmp_path, 'task = "summarize"', f'train = "{file}"\nvalid = "{file}"\nformat = "pairs"')
        training = TrainingRun(read(text), fresh=True)
        score = training.task.scorer(0)
        score.add({"source": target, "target": target}, {"target": target}, 0)
        assert score.result()["rougeL"].value == 100.0
        assert score.result()["rougeL"].signature == f"by:{by}|stem:no|refs:best"
        if by == "characters":
            with pytest.raises(ValueError, match=r"summarize\.stem .*remove it"):
                TrainingRun(read(text, ["summarize.stem=true"]), fresh=True)
        words = TrainingRun(read(text, ["summarize.by=words"]), fresh=True)
        assert words.task.options["by"] == "words"


def test_documents_are_held_out_in_stretches(tmp_path: Path) -> None:
    lines = [f"w{i} O\n" for i in range(600)]
    (tmp_path / "a.conll").write_text("\n".join(lines))
    reading = read_records(tmp_path / "a.conll", task="ner")
    sides = {side: list(Split(reading, side, documents=True)()) for side in ("train", "valid")}
    numbers = {side: [int(row["tokens"][0][1:]) for row in rows] for side, rows in sides.items()}
    assert sorted(numbers["train"] + numbers["valid"]) == list(range(600))
    for side, rows in sides.items():
        for row, number in zip(rows, numbers[side], strict=True):
            assert row["document"] == f"0 from {number - number % STRETCH}"


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_weights_keep_stretches_of_documents_apart(tmp_path: Path) -> None:
    """Train was chosen by sentences and valid by stretches: most of valid was trained on."""
    document = "-DOCSTART- O\n\n" + "".join(f"word{{n}}x{i} O\nParis B-LOC\n\n" for i in range(60))
    files = []
    for name in "ab":
        files.append(tmp_path / f"{name}.conll")
        files[-1].write_text("".join(document.replace("{n}", f"{name}{n}") for n in range(10)))
    data = f'train = ["{files[0]}", "{files[1]}"]\nweights = [1.0, 2.0]'
    (one,) = read_all(read(made(tmp_path, 'task = "ner"', data), ["ner.context=32"]))
    held = {(values["file"], values["line"]) for values in one.sides["valid"]()}
    learnt = [(values["file"], values["line"]) for part in one.sides["train"].parts() for values in part()]
    assert held
    assert held.isdisjoint(learnt)
    assert len(held) + len(learnt) == 1200


def test_one_of_two_columns_may_have_another_name(tmp_path: Path) -> None:
    rows = [{"tokens": [f"w{i}", "Paris"], "ner_tags": ["O", "B-LOC"]} for i in range(40)]
    file = jsonl(tmp_path / "t.jsonl", rows)
    (one,) = read_all(read(made(tmp_path, 'task = "ner"', f'train = "{file}"\ntags = "ner_tags"')))
    assert next(one.sides["train"]())["tokens"][1] == "Paris"
    assert one.labels == ["O", "B-LOC", "I-LOC"]


@pytest.mark.parametrize("scheme", ["IOB1", "BILOU"])
def test_the_scheme_of_tags_in_json_is_seen(tmp_path: Path, scheme: str) -> None:
    """I-LOC alone was taken as BIO, where no entity ever begins: every score was 0."""
    tags = {"IOB1": ["O", "I-LOC", "I-LOC"], "BILOU": ["O", "B-LOC", "L-LOC"]}[scheme]
    file = jsonl(tmp_path / "t.jsonl", [{"tokens": [f"w{i}", "New", "York"], "tags": tags} for i in range(40)])
    (one,) = read_all(read(made(tmp_path, 'task = "ner"', f'train = "{file}"')))
    assert next(one.sides["train"]())["tags"] == ["O", "B-LOC", "I-LOC"]
    assert one.readings["train"].scheme == scheme
    mixed = jsonl(
        tmp_path / "m.jsonl", [{"tokens": ["a", "b"], "tags": ["O", f"{'IB'[i % 2]}-LOC"]} for i in range(40)]
    )
    with pytest.raises(ValueError, match=r"m\.jsonl:1: IOB1 or BIO\? 20 entities"):
        read_all(read(made(tmp_path, 'task = "ner"', f'train = "{mixed}"')))


def test_what_cannot_be_learnt_is_told_with_its_place(tmp_path: Path) -> None:
    scores = csv(
        tmp_path / "s.csv", "text_a,text_b,label", [f"a {i},b {i},{'n/a' if i == 30 else i}" for i in range(40)]
    )
    with pytest.raises(ValueError, match=r"s\.csv:32: the score 'n/a' is not a number"):
        read_all(read(made(tmp_path, 'task = "match"', f'train = "{scores}"'), ["match.target=score"]))
    cells = csv(tmp_path / "c.csv", "text,label", [f'text {i},"sport,politics"' for i in range(40)])
    with pytest.raises(ValueError, match=r"c\.csv: classify\.multi_label needs lists"):
        read_all(read(made(tmp_path, 'task = "classify"', f'train = "{cells}"'), ["classify.multi_label=true"]))
    asked = jsonl(tmp_path / "q.jsonl", [{"question": f"q{i}", "context": "Paris"} for i in range(40)])
    with pytest.raises(ValueError, match=r"q\.jsonl:1: the task needs question and context and answers"):
        read_all(read(made(tmp_path, 'task = "answer"', f'train = "{asked}"')))


def test_rows_to_score_on_are_read_before_the_first_step(tmp_path: Path) -> None:
    rows = [f"a {i},b {i},{i}" for i in range(40)]
    file = csv(tmp_path / "s.csv", "text_a,text_b,label", rows)
    odd = csv(tmp_path / "v.csv", "text_a,text_b,label", [*rows, "c,d,high"])
    text = made(tmp_path, 'task = "match"', f'train = "{file}"\nvalid = "{odd}"')
    with pytest.raises(ValueError, match=r"v\.csv:42: the score 'high' is not a number"):
        TrainingRun(read(text, ["match.target=score"]))


def test_weights_of_parallel_files_are_one_for_each_pair(tmp_path: Path) -> None:
    files = []
    for name in ("a.en", "a.de", "b.en", "b.de"):
        files.append(f'"{tmp_path / name}"')
        (tmp_path / name).write_text("".join(f"{name} line {i}\n" for i in range(30)))
    text = made(tmp_path, 'task = "translate"', f"train = [{', '.join(files)}]")
    assert len(TrainingRun(read(text, ["data.weights=[1.0, 2.0]"])).examples.parts) == 2
    with pytest.raises(ValueError, match="4 numbers for 2 pairs of files"):
        TrainingRun(read(text, ["data.weights=[1.0, 2.0, 1.0, 1.0]"]), fresh=True)


def test_the_label_of_pairs_that_belong_together_can_be_named(tmp_path: Path) -> None:
    rows = [f"a {i},b {i},{'right' if i % 2 else 'wrong'}" for i in range(40)]
    file = csv(tmp_path / "p.csv", "text_a,text_b,label", rows)
    text = made(tmp_path, 'task = "match"', f'train = "{file}"\nvalid = "{file}"')
    named = TrainingRun(read(text, ["match.positive=right"]))
    assert named.task.scorer(0).one.positive == named.task.labels.index("right") == 0
    with pytest.raises(ValueError, match=r"set match\.positive.*right, wrong"):
        TrainingRun(read(text, ["match.positive=left"]), fresh=True)


def test_pieces_of_the_same_texts_on_both_sides_are_told(tmp_path: Path) -> None:
    words = [[f"w{text}x{place}" for place in range(30)] for text in range(60)]
    pieces = [f"{' '.join(text[at : at + 10])},{at % 4 // 2}" for text in words for at in range(0, 20, 2)]
    whole = [f"{' '.join(text)},{i % 2}" for i, text in enumerate(words)]
    others = [f"{' '.join(reversed(text))},{i % 2}" for i, text in enumerate(words)]
    train, test, new = (
        csv(tmp_path / name, "text,label", rows)
        for name, rows in (("train.csv", pieces), ("test.csv", whole), ("new.csv", others))
    )

    def told(data: str) -> list[str]:
        (found,) = read_all(read(made(tmp_path, 'task = "classify"', f'train = "{train}"\n{data}')))
        return sorted(warning.partition(":")[0] for warning in found.overlap_warnings())

    assert told("") == ["valid"]
    assert told(f'test = "{test}"') == ["test", "valid"]
    assert told(f'valid = "{new}"\ntest = "{new}"') == []


def test_a_run_that_only_writes_otherwise_names_the_way(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("source\ttarget\n" + "".join(f"one {i}\teins {i}\n" for i in range(200)))
    text = made(tmp_path, 'task = "translate"', f'train = "{tmp_path / "a.tsv"}"')
    TrainingRun(read(text))
    with pytest.raises(ValueError, match=r"decode\.beam: 5 -> 2.*evaluate and predict take decode\.\*"):
        TrainingRun(read(text, ["decode.beam=2"]))
    with pytest.raises(ValueError, match=r"--fresh$"):
        TrainingRun(read(text, ["decode.beam=2", "train.lr=0.5"]))


def test_how_long_is_told_of_the_steps_that_are_left(runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_estimate, "seconds_per_step", lambda training: 60.0)

    def told() -> str:
        screen = StringIO()
        announce(runs.make("run"), Console(file=screen, width=1000))
        return screen.getvalue().split(" tokens, ")[1].strip()

    assert told() == "24 steps; about 24 min"
    for event in runs.make("run"):
        if isinstance(event, Saved) and event.step == 10:
            break
    assert told() == "24 steps (10 finished); about 14 min"
    for _ in runs.make("run"):
        pass
    assert told() == "24 steps, all finished; scoring again; --fresh starts over"
    assert [format_duration(s) for s in (3, 100, 11100)] == ["less than a minute", "about 2 min", "about 3 h 05 min"]


def test_a_vocabulary_that_cannot_spell_the_data_is_told(runs, tmp_path: Path) -> None:
    start = runs.bert()
    rows = [f"film plot {chr(0x5000 + i) * 4},{['bad', 'good'][i % 2]}" for i in range(60)]
    data = csv(tmp_path / "zh.csv", "text,label", rows)
    changes = [f"data.train={data}", f"data.test={runs.data}", "train.steps=1"]
    training = TrainingRun(read(runs.text("zh", start=start), changes))
    screen = StringIO()
    announce(training, Console(file=screen, width=1000))
    told = re.findall(
        r"(\w+): (\d+)% of the text is not in the vocabulary .* with a new \[tokenizer\]", screen.getvalue()
    )
    assert told == [("train", "33")]  # neither what is held out of it, nor the test, which it can spell
    found = try_setup(training.run)[""]
    assert [(one.level, one.code) for one in found] == [("warn", "unknown words")]
    assert try_setup(read(runs.text("en", start=start))) == {"": []}
    small = read(runs.text("new"), [f"data.train={data}", "tokenizer.kind=char", "tokenizer.vocab=20"])
    assert "a larger tokenizer.vocab" in try_setup(small)[""][0].message


@pytest.mark.parametrize(("other", "codes"), [(["b"], ["one label"]), (["a", "b"], []), ([], [])])
def test_several_labels_that_are_always_one_are_told(tmp_path: Path, other: list[str], codes: list[str]) -> None:
    rows = [{"text": f"word {i}", "label": [["a"], ["b"], other][i % 3]} for i in range(60)]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_file = read(made(tmp_path, "task = 'classify'", f"train = '{data}'\n[classify]\nmulti_label = true"))
    assert [finding.code for finding in try_setup(run_file)[""]] == codes


def test_training_stops_at_rejected_rows_as_check_does(tmp_path: Path) -> None:
    sentence = "Ada\tB-PER\nleft\tO\n\n"
    data = tmp_path / "train.conll"
    data.write_text(sentence * 8 + "Ada\tX-PER\nleft\tO\n\n" * 2)
    text = f'task = "ner"\nout = "{tmp_path / "out"}"\n[data]\ntrain = "{data}"\n[ner]\nscheme = "BIO"\n'
    with pytest.raises(ValueError, match=r"train: 2 of 10 rows are not used: unknown tag prefix.*train\.conll:25"):
        read_all(read(text))
    findings = check(read_records(data, task="ner", scheme="BIO"), task="ner")
    assert any(finding.level == "stop" and "2 of 10" in finding.message for finding in findings)


@pytest.mark.parametrize("side", ["train", "valid"])
def test_training_without_labels_stops_at_rejected_rows_too(tmp_path: Path, side: str) -> None:
    good, faulty = tmp_path / "good.jsonl", tmp_path / "faulty.jsonl"
    rows = [{"source": f"word {i}", "target": f"wort {i}"} for i in range(40)]
    good.write_text("".join(json.dumps(row) + "\n" for row in rows))
    faulty.write_text("".join(json.dumps(rows[i] if i % 5 else {"source": "word"}) + "\n" for i in range(40)))
    files = {"train": good, "valid": good, side: faulty}
    data = "".join(f'{name} = "{file}"\n' for name, file in files.items())
    text = made(tmp_path, "task = 'translate'", data)
    for _ in range(2):  # what the first start leaves behind hides nothing from the second
        with pytest.raises(ValueError, match=rf"{side}: 8 of 40 rows are not used: missing key.*faulty\.jsonl:1"):
            run(text)


def test_tokens_that_are_no_raw_text_are_counted(tmp_path: Path) -> None:
    """Brackets of a treebank are no text that anyone types; where the file has that, `check` tells the share."""
    said = "# text = He saw (old) Rome.\n{}\n"
    tokens = {"same": ["He", "saw", "(", "old", ")", "Rome", "."], "other": []}
    tokens["other"] = [{"(": "-LRB-", ")": "-RRB-"}.get(token, token) for token in tokens["same"]]
    tagged = {
        name: "".join(f"{word}\t{'B-LOC' if word == 'Rome' else 'O'}\n" for word in words)
        for name, words in tokens.items()
    }
    data = tmp_path / "train.conll"
    data.write_text("".join(said.format(tagged["same" if i % 4 else "other"]) for i in range(40)))
    text = made(tmp_path, 'task = "ner"', f'train = "{data}"\nvalid = "{data}"')
    (finding, _) = [finding for finding in try_setup(read(text))[""] if finding.code == "raw text"]
    assert finding.level == "warn"
    assert finding.message.startswith("train: 10 of 40 inputs (25.0%) join to a text that differs from their raw text")
    assert finding.examples[0] == f"{data}:2: He saw (old) Rome."
    data.write_text("".join(said.format(tagged["same"]) for _ in range(40)))
    assert not [finding for finding in try_setup(read(text))[""] if finding.code == "raw text"]
