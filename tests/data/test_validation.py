"""The data check finds each fault, names where, and is silent on clean data."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from multihead.data import overlap
from multihead.data.overlap import NgramSet
from multihead.data.readers.read import read_records
from multihead.data.readers.record import Record
from multihead.data.validation import DataIssue, check


def side(name: str, *rows: dict[str, Any]) -> list[Record]:
    return [Record(row, f"{name}.csv", line) for line, row in enumerate(rows, 2)]


def texts(name: str, *rows: tuple[str, str]) -> list[Record]:
    return side(name, *({"text": text, "label": label} for text, label in rows))


CLEAN = [(f"句子 number {i}", "好" if i % 2 else "坏") for i in range(40)]


def only(findings: list[DataIssue], code: str) -> DataIssue:
    assert [finding.code for finding in findings] == [code]
    return findings[0]


def test_clean_data_is_silent() -> None:
    valid, test = texts("valid", ("new one", "好")), texts("test", ("newer one", "坏"))
    assert check(texts("train", *CLEAN), valid, test, task="classify") == []


def test_overlap_exact_and_folded() -> None:
    rows = [(f"fresh {i}", "好") for i in range(8)]
    test = texts("test", *rows, ("句子 number 3", "好"), ("  句子 NUMBER\u3000５", "好"))
    finding = only(check(texts("train", *CLEAN), None, test, task="classify"), "overlap")
    assert "2 of 10 inputs (20.0%) also occur in train: 1 exactly, 1 up to case" in finding.message
    assert (finding.level, finding.file, finding.line) == ("warn", "test.csv", 10)
    assert finding.examples[0] == "test.csv:10: 句子 number 3 -> 好"
    assert len(finding.examples) == 2
    more = texts("test", *rows, *CLEAN[:3])
    assert only(check(texts("train", *CLEAN), None, more, task="classify"), "overlap").level == "stop"


def test_valid_and_test_overlap() -> None:
    both = ("both sides", "好")
    fresh = [(f"fresh {i}", "好") for i in range(8)]
    findings = check(texts("train", *CLEAN), texts("v", both), texts("t", both, *fresh), task="classify")
    assert "also occur in valid" in only(findings, "overlap").message


def test_inputs_for_a_teacher_that_are_scored_on() -> None:
    """A warning, however many: their labels are not given away."""
    test = texts("test", *CLEAN[:5])
    more = side("more", *({"text": text} for text, _ in CLEAN[:4]), {"text": "another"})
    findings = check(texts("train", ("fresh", "好"), *CLEAN[5:]), None, test, task="classify", unlabelled=more)
    finding = only(findings, "overlap")
    assert "4 of 5 inputs (80.0%) also occur in unlabelled" in finding.message
    assert (finding.level, finding.file, finding.line) == ("warn", "test.csv", 2)


def test_label_conflicts() -> None:
    finding = only(check(texts("train", *CLEAN, ("句子 number 1", "坏")), task="classify"), "label conflicts")
    assert (finding.level, "1 inputs" in finding.message) == ("warn", True)
    assert {example.rsplit(" -> ")[1] for example in finding.examples} == {"好", "坏"}
    assert {example.split(": ")[0] for example in finding.examples} == {"train.csv:3", "train.csv:42"}


def test_duplicates() -> None:
    finding = only(check(texts("train", *CLEAN, CLEAN[4]), task="classify"), "duplicates")
    assert (finding.level, finding.line) == ("note", 42)
    assert only(check(texts("train", *CLEAN, *CLEAN[:9]), task="classify"), "duplicates").level == "warn"


def test_unseen_labels() -> None:
    test = texts("test", ("new", "好"), ("newer", "中"), ("newest", "中"))
    finding = only(check(texts("train", *CLEAN), None, test, task="classify"), "unseen labels")
    assert (finding.level, finding.file, finding.line) == ("stop", "test.csv", 3)
    assert "'中' (2)" in finding.message
    assert "train has" in finding.message


def test_unseen_entity_types_not_tags() -> None:
    train = side("train", *({"tokens": [f"t{i}"], "tags": ["B-LOC"]} for i in range(12)))
    inside = side("test", {"tokens": ["a", "b"], "tags": ["B-LOC", "I-LOC"]})
    other = side("test", {"tokens": ["a", "b"], "tags": ["O", "B-PER"]})
    codes = [finding.code for finding in check(train, None, inside, task="ner")]
    assert "unseen labels" not in codes
    assert "'PER' (1)" in next(f for f in check(train, None, other, task="ner") if f.code == "unseen labels").message


@pytest.mark.parametrize(
    "text", ["caf\u00c3\u00a9", "it\u00e2\u20ac\u2122s", "a \ufffd b", "锟斤拷", "\u00e4\u00b8\u00ad\u00e6\u0096\u0087"]
)
def test_encoding_faults(text: str) -> None:
    finding = only(check(texts("train", *CLEAN, (text, "好")), task="classify"), "encoding")
    assert (finding.level, finding.file, finding.line) == ("warn", "train.csv", 42)


@pytest.mark.parametrize("text", ["café", "Ångström", "Übergröße", "中文，没问题", "São Paulo â la", "été à Paris"])
def test_right_letters_are_no_faults(text: str) -> None:
    assert check(texts("train", *CLEAN, (text, "好")), task="classify") == []


def test_imbalance() -> None:
    finding = only(check(texts("train", *CLEAN, ("rare one", "中")), task="classify"), "imbalance")
    assert "'中' has 1 rows" in finding.message
    assert (finding.file, finding.line) == ("train.csv", 42)
    one = only(check(texts("train", *((text, "好") for text, _ in CLEAN)), task="classify"), "imbalance")
    assert "every row has the label '好'" in one.message


def test_labels_that_are_one_to_a_reader() -> None:
    finding = only(
        check(texts("train", *CLEAN, *((f"t {i}", " 好") for i in range(20))), task="classify"), "labels alike"
    )
    assert (finding.level, finding.line) == ("warn", 42)
    assert "' 好', '好'" in finding.message


def test_labels_that_may_mean_none() -> None:
    odd = [(f"odd {i}", "NaN" if i % 2 else "N/A") for i in range(40)]
    finding = only(check(texts("train", *CLEAN, *odd), task="classify"), "labels missing")
    assert (finding.level, finding.line) == ("warn", 42)
    assert "'N/A' (20 rows), 'NaN' (20 rows)" in finding.message
    named = [(text, {"NaN": "none", "N/A": "Nancy"}[label]) for text, label in odd]
    assert check(texts("train", *CLEAN, *named), task="classify") == []


def test_numbers_on_a_scale_are_no_classes() -> None:
    rows = [{"text_a": f"a{i}", "text_b": f"b{i}", "label": f"{i % 7 / 2}"} for i in range(50)]
    test = side("test", {"text_a": "x", "text_b": "y", "label": "4.75"})
    again = {"text_a": "a3", "text_b": "b3", "label": "0.1"}
    finding = only(check(side("train", *rows, again), None, test, task="match"), "label conflicts")
    assert finding.level == "note"


def test_whether_numbers_are_classes_can_be_said() -> None:
    pairs = [{"text_a": f"one {i}", "text_b": f"other {i}", "label": 1 if i < 30 else i % 6} for i in range(60)]
    train, test = side("train", *pairs), side("test", {"text_a": "new", "text_b": "newer", "label": 7})
    assert check(train, None, test, task="match", scores=True) == []
    assert {one.code for one in check(train, None, test, task="match")} == {"imbalance", "unseen labels"}
    halves = [{**pair, "label": f"{pair['label']}.0"} for pair in pairs]
    assert check(side("train", *halves), task="match") == []
    assert only(check(side("train", *halves), task="match", scores=False), "imbalance")


def test_what_the_reader_rejected_and_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "train.conll"
    good = "".join(f"w{i}\tB-X\nv{i}\tI-X\n\n" for i in range(40))
    path.write_text(good + "a\tX-X\n\nb\tO\nc\tI-X\n\n")
    reading = read_records(path)
    findings = check(reading, task="ner")
    assert [(finding.level, finding.code, finding.line) for finding in findings] == [
        ("warn", "broken tags", 121), ("note", "broken tags", 124)
    ]  # fmt: skip
    assert findings[0].file == str(path)
    assert f"{path}:121:" in findings[0].examples[0]
    path.write_text(good[:150] + "\n\n" + "a\tX-X\n\n" * 9)
    assert [f.level for f in check(read_records(path), task="ner") if f.code == "broken tags"] == ["stop"]


def test_empty_rows_and_nothing_usable(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in CLEAN) + "\n\t好\n")
    findings = check(read_records(path, columns={"text": "text", "label": "label"}), task="classify")
    assert [(finding.level, finding.code, finding.line) for finding in findings] == [
        ("warn", "empty rows", 43), ("note", "empty rows", 42)
    ]  # fmt: skip
    path.write_text("text\tlabel\n\t好\n")
    findings = check(read_records(path, columns={"text": "text", "label": "label"}), task="classify")
    assert [finding.code for finding in findings if finding.level == "stop"] == ["empty rows", "nothing usable"]


def test_the_readings_keep_their_counts(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\na\t1\na\t1\n" + "".join(f"{text}\t{label}\n" for text, label in CLEAN))
    reading = read_records(path)
    assert "duplicates" in [finding.code for finding in check(reading, task="classify")]
    assert reading.used == 42  # though the second look stopped at row 2


def test_an_iterator_is_enough_but_shows_no_examples() -> None:
    rows = texts("train", *CLEAN, CLEAN[0])
    finding = only(check(iter(rows), task="classify"), "duplicates")
    assert finding.examples == ()
    with pytest.raises(ValueError, match="unknown task"):
        check(rows, task="clasify")


def invented(number: int, words: int = 30, seed: int = 0) -> list[str]:
    draw = Random(seed)
    return [" ".join(f"w{draw.randrange(5000)}" for _ in range(words)) for _ in range(number)]


def pieces(of: list[str], length: int = 10) -> list[str]:
    words = [text.split() for text in of]
    return [" ".join(each[at : at + length]) for each in words for at in range(0, len(each) - length + 1, 2)]


def labelled(name: str, some: list[str]) -> list[Record]:
    return texts(name, *((text, "yes" if at % 2 else "no") for at, text in enumerate(some)))


def test_pieces_of_the_same_texts_on_both_sides() -> None:
    whole = invented(60)
    train, fresh = labelled("train", pieces(whole)), labelled("test", invented(20, seed=1))
    finding = only(check(train, test=fresh, task="classify"), "shared passages")
    assert finding.level == "warn"
    assert finding.message.startswith("the tenth of train that is held out: ")
    assert check(train, test=fresh, task="classify", hold_out=False) == []
    finding = only(check(train, test=labelled("test", whole), task="classify", hold_out=False), "shared passages")
    assert finding.message.startswith("test: ")
    assert check(labelled("train", invented(200)), labelled("valid", invented(60, seed=1)), task="classify") == []


def test_passages_of_scripts_without_spaces() -> None:
    draw = Random(0)
    whole = ["".join(chr(0x4E00 + draw.randrange(3000)) for _ in range(40)) for _ in range(20)]
    test = labelled("test", [text[5:30] for text in whole])
    assert "test: 100%" in only(check(labelled("train", whole), test=test, task="classify"), "shared passages").message


def test_a_sample_of_passages_shares_as_much_as_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared() -> float:
        mine, other = NgramSet(), NgramSet()
        for text in invented(400, 40):
            mine.add(text)
        for text in (*invented(100, 40), *invented(300, 40, seed=1)):
            other.add(text)
        assert max(len(mine.hashes), len(other.hashes)) <= overlap.MOST
        return mine.shared_ratio(other)

    assert shared() == pytest.approx(0.25, abs=0.001)
    monkeypatch.setattr(overlap, "MOST", 2000)
    assert shared() == pytest.approx(0.25, abs=0.05)
