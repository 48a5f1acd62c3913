"""Every format read right: values, places, what was found; in constant memory."""

from __future__ import annotations

import csv
import gzip
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihead.data.readers.csv_rows import CsvError, quoted_rows
from multihead.data.readers.read import DataReader, read_records
from multihead.data.readers.tag_schemes import to_bio

TEXT_LABEL = {"text": "text", "label": "label"}


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def values(reading: DataReader) -> list[dict[str, Any]]:
    return [record.values for record in reading]


def test_lines_end_at_newline_only(tmp_path: Path) -> None:
    odd = ["a\u2028b", "c\x85d", "e\x0cf", "g\x0bh", "i\x1cj", "k\u2029l"]
    reading = read_records(put(tmp_path, "odd.txt", "\ufeff" + "\r\n".join(odd)))
    assert [record.values["text"] for record in reading] == odd
    assert [record.line for record in reading] == [1, 2, 3, 4, 5, 6]
    labelled = "".join(f"{text}\t1\n" for text in odd)
    assert [v["text"] for v in values(read_records(put(tmp_path, "odd.tsv", labelled), columns=TEXT_LABEL))] == odd
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in odd[:2] + odd[-1:])
    assert len(values(read_records(put(tmp_path, "odd.jsonl", lines)))) == 3
    quoted = "text,label\n" + "".join(f'"{text}",1\n' for text in odd)
    assert [v["text"] for v in values(read_records(put(tmp_path, "odd.csv", quoted)))] == odd


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_csv_with_quotes(ending: str, tmp_path: Path) -> None:
    text = '\ufefftext,label\r\n"a, ""b""",x\r\n"two\r\nlines",y\r\nthree 5" wide,z\r\n'
    content = gzip.compress(text.encode()) if ending else text.encode()
    reading = read_records(put(tmp_path, f"a.csv{ending}", content), columns=TEXT_LABEL)
    assert values(reading) == [
        {"text": 'a, "b"', "label": "x"},
        {"text": "two\nlines", "label": "y"},
        {"text": 'three 5" wide', "label": "z"},
    ]
    assert [record.line for record in reading] == [2, 3, 5]
    assert [(repair.line, repair.code) for repair in reading.repaired] == [(3, "row over several lines")]


def test_tsv_quotes_are_text_unless_all_are_well_formed(tmp_path: Path) -> None:
    raw = put(tmp_path, "raw.tsv", 'text\tlabel\n"Yes", he said\t1\n"No."\t0\n')
    assert [v["text"] for v in values(read_records(raw))] == ['"Yes", he said', '"No."']
    quoted = put(tmp_path, "quoted.tsv", 'text\tlabel\n"a ""b"" c"\t1\n"No."\t0\n')
    assert [v["text"] for v in values(read_records(quoted))] == ['a "b" c', "No."]
    alone = put(tmp_path, "alone.tsv", 'text\tlabel\n"No."\t0\n')
    assert [v["text"] for v in values(read_records(alone))] == ['"No."']
    assert [v["text"] for v in values(read_records(alone, quoting=True))] == ["No."]


@pytest.mark.parametrize("order", [1, -1])
def test_tsv_with_quoted_line_ends(order: int, tmp_path: Path) -> None:
    """As pandas and Excel write them: quotes are marks where they make an uneven file even."""
    rows = [('first\nsecond, "third"', "pos"), ("one", "neg"), ("a\n\nb", "pos")] * 4
    with (tmp_path / "a.tsv").open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(row[::order] for row in [("text", "label"), *rows])
    reading = read_records(tmp_path / "a.tsv", columns=TEXT_LABEL)
    assert [(v["text"], v["label"]) for v in values(reading)] == rows
    assert (reading.rejected.total, reading.repaired.reasons) == (0, {"row over several lines": 8})


@pytest.mark.parametrize("odd", ["one field only\n", "three\tfields\there\n"])
def test_stray_quotes_in_an_uneven_tsv_are_text(odd: str, tmp_path: Path) -> None:
    """Two quotes that close each other by chance, with an uneven line between: nothing is swallowed."""
    text = "text\tlabel\n" + '"He opens\t1\n' + odd + 'and closes."\t0\n' + "plain\t1\n" * 5
    reading = read_records(put(tmp_path, "a.tsv", text), columns=TEXT_LABEL)
    assert [v["text"] for v in values(reading)] == ['"He opens', 'and closes."', *["plain"] * 5]
    assert [fault.line for fault in reading.rejected] == [3]


def test_header_or_not(tmp_path: Path) -> None:
    bare = put(tmp_path, "bare.tsv", "很好\t1\n不好\t0\n")
    reading = read_records(bare, columns=TEXT_LABEL)
    assert values(reading) == [{"text": "很好", "label": "1"}, {"text": "不好", "label": "0"}]
    assert reading.found[str(bare)]["header"] is False
    assert values(read_records(bare))[0] == {"1": "很好", "2": "1"}
    named = put(tmp_path, "named.csv", "Sentence;Label;x\na;1;p\nb;0;q\n")
    assert values(read_records(named, columns={"text": "Sentence", "label": "2"}))[1] == {"text": "b", "label": "0"}
    assert read_records(named).found == {str(named): {"format": "csv"}}
    assert len(values(read_records(named, header=False))) == 3


@pytest.mark.parametrize(
    ("content", "columns", "rows"),
    [
        ("good,great movie\nbad,poor one\ngood,nice\n", {"text": "2", "label": "1"}, 3),
        ("good,great movie\nbad,poor one\ngood,nice\n", {"text": "2"}, 3),
        ("Klasse,Kommentar\ngut,Kommentar\nschlecht,naja\ngut,fein\n", {"text": "2", "label": "1"}, 3),
        ("Klasse,Satz\ngut,toll\nKlasse,Satz\nschlecht,naja\n", {"text": "2", "label": "1"}, 3),  # two files in one
        ("Hello,Hallo\nBye,Tschau\n", {"source": "1", "target": "2"}, 1),
    ],
)
def test_columns_by_number_and_no_word_of_a_header(
    content: str, columns: dict[str, str], rows: int, tmp_path: Path
) -> None:
    """A label comes again, a name does not; what is only taken for a header is told."""
    path = put(tmp_path, "a.csv", content)
    reading = read_records(path, columns=columns)
    assert len(values(reading)) == rows
    header = reading.found[str(path)]["header"]
    assert reading.rows + header == content.count("\n")
    assert [(repair.line, repair.code) for repair in reading.repaired] == [
        (1, "first row taken as the header")
    ] * header


def test_excel_names_the_delimiter_in_the_first_line(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "\ufeffsep=;\r\ntext;label\r\na, b;0\r\nc, d;1\r\n")
    reading = read_records(path, columns=TEXT_LABEL)
    assert values(reading) == [{"text": "a, b", "label": "0"}, {"text": "c, d", "label": "1"}]
    assert (reading.rows, [record.line for record in reading]) == (2, [3, 4])
    assert values(read_records(put(tmp_path, "b.csv", "text,label\nsep=;,0\n")))[0]["text"] == "sep=;"


def test_csv_ending_with_tabs_and_ragged_tail(tmp_path: Path) -> None:
    """STS-B: named .csv, cut at tabs, without quoting, with two columns more in some rows."""
    rows = ['news\t5.0\tA, b.\tC "d.', "news\t1.5\tE.\tF, g.\turl\tlicence"] * 50
    path = put(tmp_path, "sts.csv", "\n".join([*rows, "short\t1.0"]))
    reading = read_records(path, columns={"text_a": "3", "text_b": "4", "label": "2"})
    assert values(reading)[:2] == [
        {"text_a": "A, b.", "text_b": 'C "d.', "label": "5.0"},
        {"text_a": "E.", "text_b": "F, g.", "label": "1.5"},
    ]
    assert (reading.used, [fault.line for fault in reading.rejected]) == (100, [101])


CONLL = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC
# # I-NP O

Paris NNP I-NP I-LOC
London NNP I-NP B-LOC

-DOCSTART- -X- O O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER"""


def test_conll_2003(tmp_path: Path) -> None:
    reading = read_records(put(tmp_path, "eng.testa", CONLL))
    assert values(reading) == [
        {"tokens": ["EU", "rejects", "German", "#"], "tags": ["B-ORG", "O", "B-MISC", "O"], "document": 0},
        {"tokens": ["Paris", "London"], "tags": ["B-LOC", "B-LOC"], "document": 0},
        {"tokens": ["Peter", "Blackburn"], "tags": ["B-PER", "I-PER"], "document": 1},
    ]
    assert (reading.scheme, [record.line for record in reading]) == ("IOB1", [3, 8, 13])
    chunks = read_records(tmp_path / "eng.testa", columns={"tokens": "1", "tags": "3"})
    assert values(chunks)[1]["tags"] == ["B-NP", "I-NP"]
    words = read_records(tmp_path / "eng.testa", columns={"tags": "2"})
    assert values(words)[0]["tags"] == ["NNP", "VBZ", "JJ", "#"]
    assert words.scheme == "plain"


def test_iob2_with_comments_and_numbers(tmp_path: Path) -> None:
    text = (
        "# newdoc id = a\n# text = 在北京。\n1\t在\tO\t-\t-\n2\t北 京\tB-LOC\t-\tx\n3\t#\tO\t-\t-\n\n"
        "# newdoc id = b\n# sent_id = 2\n1-2\tdu\tO\t-\t-\n1\tde\tO\t-\t-\n2\tle\tO\t-\t-\n\n"
    )
    reading = read_records(put(tmp_path, "zh.iob2", text))
    assert values(reading) == [
        {"tokens": ["在", "北 京", "#"], "tags": ["O", "B-LOC", "O"], "document": 0, "raw_text": "在北京。"},
        {"tokens": ["de", "le"], "tags": ["O", "O"], "document": 1},
    ]


@pytest.mark.parametrize(
    "comment",
    [
        "# id 5239d808\tdomain=en",
        "# id 5239d808 domain=en",
        "# Generated by my tool",
        "# a\tb",
        "# id\tx\ty\tdomain=en",
    ],
)
@pytest.mark.parametrize("delimiter", [" ", "\t"])
def test_comments_decide_nothing(comment: str, delimiter: str, tmp_path: Path) -> None:
    """Of any form (MultiCoNER's is the first); a token # that opens a sentence is none."""
    sentences = [["his _ _ O", "sonny _ _ B-Artist"], ["# _ _ O", "1 _ _ O", "# _ _ O"]] * 5
    text = "".join("\n".join([comment, *(row.replace(" ", delimiter) for row in rows)]) + "\n\n" for rows in sentences)
    reading = read_records(put(tmp_path, "a.conll", text))
    assert [v["tokens"] for v in values(reading)] == [["his", "sonny"], ["#", "1", "#"]] * 5
    assert (reading.rejected.total, reading.found[str(tmp_path / "a.conll")]["delimiter"]) == (0, delimiter)
    once = read_records(put(tmp_path, "b.conll", f"{comment}\n" + text.replace(f"{comment}\n", "")))
    assert values(once) == values(reading)


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("I-X I-X O I-Y B-Y I-X", "IOB1"),
        ("B-X I-X O B-Y B-Y B-X", "BIO"),
        ("B-X L-X O U-Y U-Y U-X", "BILOU"),
        ("B-X E-X O S-Y S-Y S-X", "BILOU"),
        ("B-X I-X E-X S-Y S-Y S-X", "BILOU"),
        ("B-X M-X E-X S-Y S-Y S-X", "BMES"),
        ("B M E S S S", "BMES"),
        ("NN VB DT NN B-X O", "plain"),
        ("O O O O O O", "BIO"),
    ],
)
def test_schemes_are_told_apart_and_become_bio(tags: str, scheme: str, tmp_path: Path) -> None:
    rows = "".join(f"字{i}\t{tag}\n" for i, tag in enumerate(tags.split()))
    reading = read_records(put(tmp_path, "a.conll", rows + "\n"))
    read = values(reading)[0]["tags"]
    assert reading.scheme == scheme
    if scheme == "plain":
        assert read == tags.split()
    elif "-" in tags:
        assert read == (
            "B-X I-X O B-Y B-Y B-X" if tags.split()[2] == "O" else "B-X I-X I-X B-Y B-Y B-X"
        ).split()  # fmt: skip
    elif tags[0] == "B":
        assert read == ["B", "I", "I", "B", "B", "B"]


def test_i_after_o_in_bio_is_tolerated_and_told(tmp_path: Path) -> None:
    text = "a\tB-X\nb\tI-X\n\n" * 40 + "c\tO\nd\tI-X\ne\tI-Y\n\n"
    reading = read_records(put(tmp_path, "a.conll", text))
    assert values(reading)[-1]["tags"] == ["O", "B-X", "B-Y"]
    assert [(repair.line, repair.code) for repair in reading.repaired] == [
        (122, "I- opens an entity"), (123, "I- opens an entity")
    ]  # fmt: skip
    assert (reading.used, reading.rejected.total) == (41, 0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("XY")), max_size=8))
def test_every_scheme_gives_the_same_bio(pieces: list[tuple[int, str]]) -> None:
    """Entities (length 0: an O) written in four schemes are read as one."""
    bio: list[str] = []
    forms: dict[str, list[str]] = {"IOB1": [], "BILOU": [], "BMES": []}
    before = ""
    for length, kind in pieces:
        bio += ["O"] if not length else [f"B-{kind}"] + [f"I-{kind}"] * (length - 1)
        opens = "B" if before == kind else "I"
        forms["IOB1"] += ["O"] if not length else [f"{opens}-{kind}"] + [f"I-{kind}"] * (length - 1)
        for scheme, one, inside, last in (("BILOU", "U", "I", "L"), ("BMES", "S", "M", "E")):
            letters = "" if not length else one if length == 1 else "B" + inside * (length - 2) + last
            forms[scheme] += [f"{letter}-{kind}" for letter in letters] or ["O"]
        before = kind if length else ""
    for scheme, tags in forms.items():
        assert to_bio(tags, scheme) == (bio, [], None)
    assert to_bio(bio, "BIO") == (bio, [], None)


def test_squad_1_and_2(tmp_path: Path) -> None:
    questions = [
        {"id": "a", "question": "谁？", "answers": [{"text": "李白", "answer_start": 2}]},
        {"id": "b", "question": "?", "answers": [], "is_impossible": True, "plausible_answers": []},
        {"id": "c", "question": "?", "is_impossible": False,
         "answers": [{"text": "写", "answer_start": 4}, {"text": "写", "answer_start": 1}]},
    ]  # fmt: skip
    whole = {"data": [{"title": "T", "paragraphs": [{"context": "😀是李白写", "qas": questions}]}], "version": "v2.0"}
    for indent in (None, 2):
        reading = read_records(put(tmp_path, "dev.json", json.dumps(whole, indent=indent)))
        read = values(reading)
        assert read[0] == {
            "id": "a", "title": "T", "question": "谁？", "context": "😀是李白写",
            "answers": [{"text": "李白", "start": 2}], "impossible": False,
        }  # fmt: skip
        assert (read[1]["answers"], read[1]["impossible"]) == ([], True)
        assert read[2]["answers"] == [{"text": "写", "start": 4}]
        assert reading.repaired.reasons == {"answer not in its place": 1}
        assert reading.found[str(tmp_path / "dev.json")] == {"format": "squad", "version": "v2.0"}


@pytest.mark.parametrize("name", [None, "a/b"])
def test_squad_in_linear_time_without_ids(name: str | None, tmp_path: Path) -> None:
    """No search for an id that is not there, or not as it is read; it took 4 s for these 3,000 questions."""
    answer = {"question": "which?", "answers": [{"text": "Paris", "answer_start": 0}]}
    paragraphs = [
        {
            "context": "Paris is the capital of France. " * 12,
            "qas": [{**answer, "id": f"{name}_{i}"} if name else answer],
        }
        for i in range(3000)
    ]
    path = put(
        tmp_path, "dev.json", json.dumps({"data": [{"title": "all", "paragraphs": paragraphs}]}).replace("/", "\\/")
    )
    began = time.process_time()
    assert sum(1 for _ in read_records(path)) == 3000
    assert time.process_time() - began < 1


def test_json_arrays_are_read_in_pieces(tmp_path: Path) -> None:
    """Numbers, strings and escapes that fall on the border of a piece come out whole."""
    rows = [{"text": 'é\\"\n' * (i % 700 + 1), "label": i * 1234567} for i in range(3000)]
    for indent in (None, 1):
        text = json.dumps(rows, indent=indent, ensure_ascii=bool(indent))
        reading = read_records(put(tmp_path, "a.json", text))
        assert values(reading) == rows
    assert [record.line for record in reading][:3] == [2, 6, 10]
    assert values(read_records(put(tmp_path, "lines.json", '{"a": 1}\n{"a": 2}\n'))) == [{"a": 1}, {"a": 2}]
    assert values(read_records(put(tmp_path, "none.json", "[]"))) == []
    numbers = read_records(put(tmp_path, "numbers.json", json.dumps([1234567] * 20_000)), format="json")
    assert (values(numbers), numbers.rejected.reasons) == ([], {"not an object": 20_000})  # none cut in two


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [
        {"text": f"第{i}行", "labels": ["a", "b"][: i % 3], "n": i, "label": "x" if i % 3 else " "}
        for i in range(1, 3000)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=700)
    assert values(read_records(path, columns={"n": "n", "text": "text", "labels": "labels"})) == [
        {"n": row["n"], "text": row["text"], "labels": row["labels"]} for row in rows
    ]
    reading = read_records(path, columns={"text": "text", "label": "label"})
    assert values(reading)[0] == {"text": "第1行", "label": "x"}
    assert reading.rejected.reasons == {"empty label": 999}
    assert reading.rows == len(rows)
    assert next(iter(read_records(path.rename(tmp_path / "renamed.bin")))).values["n"] == 1


def test_lines_with_labels_and_pairs(tmp_path: Path) -> None:
    at = read_records(put(tmp_path, "a.txt", "\ufeffmail me@home , please@neutral\r\nbad@negative\r\n"))
    assert values(at)[0] == {"text": "mail me@home , please", "label": "neutral"}
    assert at.found[str(tmp_path / "a.txt")]["format"] == "labelled"
    trec = put(tmp_path, "t.train", "NUM:dist How far is Z\xfcrich ?\n".encode("latin-1"))
    assert values(read_records(trec, format="label-first", encoding="latin-1")) == [
        {"label": "NUM:dist", "text": "How far is Zürich ?", "coarse": "NUM"}
    ]
    pairs = put(tmp_path, "cmn.txt", "\ufeffHi.\t嗨。\tCC-BY\nRun.\t你用跑的。\tCC-BY\n")
    assert values(read_records(pairs, format="pairs"))[0] == {"source": "Hi.", "target": "嗨。", "3": "CC-BY"}
    assert values(read_records(pairs, columns={"source": "1", "target": "2"}))[1]["target"] == "你用跑的。"


def test_parallel_and_several_files(tmp_path: Path) -> None:
    english, german = put(tmp_path, "a.en", "one\ntwo\n"), put(tmp_path, "a.de", gzip.compress(b"eins\r\nzwei"))
    assert values(read_records((english, german), format="parallel")) == [
        {"source": "one", "target": "eins"}, {"source": "two", "target": "zwei"}
    ]  # fmt: skip
    both = read_records([english, put(tmp_path, "b.en", "three\n\n")])
    assert [(record.values["text"], Path(record.file).name) for record in both] == [
        ("one", "a.en"), ("two", "a.en"), ("three", "b.en")
    ]  # fmt: skip
    assert (both.used, both.rejected.total) == (3, 1)
    assert both.rejected[0].file.endswith("b.en")


@pytest.mark.parametrize("encoding", ["utf-16", "gb18030", "utf-16-le"])
def test_other_encodings(encoding: str, tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "text,label\n很\u2028好，真的,正\n不好,负\n".encode(encoding))
    reading = read_records(path, columns=TEXT_LABEL, encoding=encoding)
    assert values(reading) == [{"text": "很\u2028好，真的", "label": "正"}, {"text": "不好", "label": "负"}]


def test_a_reading_can_be_read_again(tmp_path: Path) -> None:
    reading = read_records(put(tmp_path, "a.txt", "one\n\ntwo\n"))
    assert values(reading) == values(reading) == [{"text": "one"}, {"text": "two"}]
    assert (reading.used, reading.rejected.total, reading.rows) == (2, 1, 3)


CELL = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\0"), min_size=1)


@settings(deadline=None)
@given(st.lists(st.lists(CELL, min_size=2, max_size=2), min_size=1))
def test_quoted_rows_come_back(rows: list[list[str]]) -> None:
    text = "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in rows)
    back = list(quoted_rows(enumerate(text[:-1].split("\n"), 1), ",", frozenset({2})))
    assert [getattr(row, "cells", row) for row in back] == rows


@settings(deadline=None)
@given(st.lists(st.sampled_from(['a,"b"', "a,b", '"a,b', '"a"b,c', '"a\nb",c', "", ',"']), max_size=12))
def test_no_line_is_lost_whatever_the_quotes(pieces: list[str]) -> None:
    """Every line is in exactly one row or one fault."""
    lines = "\n".join(pieces).split("\n") if pieces else []
    covered: list[int] = []
    for row in quoted_rows(enumerate(lines, 1), ",", frozenset({2})):
        covered += [row.line] if isinstance(row, CsvError) else range(row.line, row.last + 1)
    assert covered == list(range(1, len(lines) + 1))


def test_an_unclosed_quote_costs_one_line_of_many(tmp_path: Path) -> None:
    """The csv module alone would read the rest of the file as one field."""
    path = put(tmp_path, "a.csv", 'text,label\n"never closed,1\n' + "fine,0\n" * 5000)
    reading = read_records(path)
    assert sum(1 for _ in reading) == 5000
    assert [(fault.line, fault.code) for fault in reading.rejected] == [(2, "unclosed quote")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.json", "a.txt", "a.conll", "a.parquet"])
def test_memory_does_not_grow_with_the_file(name: str, tmp_path: Path) -> None:
    """Peak Python memory over 6 times the rows stays within 1.3 times (a list of them would be 6 times)."""
    peaks = []
    for rows in (1_500, 9_000):
        path = tmp_path / f"{rows}-{name}"
        text = "word " * 20
        if name.endswith("parquet"):
            pq.write_table(pa.table({"text": [f"{text}{i}" for i in range(rows)]}), path, row_group_size=1000)
        else:
            row = {
                "a.jsonl": f'{{"text": "{text}"}}\n', "a.csv": f'"{text}",1\n', "a.tsv": f"{text}\t1\n",
                "a.json": f'{{"text": "{text}"}},\n', "a.txt": f"{text}\n", "a.conll": "word\tB-X\nword\tO\n\n",
            }[name]  # fmt: skip
            path.write_text("[" + row * rows + "{}]" if name == "a.json" else row * rows)
        for _ in read_records(path):
            pass  # caches fill up
        tracemalloc.start()
        count = sum(1 for _ in read_records(path))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count >= rows - 1
    assert peaks[1] < 1.3 * peaks[0] + 50_000


def test_one_sentence_of_another_scheme_is_one_rejected_row(tmp_path: Path) -> None:
    sentence = "Ada\tB-PER\nJones\tI-PER\nleft\tO\n\n"
    file = tmp_path / "mixed.conll"
    file.write_text(sentence * 20 + "Ada\tU-PER\nleft\tO\n\n" + sentence * 29)
    reading = read_records(file, task="ner")
    assert len(list(reading)) == 49
    assert [(fault.line, fault.code) for fault in reading.rejected] == [(81, "unknown tag prefix")]
    file.write_text(sentence * 8 + "Ada\tU-PER\nleft\tO\n\n" * 2)
    with pytest.raises(ValueError, match=r"mixed\.conll:33: the tags mix schemes: .*ner\.scheme"):
        list(read_records(file, task="ner"))


def test_spaces_of_conllu_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.conllu"
    file.write_text("1\tRome\tB-LOC\tSpaceAfter=No\n2\t.\tO\t_\n\n")
    (row,) = read_records(file, format="conll", columns={"tokens": "2", "tags": "3"})
    assert row.values["spaces"] == [False, True]


@pytest.mark.parametrize(
    ("text", "misc", "spaces"),
    [
        ("# text = He  is in (Rome).\n", "_", [True, True, True, False, False, False, False]),
        ("# text = He is in Rome .\n", "_", None),  # not made of the tokens
        ("# text = He is in Rome .\n", "SpaceAfter=No", [True, True, True, True, False, True, True]),
        ("", "_", None),
    ],
)
def test_spaces_are_those_of_the_text_that_a_file_holds(
    tmp_path: Path, text: str, misc: str, spaces: list[bool] | None
) -> None:
    tokens = ["He", "is", "in", "(", "Rome", ")", "."]
    lines = [f"{i}\t{token}\tO\t{misc if token == 'Rome' else '_'}" for i, token in enumerate(tokens, 1)]
    other = f"1\tYes\tO\t{misc}\n2\t.\tO\t_\n"  # one that says so tells that the others do not
    file = tmp_path / "a.conllu"
    file.write_text(f"# sent_id = 1\n{text}" + "\n".join(lines) + f"\n\n{other}\n")
    first, second = read_records(file, format="conll", columns={"tokens": "2", "tags": "3"})
    assert first.values.get("spaces") == spaces
    assert second.values.get("spaces") == (None if misc == "_" else [False, True])
    assert first.values.get("raw_text") == (text[9:-1] if text and spaces != [True, True, True, *[False] * 4] else None)
