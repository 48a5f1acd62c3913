"""A file as one document: its text unchanged, in pieces; the last tenth apart where it is split."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from multihead.data.readers import documents
from multihead.data.readers.read import read_records
from multihead.recipes import recipe
from multihead.training.dataset import Split


def texts(path: Path, side: str = "all", **options: str) -> list[str]:
    return [values["text"] for values in Split(read_records(path, task="generate", **options), side)()]


@pytest.mark.parametrize("piece", [5, 64, 1 << 16])
@pytest.mark.parametrize("text", ["one\n\ntwo\r\n\n  three", "x" * 300, "中文。\n" * 40, "\ufeffbom\n" * 3, "a\n" * 99])
def test_the_text_comes_back_whole(tmp_path, monkeypatch, piece, text):
    monkeypatch.setattr(documents, "PIECE", piece)
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode())
    plain = text.removeprefix("\ufeff")
    reading = read_records(path, task="generate")
    pieces = [record.values for record in reading]
    assert "".join(values["text"] for values in pieces) == plain
    at = 0
    for values in pieces:
        assert (values["at"], values["of"]) == (at, len(plain))
        at += len(values["text"])
    train, valid = ("".join(texts(path, side)) for side in ("train", "valid"))
    assert train + valid == plain
    assert len(train) == int(len(plain) * 0.9)


def test_tinyshakespeare_is_split_as_nanogpt_splits_it():
    path = recipe("shakespeare") / "tinyshakespeare.txt.gz"
    whole = gzip.decompress(path.read_bytes()).decode()
    assert "".join(texts(path, "train")) == whole[:1_003_854]
    assert "".join(texts(path, "valid")) == whole[1_003_854:]


def test_only_a_split_cuts_words(tmp_path, monkeypatch):
    """The last tenth was cut off wherever a document was read: a word at the border was scored as two."""
    path = tmp_path / "a.txt"
    path.write_text("word " * 99 + "end\n", encoding="utf-8")
    assert texts(path) == ["word " * 99 + "end\n"]
    assert [len(part) for side in ("train", "valid") for part in texts(path, side)] == [449, 50]
    monkeypatch.setattr(documents, "PIECE", 64)  # a line without end
    assert all(text.startswith(" word") for text in texts(path)[1:])


def test_faults_are_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\n\0bad\nfine\n")
    reading = read_records(path, task="generate")
    assert [record.values["text"] for record in reading] == ["fine\nfine\n"]
    assert str(reading.rejected[0]) == f"{path}:2: a NUL character in text"
    path.write_bytes("fine\nnaïve\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"a\.txt:2: byte 0xef .*latin-1"):
        list(read_records(path, task="generate"))


def test_other_tasks_read_lines(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n", encoding="utf-8")
    assert [record.values["text"] for record in read_records(path, task="mask", columns={"text": "text"})] == [
        "one",
        "two",
    ]
    assert texts(path, format="text") == ["one", "two"]
