"""`data.limit`: rows drawn from the whole file, always the same ones, whole documents where sentences need them."""

from __future__ import annotations

from pathlib import Path

from multihead.data.readers.read import read_records
from multihead.training.dataset import Split


def lines_of(side: Split) -> list[int]:
    return [values["line"] for values in side()]


def test_rows_are_drawn_from_the_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,label\n" + "".join(f"text {i},x\n" for i in range(1000)))
    reading = read_records(file, columns={"text": "text", "label": "label"})
    few, more = Split(reading, "all", 50), Split(reading, "all", 200)
    taken = lines_of(few)
    assert len(taken) == 50
    assert taken == sorted(taken)
    assert max(taken) > 900
    assert sum(taken) / 50 > 300
    assert lines_of(few) == taken == lines_of(Split(reading, "all", 50))
    assert set(taken) < set(lines_of(more))
    assert lines_of(Split(reading, "all", 5000)) == lines_of(Split(reading))
    train = Split(reading, "train", 50)
    assert len(lines_of(train)) == 50
    assert not set(lines_of(train)) & set(lines_of(Split(reading, "valid")))


def test_copies_do_not_overrun_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,label\n" + "same,x\n" * 40)
    assert len(lines_of(Split(read_records(file, columns={"text": "text", "label": "label"}), "all", 7))) == 7


def test_whole_documents(tmp_path: Path) -> None:
    file = tmp_path / "a.conll"
    with file.open("w") as out:
        for document in range(30):
            out.write("-DOCSTART-\tO\n\n")
            for sentence in range(4):
                out.write(f"w{document}\tO\nv{sentence}\tO\n\n")
    taken = [
        (values["document"], values["tokens"][1]) for values in Split(read_records(file), "all", 10, documents=True)()
    ]
    assert len(taken) == 10
    documents = list(dict.fromkeys(document for document, _ in taken))
    assert len(documents) == 3
    whole = [f"v{sentence}" for sentence in range(4)]
    found = [[word for document, word in taken if document == one] for one in documents]
    assert sorted(found, key=len) == [whole[:2], whole, whole]
    apart = [values["document"] for values in Split(read_records(file), "all", 10)()]
    assert len(set(apart)) > 3
