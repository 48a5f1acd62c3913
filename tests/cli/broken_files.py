"""Broken files of every format for five tasks, made from good ones: (task, file name, bytes, inputs or None).

Inputs: how many a person would count, where that is clear.
"""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

Case = tuple[str, str, bytes, int | None]

ROWS: dict[str, tuple[tuple[str, ...], list[tuple[object, ...]]]] = {
    "classify": (("text", "label"), [("fine lovely", "good"), ("dull cold", "bad"), ("great fine", "good")]),
    "match": (
        ("text_a", "text_b", "label"),
        [("Ada is here", "Ada went", "same"), ("Bo is here", "Eve went", "other")],
    ),
    "translate": (("source", "target"), [("Ada Rome", "ada rome"), ("Bo Oslo", "bo oslo"), ("Eve", "eve")]),
    "answer": (
        ("question", "context", "answers"),
        [
            ("where is Ada", "Ada is in Rome now", [{"text": "Rome", "start": 10}]),
            ("where is Bo", "Bo is in Oslo now", [{"text": "Oslo", "start": 9}]),
        ],
    ),
    "ner": (
        ("tokens", "tags"),
        [(["Ada", "saw", "Rome"], ["B-PER", "O", "B-LOC"]), (["Bo", "saw", "Oslo"], ["B-PER", "O", "B-LOC"])],
    ),
}
NOISE = random.Random(7).randbytes(3000)
FOREIGN = {
    "empty": b"",
    "spaces": b"   \n \n\t\n",
    "newlines": b"\n" * 50,
    "nuls": b"\0" * 5000,
    "noise": NOISE,
    "png": b"\x89PNG\r\n\x1a\n" + NOISE,
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n",
    "html": b"<!DOCTYPE html>\n<html><head><title>404</title></head>\n<body>Not, Found</body></html>\n",
}


def objects(task: str) -> list[dict[str, object]]:
    columns, rows = ROWS[task]
    return [dict(zip(columns, row, strict=True)) for row in rows]


def good(task: str) -> dict[str, bytes]:
    """A good file in each format that the task reads."""
    columns, rows = ROWS[task]
    packed = io.BytesIO()
    pq.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(columns)}), packed)
    files = {
        "jsonl": "".join(json.dumps(row) + "\n" for row in objects(task)).encode(),
        "json": json.dumps(objects(task)).encode(),
        "parquet": packed.getvalue(),
    }
    if task in ("classify", "match", "translate"):
        for ending, sign in (("csv", ","), ("tsv", "\t")):
            files[ending] = "".join(sign.join(map(str, row)) + "\n" for row in (columns, *rows)).encode()
    if task == "classify":
        files["txt"] = "".join(f"{text}\n" for text, _ in rows).encode()
    if task == "ner":
        sentences = ("".join(f"{word} {tag}\n" for word, tag in zip(*row, strict=True)) for row in rows)  # type: ignore[call-overload]
        files["conll"] = "\n".join(sentences).encode()
    if task == "answer":
        asked = [
            {"context": context, "qas": [{"id": question, "question": question, "answers": [
                {"text": answers[0]["text"], "answer_start": answers[0]["start"]}]}]}  # type: ignore[index]
            for question, context, answers in rows
        ]  # fmt: skip
        files["squad.json"] = json.dumps({"data": [{"title": "t", "paragraphs": asked}]}).encode()
    return files


def damaged(ending: str, data: bytes, count: int) -> Iterator[tuple[str, bytes, int | None]]:
    """The same faults for every format."""
    for name, other in FOREIGN.items():
        yield f"{name}.{ending}", other, 0 if name == "empty" else None
    yield f"half.{ending}", data[: len(data) // 2], None
    yield f"last.{ending}", data[:-2], None
    if ending == "parquet":
        yield f"flip.{ending}", data[:60] + bytes([data[60] ^ 255]) + data[61:], None
        yield f"magic.{ending}", b"PAR1" * 3, None
        return
    text, middle = data.decode(), next(data.find(word) for word in (b"fine", b"Bo") if word in data) + 1
    for name in ("utf-16", "utf-16-le", "utf-32"):
        yield f"{name}.{ending}", text.encode(name), None
    for name, more in {
        "latin": b"\xe9", "nul": b"\0", "surrogate": b"\xed\xa0\x80", "ff": b"\xff\xfe",
        "signs": "\u2028\x0c\x85".encode(),
        "long": b"a" * 20_000, "escape": b"\x07\x1b[31m\x08", "gb": "中文".encode("gb18030"), "good": b"",
    }.items():  # fmt: skip
        yield f"{name}.{ending}", data[:middle] + more + data[middle:], count
    yield f"bom.{ending}", b"\xef\xbb\xbf" + data, count
    yield f"boms.{ending}", b"\xef\xbb\xbf" * 2 + data, None
    yield f"crlf.{ending}", data.replace(b"\n", b"\r\n"), count
    yield f"cr.{ending}", data.replace(b"\n", b"\r"), None
    packed = gzip.compress(data)
    yield f"whole.{ending}.gz", packed, count
    yield f"half.{ending}.gz", packed[: len(packed) // 2], None
    yield f"tail.{ending}.gz", packed + b"garbage", None
    yield f"crc.{ending}.gz", packed[:-6] + b"\0\0" + packed[-4:], None
    yield f"not.{ending}.gz", data, None


def lines(*several: str) -> bytes:
    return ("\n".join(several) + "\n").encode()


SPECIAL: list[Case] = [
    ("classify", "quote.csv", lines("text,label", '"fine lovely,good', "dull,bad"), None),
    ("classify", "ragged.csv", lines("text,label", "fine", "dull,bad", "fine,good,x"), 3),
    ("classify", "twice.csv", lines("text,text,label", "a,b,good"), None),
    ("classify", "nameless.csv", lines("fine,good", "dull,bad"), None),
    ("classify", "header.csv", lines("text,label"), 0),
    ("classify", "others.csv", lines("name,comment", "ann,fine"), None),
    ("classify", "wide.csv", lines(",".join(f"c{i}" for i in range(3000)), ",".join("x" * 3000)), None),
    ("classify", "nan.csv", lines("text,label", "fine,NaN", "dull,"), 2),
    ("classify", "deep.jsonl", b'{"text":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", 1),
    ("classify", "deep.json", b"[" * 100_000, None),
    ("classify", "nan.jsonl", lines('{"text": NaN, "label": "good"}', '{"text": "fine", "label": 1e999}'), 2),
    ("classify", "digits.jsonl", lines('{"text": "fine", "label": ' + "9" * 6000 + "}"), 1),
    ("classify", "keys.jsonl", lines("{}", '{"txt": "a"}', '{"text": "a", "text": "b", "label": "good"}'), 3),
    ("classify", "kinds.jsonl", lines(*(f'{{"text": {v}, "label": "good"}}' for v in ("5", "null", '["a"]', "{}"))), 4),
    ("classify", "halves.jsonl", lines(r'{"text": "a\ud800b", "label": "good"}', r'{"text": "\u0000"}'), 2),
    ("classify", "scalars.jsonl", lines("1", '"fine"', "null", '["fine", "good"]'), 4),
    ("classify", "mixed.json", b'[{"text": "fine", "label": "good"}, 5, null, "x", [1]]', 5),
    ("classify", "object.json", b'{"a": {"text": "fine", "label": "good"}}', None),
    ("classify", "blank.txt", b"fine\n\n\ndull\n", 4),
    ("classify", "array.txt", b'[{"text": "fine"}, {"text": "dull"}]\nfine\n', 2),
    ("classify", "marks.txt", b"a\x0bb\x0cc\x1cd\x85e\n", 1),
    ("match", "side.jsonl", lines('{"text_a": "x"}', '{"text_a": "", "text_b": "", "label": "same"}'), 2),
    ("match", "ragged.tsv", lines("text_a\ttext_b\tlabel", "a\tb", "a\tb\tsame\tx"), 2),
    ("translate", "sides.tsv", lines("source\ttarget", "\tx", "y\t", "z"), 3),
    ("translate", "null.jsonl", lines('{"source": null, "target": "x"}', '{"source": ["a"], "target": [3]}'), 2),
    ("ner", "ragged.conll", lines("Ada B-PER", "saw", "Rome B-LOC x", "", "Bo O", ""), None),
    ("ner", "tags.conll", lines("Ada B-", "saw -", "Rome I--", "", "Bo B-PER", ""), None),
    ("ner", "documents.conll", lines("-DOCSTART- -X- -X- O", "", "-DOCSTART- -X- -X- O", ""), None),
    ("ner", "kinds.jsonl", lines('{"tokens": ["a", "b"], "tags": ["O"]}', '{"tokens": [], "tags": []}',
        '{"tokens": [1, null], "tags": ["O", "O"]}', '{"tokens": ["a"], "tags": [3]}'), 4),
    ("ner", "later.jsonl", lines('{"tokens": ["Ada"], "tags": ["B-PER"]}', '{"tokens": ["a"]}', '{"tags": ["O"]}'), 3),
    ("answer", "later.jsonl", lines(json.dumps(objects("answer")[0]), '{"question": "q", "context": "abc"}'), 2),
    ("answer", "kinds.jsonl", lines(*(f'{{"question": "q", "context": "abc", "answers": {v}}}' for v in (
        '[{"text": "b", "start": 2}]', '"b"', "null", '{"text": ["b"], "answer_start": []}',
        '[{"text": "b", "start": 1e308}]', '[{"text": "b", "start": 99999999999999999999}]'))), 6),
    *(("answer", f"data{i}.json", data, None) for i, data in enumerate((
        b'{"version": "1.1"}', b'{"data": "x"}', b'{"data": [{"paragraphs": ["x", 5, null]}]}',
        b'{"data": [{"paragraphs": [{"context": "a", "qas": null}]}]}'))),
]  # fmt: skip


def every() -> Iterator[Case]:
    for task in ROWS:
        for ending, data in good(task).items():
            yield from ((task, *case) for case in damaged(ending, data, len(ROWS[task][1])))
    yield from SPECIAL
