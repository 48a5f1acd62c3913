"""Broken files of every format: each is named with file and line (and the cure), and no row is lost silently."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from multihead.data.readers.read import read_records

TEXT_LABEL = {"text": "text", "label": "label"}
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@dataclass(frozen=True)
class Case:
    """A file that is broken in a stated line. `used` None: reading stops, with an error; else so many rows are used."""

    name: str
    content: bytes
    line: int
    says: str
    used: int | None = None
    rejected: int = 0
    columns: Mapping[str, str] | None = None
    options: dict[str, Any] = field(default_factory=dict)


def utf8(text: str) -> bytes:
    return text.encode()


def gbk_array() -> bytes:
    """One line, longer than a block, which ends amid a character."""
    return '[{"text": "房间很小，早餐一般"}'.encode("gb18030") + ', {"text": "好"}'.encode("gb18030") * 9000 + b"]"


GOOD_CONLL = "EU\tB-ORG\nrejects\tO\n\nPeter\tB-PER\nBlackburn\tI-PER\n\n"
STOPS = [
    Case("empty.csv", b"", 1, "empty"),
    Case("bom_only.txt", b"\xef\xbb\xbf", 1, "empty"),
    Case("pointer.jsonl", LFS, 1, "git lfs pull"),
    Case("pointer.conll", LFS, 1, "git lfs pull"),
    Case("sheet.csv", b"PK\x03\x04" + b"\x00" * 40, 1, "save the sheet as CSV"),
    Case("paper.txt", b"%PDF-1.7\nxx\n", 1, "extract its text"),
    Case("noise.txt", bytes(range(32)) * 50, 1, "binary"),
    Case("packed.txt", b"\xfd7zXZ\x00\x00", 1, "unpack"),
    Case("mac.txt", b"one\rtwo\rthree\r", 1, "tr '\\r' '\\n'"),
    Case("wide.csv", "text,label\na,b\n".encode("utf-16"), 1, 'encoding="utf-16"'),
    Case("latin.tsv", "good\t1\ncafé\t0\n".encode("latin-1"), 2, 'encoding="latin-1"', columns=TEXT_LABEL),
    Case("windows.csv", "text,label\na,1\nit’s,0\n".encode("cp1252"), 3, 'encoding="cp1252"'),
    Case("chinese.tsv", "不错\t1\n".encode() + "房间很小，早餐一般\t0\n".encode("gb18030"), 2, 'encoding="gb18030"'),
    Case("one_line.tsv", "café\t1\n".encode("latin-1") + "房间很小\t0\n".encode() * 9, 1, 'encoding="latin-1"'),
    Case("chinese.conll", ("王 B-PER\n在 O\n北 B-LOC\n京 I-LOC\n\n" * 9).encode("gb18030"), 1, 'encoding="gb18030"'),
    Case("latin.conll", "EU\tB-ORG\n\nZür\tO\n".encode("latin-1"), 3, 'encoding="latin-1"'),
    Case("latin.jsonl", b'{"text": "a"}\n{"text": "\xe9"}\n', 2, 'encoding="latin-1"'),
    Case("chinese.json", '[{"text": "a"},\n{"text": "房间很小，早餐一般"}]'.encode("gb18030"), 2, 'encoding="gb18030"'),
    Case("one_line.json", gbk_array(), 1, 'encoding="gb18030"'),
    Case("latin.json", b"[" + b'{"text": "a"},\n' * 9000 + b'{"text": "\xe9"}]', 9001, "(number 135,012 of the file)"),
    Case("half.tsv", "很好\t1\n".encode() + utf8("房间很小，早餐一般")[:-1] + b"\t0\n", 2, "a damaged character"),
    Case(
        "half_end.json",
        utf8('[{"text": "a"},\n{"text": "房间很小，早')[:-1],
        2,
        "(number 42 of the file) is not utf-8, but",
    ),
    Case("no_mark.json", "[{}]".encode("utf-16-le"), 1, "check the encoding", options={"encoding": "utf-16"}),
    Case("half_char.json", utf8('[\n{"text": "房间很小，早')[:-1] + b'"}]', 2, "a damaged character"),
    Case(
        "number.jsonl", b'{"text": "a"}\n', 1, 'the file has: text; name one of them: text = "…"', columns={"text": "1"}
    ),
    Case("surrogate.txt", b"fine\n\xed\xa0\x80\n", 2, "not utf-8"),
    Case("not.csv.gz", b"text,label\n", 1, "drop the ending"),
    Case("cut.jsonl.gz", gzip.compress(utf8('{"text": "a"}\n' * 9000))[:-40], 1, "fetch it again"),
    Case("column.csv", b"sentence,lable\na,1\n", 1, 'label = "lable"', columns={"text": "sentence", "label": "label"}),
    Case("column.tsv", b"sentence\tscore\ta\n1\t2\t3\n", 1, "the file has: sentence, score, a", columns=TEXT_LABEL),
    Case("number.csv", b"text,label\na,1\n", 1, "the file has: text, label", columns={"text": "7"}),
    Case("column.jsonl", b'{"txt": "a"}\n{"txt": "b"}\n', 1, 'text = "txt"', columns={"text": "text"}),
    Case("twice.csv", b"text,text\na,b\n", 1, "two columns are named 'text'"),
    Case("blank.csv", b"\n\n\n", 1, "nothing but empty lines"),
    Case("cut.json", b'[{"text": "a"},\n{"text": "b"', 2, "cut off"),
    Case("comma.json", b'[{"text": "a"}\n{"text": "b"}]', 2, "expected ','"),
    Case("tail.json", b'[{"text": "a"}]\nxx', 2, "after the end"),
    Case("object.json", b'{\n"a": 1,\n"b": 2\n}', 1, "an object per line"),
    Case("colon.json", b'{"data": [], "paragraphs" 1}', 1, "expected ':'", options={"format": "squad"}),
    Case("nodata.json", b'{"version": "1.1", "paragraphs": []}', 1, 'format="json"', options={"format": "squad"}),
    Case("cut.squad.json", b'{"data": [{"paragraphs": [{"context"', 1, "cut off", options={"format": "squad"}),
    Case("short.parquet", b"PAR1" + b"\x00" * 60, 1, "fetch it again"),
    Case("fake.parquet", b"text,label\na,b\n", 1, "leave the format out"),
    Case("mixed.conll", utf8("A\tB-X\nB\tL-X\nC\tU-X\nD\tE-X\nE\tM-X\nF\tS-X\n\n"), 2, "mix schemes"),
    Case("either.conll", utf8("A\tB-X\nB\tO\n\nC\tO\nD\tI-X\n\n"), 5, 'ner.scheme = "IOB1"'),
    Case("single.conll", b"EU\nrejects\n\n", 1, "one column only"),
    Case("borders.conll", b"-DOCSTART-\n\n-DOCSTART-\n\n", 1, "no token"),
]
REJECTS = [
    Case("fields.csv", b"text,label\na,1\nb,1,x\nc,0\n", 3, "3 fields instead of 2", 2, 1),
    Case("few.tsv", b"text\tlabel\na\t1\nb\nc\t0\n", 3, "1 fields instead of 2", 2, 1),
    Case("blank.tsv", b"text\tlabel\na\t1\n\nc\t0\n", 3, "empty line", 2, 1),
    Case("notext.csv", b"text,label\n,1\nb,0\n", 2, "empty text", 1, 1, TEXT_LABEL),
    Case("spaces.csv", b"text,label\na,1\n   ,0\n", 3, "empty text", 1, 1, TEXT_LABEL),
    Case("nolabel.tsv", b"text\tlabel\na\t\nb\t0\n", 2, "empty label", 1, 1, TEXT_LABEL),
    Case("allempty.csv", b"text,label\na,1\n,\n", 3, "empty", 1, 1),
    Case("quote.csv", b'text,label\n"open,1\nb,0\n"c, d",1\ne,0\n', 2, "as JSONL", 3, 1),
    Case("quote_end.csv", b'text,label\na,1\nb,0\n"open,1\nlast,0\n', 4, "unclosed", 3, 1),
    Case("quote_width.csv", b'text,label\n"open,1\nb,0\nx,y",0,1\nc,0\n', 2, "unclosed", 2, 2),
    Case("quote_after.csv", b'text,label\n"a"b,1\nc,0\n', 2, "quote", 1, 1),
    Case("stray.csv", b"text,label\na\rb,1\nc,0\n", 2, "carriage return", 1, 1),
    Case("nul.csv", b"text,label\na,1\nb\x00c,0\n", 3, "NUL", 1, 1),
    Case("nul.tsv", b"text\tlabel\na\t1\nb\x00c\t0\n", 3, "NUL", 1, 1),
    Case("nul.txt", b"good\nb\x00d\n", 2, "NUL", 1, 1),
    Case("blank.txt", b"one\n\ntwo\n", 2, "empty line", 2, 1),
    Case("bad.jsonl", b'{"text": "a"}\n{"text": "b"\n{"text": "c"}\n', 2, "not JSON", 2, 1),
    Case("nan.jsonl", b'{"text": "a", "x": NaN}\n{"text": "b", "x": 1}\n', 1, "NaN is not JSON", 1, 1),
    Case("infinity.jsonl", b'{"x": 1}\n{"x": -Infinity}\n', 2, "-Infinity", 1, 1),
    Case("twice.jsonl", b'{"text": "a"}\n{"text": "a", "text": "b"}\n', 2, "'text' appears twice", 1, 1),
    Case("half.jsonl", b'{"text": "a"}\n{"text": "\\ud83d"}\n', 2, "\\ud83d is half a character", 1, 1),
    Case("list.jsonl", b'{"text": "a"}\n["b"]\n', 2, "an object", 1, 1),
    Case("blank.jsonl", b'{"text": "a"}\n\n{"text": "b"}\n', 2, "empty line", 2, 1),
    Case("key.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', 2, "no key 'text'; the row has: txt", 1, 1, {"text": "text"}),
    Case("null.jsonl", b'{"text": "a"}\n{"text": null}\n', 2, "empty text", 1, 1, {"text": "text"}),
    Case("type.jsonl", b'{"text": "a"}\n{"text": 5}\n', 2, "text is a number", 1, 1, {"text": "text"}),
    Case("escaped.jsonl", b'{"text": "a"}\n{"text": "a\\u0000b"}\n', 2, "NUL", 1, 1),
    Case("deep.jsonl", b'{"a": 1}\n{"a": ' + b"[" * 99999 + b"]" * 99999 + b"}\n", 2, "too deep", 1, 1),
    Case("digits.jsonl", b'{"a": 1}\n{"a": ' + b"9" * 5000 + b"}\n", 2, "not JSON", 1, 1),
    Case("twice.json", b'[{"a": 1},\n{"a": 1, "a": 2},\n{"a": 3}]', 2, "'a' appears twice", 2, 1),
    Case("nan.json", b'[{"a": 1},\n{"a": NaN},\n{"a": 3}]', 2, "NaN is not JSON", 2, 1),
    Case("number.json", b'[{"a": 1},\n7\n]', 2, "an object", 1, 1),
    Case("half.json", b'[{"a": "\\udc00"},\n{"a": "b"}]', 1, "half a character", 1, 1),
    Case("fields.conll", utf8(GOOD_CONLL + "one\ntwo\tO\n\n"), 7, "1 columns instead of 2", 2, 1),
    Case("token.conll", utf8(GOOD_CONLL + "one\tO\n\tO\n\n"), 8, "empty token", 2, 1),
    Case("tag.conll", utf8(GOOD_CONLL + "one\tO\ntwo\t \n\n"), 8, "empty tag", 2, 1),
    Case("space_token.conll", b"EU B-ORG\nsays O\n\n O\n\n", 4, "empty token", 1, 1),
    Case("prefix.conll", utf8(GOOD_CONLL + "one\tX-LOC\n\n"), 7, "unknown tag 'X-LOC'", 2, 1),
    Case("lower.conll", utf8(GOOD_CONLL + "one\tb-LOC\n\n"), 7, "unknown tag 'b-LOC'", 2, 1),
    Case("typeless.conll", utf8(GOOD_CONLL + "one\tB-\n\n"), 7, "unknown tag 'B-'", 2, 1),
    Case("nul.conll", b"EU\tB-ORG\n\na\x00b\tO\n\n", 3, "NUL", 1, 1),
    Case("no_begin.bilou", b"A\tU-X\n\nB\tO\nC\tL-X\n\n", 4, "L-X without its B", 1, 1),
    Case("no_end.bilou", b"A\tU-X\n\nB\tB-X\nC\tI-X\n\nD\tB-X\nE\tL-X\n\n", 4, "at the sentence's end", 2, 1),
    Case("type.bilou", b"A\tU-X\n\nB\tB-X\nC\tL-Y\n\n", 4, "B-X is not closed", 1, 1),
    Case("inside.bmes", "北\tB-L\n京\tE-L\n\n上\tO\n海\tM-L\n\n".encode(), 5, "M-L without its B", 1, 1),
    Case("at.txt", b"good@pos\nbad\nfair@pos\n", 2, "1 fields instead of 2", 2, 1, None, {"format": "labelled"}),
    Case("nolabel.txt", b"good@pos\nbad@\n", 2, "empty label", 1, 1, None, {"format": "labelled"}),
    Case("tabs.txt", b"good\tpos\nb\tc\tneg\n", 2, "3 fields instead of 2", 1, 1, None, {"format": "labelled"}),
    Case("first.txt", b"NUM:dist How far ?\nLOC\n", 2, "1 field instead of 2", 1, 1, None, {"format": "label-first"}),
    Case("pairs.tsv", b"Hi.\tHallo.\nRun!\n", 2, "1 fields instead of 2", 1, 1, None, {"format": "pairs"}),
    Case("pair.tsv", "Hi.\t嗨。\tCC\nRun!\t\tCC\n".encode(), 2, "empty target", 1, 1, None, {"format": "pairs"}),
]  # fmt: skip


def test_there_are_enough_of_them() -> None:
    assert len(STOPS) + len(REJECTS) + len(SQUAD) >= 60
    assert len({case.name for case in STOPS + REJECTS}) == len(STOPS + REJECTS)


@pytest.mark.parametrize("case", STOPS, ids=lambda case: case.name)
def test_a_file_that_stops(case: Case, tmp_path: Path) -> None:
    path = tmp_path / case.name
    path.write_bytes(case.content)
    with pytest.raises(ValueError, match=r".") as caught:
        list(read_records(path, columns=case.columns, **case.options))
    message = str(caught.value)
    if case.name.startswith("cut.jsonl.gz"):  # where the data breaks off depends on the compressor
        assert message.startswith(f"{path}:")
    else:
        assert message.startswith(f"{path}:{case.line}:"), message
    assert case.says in message, message


@pytest.mark.parametrize("case", REJECTS, ids=lambda case: case.name)
def test_a_row_that_is_rejected(case: Case, tmp_path: Path) -> None:
    path = tmp_path / case.name
    path.write_bytes(case.content)
    reading = read_records(path, columns=case.columns, **case.options)
    used = list(reading)
    first = reading.rejected[0]
    assert (first.file, first.line) == (str(path), case.line), list(map(str, reading.rejected))
    assert case.says in first.reason
    assert (len(used), reading.used, reading.rejected.total) == (case.used, case.used, case.rejected)
    assert reading.rows == reading.used + reading.rejected.total == sum(reading.rejected.reasons.values()) + len(used)
    assert str(first).startswith(f"{path}:{case.line}: ")


def question(**change: Any) -> dict[str, Any]:
    whole = {"id": "q1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
    return {key: value for key, value in (whole | change).items() if value is not None}


SQUAD = [
    (question(answers=[{"text": "Ada", "answer_start": 3}]), "fix answer_start"),
    (question(answers=[{"text": "Ada", "answer_start": -1}]), "not a position"),
    (question(answers=[{"text": "Ada", "answer_start": "0"}]), "not a position"),
    (question(answers=[{"text": " ", "answer_start": 3}]), "empty answer"),
    (question(answers=[{"answer_start": 3}]), "without text"),
    (question(answers=[]), "not marked is_impossible"),
    (question(answers=None), "no list"),
    (question(is_impossible=True), "impossible but has answers"),
    (question(question=""), "empty question"),
    (question(question=7), "question is a number"),
]


@pytest.mark.parametrize(("broken", "says"), SQUAD, ids=[says for _, says in SQUAD])
def test_a_squad_question_that_is_rejected(broken: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    paragraph = {"context": "Ada 写了程序。", "qas": [question(id="q0"), broken, question(id="q2")]}
    text = json.dumps({"version": "1.1", "data": [{"title": "T", "paragraphs": [paragraph]}]}, indent=1)
    path.write_text(text, encoding="utf-8")
    reading = read_records(path)
    assert [record.values["id"] for record in reading] == ["q0", "q2"]
    assert (reading.used, reading.rejected.total, reading.rows) == (2, 1, 3)
    assert says in reading.rejected[0].reason
    assert "'q1'" in reading.rejected[0].reason
    line = 1 + text[: text.index('"q1"')].count("\n")
    assert reading.rejected[0].line == line > 1


def test_squad_without_paragraphs_or_questions(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    path.write_text('{"data": [{"title": "T"},\n{"paragraphs": [{"context": "x"}]},\n{"paragraphs": [], "a": NaN}]}')
    reading = read_records(path, format="squad")
    assert list(reading) == []
    assert [(fault.line, fault.code) for fault in reading.rejected] == [
        (1, "not SQuAD"), (2, "not SQuAD"), (3, "NaN in JSON")
    ]  # fmt: skip


def test_parquet_rows_that_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    broken = pa.array([b"fine", b"caf\xe9", None, b" ", b"last"], pa.binary()).view(pa.binary()).cast(pa.binary())
    text = pa.StringArray.from_buffers(5, *broken.buffers()[1:], broken.buffers()[0])
    pq.write_table(pa.table({"text": text, "label": [1, 2, 3, 4, 5]}), path)
    reading = read_records(path, columns=TEXT_LABEL)
    assert [record.values["label"] for record in reading] == [1, 5]
    assert [(fault.line, fault.code) for fault in reading.rejected] == [
        (2, "not UTF-8"), (3, "empty text"), (4, "empty text")
    ]  # fmt: skip
    assert reading.rows == 5
    with pytest.raises(ValueError, match="the file has: text, label"):
        list(read_records(path, columns={"text": "body"}))
    content = path.read_bytes()
    path.write_bytes(content[:40] + content[60:])
    with pytest.raises(ValueError, match=r"rows\.parquet:\d+: .*fetch it again"):
        list(read_records(path))


def test_parallel_files_must_agree(tmp_path: Path) -> None:
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_text("one\ntwo\nthree\n")
    target.write_text("eins\nzwei")
    with pytest.raises(ValueError, match=r"a\.en:3: the first line without a partner.*align"):
        list(read_records([source, target], format="parallel"))
    target.write_text("eins\n\ndrei")
    reading = read_records([source, target], format="parallel")
    assert [record.values["target"] for record in reading] == ["eins", "drei"]
    assert [(fault.file, fault.line, fault.code) for fault in reading.rejected] == [(str(target), 2, "empty target")]
    with pytest.raises(ValueError, match="pairs of files, a source and its target; 1 given"):
        read_records([source], format="parallel")
    twice = read_records([source, target] * 2, columns={"source": "source", "target": "target"})
    assert len(list(twice)) == 4, "plain files of a task with two sides are parallel"


def test_advice_can_be_followed(tmp_path: Path) -> None:
    """No option that a run file has no key for, and no number where columns have no order."""
    said = [
        (b'"open,1\n', None), (b"text,text\na,b\n", None), (b'text,label\n"open,1\nb,0\n', None),
        (b'{"body": "a"}\n', {"text": "1"}), ("很好很好很好".encode()[:-1], None),
    ]  # fmt: skip
    for content, columns in said:
        path = tmp_path / ("a.jsonl" if columns else "a.csv")
        path.write_bytes(content)
        try:
            reading = read_records(path, columns=columns)
            list(reading)
            message = str(reading)
        except ValueError as error:
            message = str(error)
        assert not re.search("quoting|header|number from 1|cp1252", message), message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_lines_of_wide_encodings_are_counted_as_read(encoding: str, tmp_path: Path) -> None:
    """上 (U+4E0A) holds the byte of a line end."""
    source, target = tmp_path / "a.zh", tmp_path / "a.en"
    source.write_bytes("上海\n你好\n".encode(encoding))
    target.write_bytes("Shanghai\nHello".encode(encoding))
    reading = read_records([source, target], format="parallel", encoding=encoding)
    assert [record.values["source"] for record in reading] == ["上海", "你好"]
    target.write_bytes("Shanghai\n".encode(encoding))
    with pytest.raises(ValueError, match=r"a\.zh:2: the first line without a partner"):
        list(read_records([source, target], format="parallel", encoding=encoding))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_gzip_that_is_cut_off(encoding: str, tmp_path: Path) -> None:
    dice = random.Random(0)
    text = "text,label\n" + "".join(f"{dice.random()},a\n" for _ in range(20_000))
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(text.encode(encoding))[:-4000])
    with pytest.raises(ValueError, match=r"a\.csv\.gz:\d{4,}: broken gzip data .*; fetch it again"):
        list(read_records(path, encoding=encoding))


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,b\n")
    with pytest.raises(ValueError, match=r"trian\.csv: no such file; did you mean 'train\.csv'"):
        read_records(tmp_path / "trian.csv")
    with pytest.raises(ValueError, match=r'patterns are not expanded, list the files: \["train\.csv"\]'):
        read_records(tmp_path / "tr*.csv")
    with pytest.raises(ValueError, match="no such file; nor does one match it"):
        read_records(tmp_path / "va*.csv")
    with pytest.raises(ValueError, match=r"a directory, not a file; give a file of it: train\.csv"):
        read_records(tmp_path)
    with pytest.raises(ValueError, match="did you mean 'conll'"):
        read_records(tmp_path / "train.csv", format="conl")
    with pytest.raises(ValueError, match="did you mean 'encoding'"):
        read_records(tmp_path / "train.csv", encodin="utf-8")
    with pytest.raises(ValueError, match="unknown encoding"):
        list(read_records(tmp_path / "train.csv", encoding="utf-9"))
    with pytest.raises(ValueError, match="unknown scheme"):
        list(read_records(tmp_path / "train.csv", format="conll", scheme="BIOX"))
    with pytest.raises(ValueError, match="delimiter is one character"):
        list(read_records(tmp_path / "train.csv", delimiter="::"))


def test_many_rejects_are_counted_and_some_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text('{"text": "a"}\n' + "x\n" * 5000)
    reading = read_records(path)
    assert len(list(reading)) == 1
    assert (len(reading.rejected), reading.rejected.total, reading.rows) == (100, 5000, 5001)
    assert reading.rejected.reasons == {"not JSON": 5000}
    assert "5,000 × not JSON" in str(reading)
