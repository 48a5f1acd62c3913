"""Formats that only the content tells apart, and what must not be taken for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from multihead.data.readers.read import read_records

TEXT_LABEL = {"text": "text", "label": "label"}
TREC = ["DESC:manner How did serfdom develop ?", "ENTY:cremat What films did he make ?", "NUM:date When was it ?"]
CHAT = [f"{who}:{word} and so on ." for who in ("ALICE", "BOB") for word in "abcdefghijklmnopqrstuvwxyz"]


def found(path: Path, lines: list[str], columns: dict[str, str] | None = TEXT_LABEL) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="latin-1")
    return str(read_records(path, columns=columns, encoding="latin-1").found[str(path)]["format"])


def test_labels_first(tmp_path: Path) -> None:
    file = tmp_path / "TREC.train"
    assert found(file, TREC * 20) == "label-first"
    assert found(file, [*TREC * 20, "HUM:ind Who is Pelé ?"]) == "label-first"
    assert found(file, TREC * 20, {"text": "text", "label": "coarse"}) == "label-first"
    rows = list(read_records(file, columns={"text": "text", "label": "coarse"}, encoding="latin-1"))
    assert rows[0].values == {"text": "How did serfdom develop ?", "label": "DESC"}
    assert found(tmp_path / "fast.txt", ["__label__good a fine film", "__label__bad\tdull"], None) == "label-first"


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (TREC * 20, {"text": "text"}),  # nobody asks for a label: text may look like anything
        (TREC * 20, None),
        (TREC * 3, TEXT_LABEL),  # too few to be sure
        ([*TREC * 20, "What is this ?"], TEXT_LABEL),  # one line without
        (CHAT, TEXT_LABEL),  # labels that do not come again
        (["NB:this is text .", "Ps: so is this ."] * 20, TEXT_LABEL),
        (["12:30 the train leaves"] * 40, TEXT_LABEL),
        (["__label__good a fine film", "another line"], None),
        (["__label__good"], None),
    ],
)
def test_what_is_no_label_stays_text(tmp_path: Path, lines: list[str], columns: dict[str, str] | None) -> None:
    assert found(tmp_path / "some.txt", lines, columns) == "text"


def test_other_formats_go_first(tmp_path: Path) -> None:
    assert found(tmp_path / "a.tsv", ["text\tlabel", *(f"{line}\tx" for line in TREC * 20)]) == "tsv"
    assert found(tmp_path / "a.csv", ["text,label", *(f"{line},x" for line in TREC * 20)]) == "csv"


def test_a_short_line_hides_no_tags(tmp_path: Path) -> None:
    """One line of one column, and a token that is white space elsewhere (U+3000)."""
    path = tmp_path / "weibo.train"
    for odd in ("好\n\n", "\u3000 O\n好 O\n\n"):
        path.write_text("上 B-LOC\n海 I-LOC\n\n" * 20 + odd + "好 O\n\n", encoding="utf-8")
        reading = read_records(path, task="ner")
        assert len(list(reading)) + reading.rejected.total == 22
        assert reading.found[str(path)]["format"] == "conll"
    assert found(tmp_path / "some.txt", ["A dog", "O well", "", "B-side", "I see"] * 9, {"text": "text"}) == "text"
