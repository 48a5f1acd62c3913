"""A header is never a row: of tables whose names nobody knows, the rows tell, or reading stops and asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from multihead.data.readers.read import read_records

LABELLED = ("text", "label")
ROWS = {
    LABELLED: [(f"a film of {n} minutes", ("pos", "neg")[n % 2]) for n in range(40)],
    ("text",): [("a fine film",), ("a poor film",)] * 20,
    ("source", "target"): [("a film", "ein Film"), ("a cat", "eine Katze")] * 20,
    ("text_a", "text_b", "label"): [(f"a film {n}", f"a movie {n}", ("same", "other")[n % 2]) for n in range(40)],
    ("question", "context"): [("who?", "it is Ada"), ("where?", "in Rome")] * 20,
}
NAMES = [("name", "comment", "stars"), ("姓名", "评论", "星级"), ("How was it?", "Anything else?", "Your mood?")]


def write(path: Path, rows: list[tuple[str, ...]], quoted: bool) -> Path:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    lines = [delimiter.join(f'"{cell}"' if quoted else cell for cell in cells) for cells in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("roles", ROWS)
def test_names_that_nobody_knows_are_no_row(
    roles: tuple[str, ...], names: tuple[str, ...], ending: str, quoted: bool, tmp_path: Path
) -> None:
    header = names[: len(roles)]
    path = write(tmp_path / f"a.{ending}", [header, *ROWS[roles]], quoted and ending == "csv")
    with pytest.raises(ValueError, match=r"a\.[ct]sv:1: are these names of columns, or data"):
        list(read_records(path, columns={role: role for role in roles}))
    reading = read_records(path, columns=dict(zip(roles, header, strict=True)))
    assert [tuple(record.values.values()) for record in reading] == ROWS[roles]
    wider = write(tmp_path / f"b.{ending}", [(*header, "more"), *((*row, "x") for row in ROWS[roles])], False)
    with pytest.raises(ValueError, match="no column"):
        list(read_records(wider, columns={role: role for role in roles}))


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize(
    ("roles", "rows"),
    [
        (LABELLED, ROWS[LABELLED]),
        (LABELLED, [("a fine film", "1"), ("a poor film", "0")]),
        (("text",), [("This is a film.",), ("a cat",)]),
        (("source", "target"), [("Hello!", "Hallo"), ("a cat", "eine Katze")]),
        (("text_a", "text_b", "label"), ROWS["text_a", "text_b", "label"]),
    ],
)
def test_data_without_names_is_all_read(
    roles: tuple[str, ...], rows: list[tuple[str, ...]], ending: str, tmp_path: Path
) -> None:
    reading = read_records(write(tmp_path / f"a.{ending}", rows, False), columns={role: role for role in roles})
    assert [tuple(record.values.values()) for record in reading] == rows


def test_a_number_above_words_is_a_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [("comment", "2023"), *ROWS[LABELLED]], False)
    with pytest.raises(ValueError, match="are these names of columns"):
        list(read_records(path, columns={"text": "text", "label": "label"}))


@pytest.mark.parametrize(("format", "header"), [("pairs", "source\ttarget"), ("labelled", "text\tlabel")])
def test_formats_without_names_refuse_them(format: str, header: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{header}\na film\tein Film\n")
    with pytest.raises(ValueError, match="the first line is a header"):
        list(read_records(tmp_path / "a.txt", format=format))
