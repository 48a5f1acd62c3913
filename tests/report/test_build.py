"""What a run tells of itself: which mistakes are the worst, how long its inputs were, what was cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multihead import config as runs
from multihead.report.build import LISTED, MistakeCollector, build_report
from multihead.report.data import ReportData
from multihead.training.run import TrainingRun

MODEL = {"dim": 16, "layers": 1, "heads": 2, "max_length": 24, "dropout": 0.0}


def reported(tmp_path: Path, task: str, rows: list[dict[str, Any]], **sections: Any) -> tuple[TrainingRun, ReportData]:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    train = {"steps": 6, "batch_tokens": 200, "threads": 1, "precision": "fp32", **sections.pop("train", {})}
    data = {"train": str(file), "valid": str(file)}
    run = runs.from_task(task, out=str(tmp_path / "run"), data=data, model=MODEL, train=train, **sections)
    training = TrainingRun(run)
    list(training)
    seen = MistakeCollector()
    scorers = training.finish(20, {"valid": seen})
    return training, build_report(training, training.only_task, scorers, {"valid": seen}, "", "")


def test_the_worst_guesses_of_a_number_are_the_farthest() -> None:
    seen = MistakeCollector()
    for number in range(3 * LISTED):
        off = 5.0 if number < 10 else 0.5
        seen({"text_a": f"{number}", "text_b": "b", "label": 1.0}, {"score": 1.0 + off}, False)
    worst = seen.result().worst
    assert [mistake.text for mistake in worst[:12]] == [f"{number}" for number in range(12)]
    assert len(worst) == LISTED


def test_the_worst_sets_of_labels_are_those_it_was_surest_of() -> None:
    seen = MistakeCollector()
    for number in range(2 * LISTED):
        chance = 0.99 if number == 7 else 0.02 if number == 8 else 0.6
        scores = {"x": chance, "y": 0.1}
        gold = ["x"] if number == 8 else []
        said = [name for name, one in scores.items() if one >= 0.5]
        seen({"text": f"{number}", "label": gold}, {"labels": said, "scores": scores}, False)
    assert [mistake.text for mistake in seen.result().worst[:3]] == ["7", "8", "0"]


def test_lengths_are_those_of_inputs_and_windows_those_of_rows(tmp_path: Path) -> None:
    rows = [{"text": "a b c", "label": f"{i % 2}"} for i in range(39)] + [{"text": "a " * 200, "label": "1"}]
    _, facts = reported(tmp_path, "classify", rows, tokenizer={"kind": "wordpiece", "vocab": 60})
    assert facts.lengths is not None
    assert facts.lengths.windowed == pytest.approx(1 / 40)  # one row, though most windows are of it
    assert facts.lengths.truncated == 0
    edges = np.asarray(facts.lengths.edges)
    assert (edges == edges.round()).all()
    assert len({*np.diff(edges)}) == 1


def test_of_pairs_the_longer_side_counts_and_what_is_cut_is_told(tmp_path: Path) -> None:
    rows = [{"source": "a b c d e f g h i j", "target": "a b c d e f g h i j"} for _ in range(20)]
    rows += [{"source": "a " * 90, "target": "a"}] * 2
    _, facts = reported(tmp_path, "summarize", rows, tokenizer={"kind": "char", "vocab": 60})
    assert facts.lengths is not None
    assert facts.lengths.edges[-1] <= MODEL["max_length"] + 1  # not both sides together
    assert facts.lengths.windowed == 0
    assert facts.lengths.truncated == 2
    assert any("truncated" in warning for warning in facts.warnings)


def test_the_kept_step_and_that_the_mean_of_several_is_none(tmp_path: Path) -> None:
    rows = [{"text": f"{'good' if i % 2 else 'bad'} {i}", "label": f"{i % 2}"} for i in range(40)]
    training, facts = reported(tmp_path, "classify", rows, tokenizer={"kind": "char"}, train={"eval_every": 2})
    assert facts.best_step in (2, 4, 6)
    assert [curve.name for curve in facts.curves] == ["training loss", "learning rate", "validation accuracy"]
    assert list(facts.curves[0].steps) == [1, 2, 3, 4, 5, 6]
    assert list(facts.curves[2].steps) == [2, 4, 6]
    training.mean = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    seen = MistakeCollector()
    scorers = training.finish(20, {"valid": seen})
    assert build_report(training, training.only_task, scorers, {"valid": seen}, "", "").best_step is None


PAIRS = [{"text_a": f"{i} small", "text_b": f"{i} {'small' if i % 2 else 'huge'}"} for i in range(24)]


@pytest.mark.parametrize("labels", [("no", "yes"), ("0", "1"), None], ids=str)
def test_pairs_that_are_found_are_reported_whatever_their_labels_are(tmp_path: Path, labels: Any) -> None:
    rows = PAIRS if labels is None else [row | {"label": labels[i % 2]} for i, row in enumerate(PAIRS)]
    _, facts = reported(tmp_path, "match", rows, match={"kind": "bi"}, tokenizer={"kind": "char"})
    assert facts.mistakes is not None
    gold = {mistake.gold for mistake in facts.mistakes.worst}
    assert gold <= ({"belong together"} if labels is None else {*labels})
    seen = MistakeCollector()
    for number, score in enumerate((0.4, 0.1, 0.45)):
        seen(
            {"text_a": f"{number}", "text_b": "b"} | ({} if labels is None else {"label": labels[1]}),
            {"score": score},
            False,
        )
    assert [mistake.text for mistake in seen.result().worst] == ["1", "0", "2"]


def test_a_cosine_is_shown_as_the_label_that_it_stands_for() -> None:
    seen = MistakeCollector(lambda cosine: 5 * cosine)
    seen({"text_a": "near", "text_b": "b", "label": 4.8}, {"score": 0.83}, False)
    seen({"text_a": "far", "text_b": "b", "label": 1.0}, {"score": 0.9}, False)
    assert [(one.text, one.predicted) for one in seen.result().worst] == [
        ("far", "4.5"),
        ("near", "4.15"),
    ]


def test_parts_of_speech_are_reported_by_the_words_that_are_wrong(tmp_path: Path) -> None:
    rows = [{"tokens": ["a", "dog", "runs"], "tags": ["DT", "NN", "VBZ" if i % 2 else "NNS"]} for i in range(24)]
    training, facts = reported(tmp_path, "ner", rows, tokenizer={"kind": "char"})
    assert facts.mistakes is not None
    worst = facts.mistakes.worst[0]
    assert worst.gold.split(", ")[-1].startswith("runs ")
    assert worst.gold.count(",") == worst.predicted.count(",")
    (said,) = training.loaded.predict(["a dog runs"])
    assert said["tokens"] == ["a", "dog", "runs"]
    assert len(said["tags"]) == 3
