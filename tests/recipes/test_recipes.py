import hashlib
import json
import re
from pathlib import Path

import pytest

from multihead.data.split import folded
from multihead.recipes import bundled, recipe, run_file, shakespeare
from multihead.recipes.benchmarks import reuters
from multihead.run import read
from multihead.train.given import data_of

RECIPES = {  # rows of train, valid (0: held out of train by hash) and test
    "uner_ewt": (12_543, 2_001, 2_077),
    "uner_zh": (3_997, 500, 500),
    "banking77": (10_003, 0, 3_080),
    "banking77_pairs": (6_000, 0, 1_500),
    "squad_small": (4_398, 0, 654),
    "tatoeba_en_zh": (27_655, 500, 1_000),
    "tatoeba_en_de": (59_940, 500, 1_000),
    "scitldr": (1_992, 619, 618),
    "shakespeare": (18, 0, 0),  # pieces of one document
}


def test_shakespeare_is_the_known_text() -> None:
    text = shakespeare()
    assert len(text) == 1_115_394
    assert len(set(text)) == 65
    assert text.startswith("First Citizen:\nBefore we proceed any further, hear me speak.\n")
    assert hashlib.sha256(text.encode()).hexdigest().startswith("86c4e6aa9db7c042")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_reads_and_says_whose_it_is(name: str) -> None:
    folder = recipe(name)
    beside = [path.read_text(encoding="utf-8") for path in folder.glob("*.txt")]
    assert any(re.search("Licence: (Creative Commons|Apache)|in the public domain", text) for text in beside)
    assert (folder / "LICENSE.txt").is_file()
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2_000_000
    readings, _ = data_of(read(folder / "run.toml"))
    counts = {side: sum(1 for _ in reading) for side, reading in readings.items()}
    assert tuple(counts.get(side, 0) for side in ("train", "valid", "test")) == RECIPES[name]
    assert all(reading.rejected.total == 0 for reading in readings.values())


@pytest.mark.parametrize("name", ["tatoeba_en_zh", "tatoeba_en_de"])
def test_no_sentence_stands_on_two_sides(name: str) -> None:
    readings, _ = data_of(read(recipe(name) / "run.toml"))
    for role in ("source", "target"):
        sides = [{folded(record.values[role]) for record in reading} for reading in readings.values()]
        assert not sides[0] & sides[1]
        assert not (sides[0] | sides[1]) & sides[2]


@pytest.mark.parametrize("path", sorted(recipe("benchmarks").glob("*.toml")), ids=lambda path: path.stem)
def test_benchmarks_are_run_files(path: Path) -> None:
    run = read(path)
    assert run.task in path.read_text(encoding="utf-8") if run.task else len(run.tasks) > 1


def test_reuters_becomes_headlines_and_bodies(tmp_path: Path) -> None:
    story = (
        '<REUTERS TOPICS="YES" LEWISSPLIT="{}" NEWID="1">\n<TITLE>COCOA &lt;UP></TITLE>\n<BODY>Showers continued\n'
        "in the zone, and prices rose by 3 pct.\n Reuter\n&#3;</BODY></TEXT>\n</REUTERS>\n"
    )
    text = story.format("TRAIN") + story.format("TEST") + story.format("NOT-USED")
    (tmp_path / "a.sgm").write_text(text + '<REUTERS LEWISSPLIT="TRAIN"><TITLE>X</TITLE></REUTERS>', encoding="latin-1")
    reuters.main(str(tmp_path), str(tmp_path / "out"))
    (row,) = [json.loads(line) for line in (tmp_path / "out" / "train.jsonl").read_text().strip().split("\n")]
    assert row == {
        "source": "Showers continued in the zone, and prices rose by 3 pct.",
        "target": "COCOA <UP>",
    }
    assert len((tmp_path / "out" / "bodies.txt").read_text().split("\n")) == 3
    assert len((tmp_path / "out" / "abstracts.txt").read_text().split("\n")) == 1_993


def test_no_recipe_is_forgotten() -> None:
    folders = {path.name for path in Path(str(recipe("uner_ewt"))).parent.iterdir() if (path / "run.toml").is_file()}
    assert folders == set(RECIPES)


def test_recipes_are_found_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {*RECIPES} < {*bundled()}
    assert run_file("uner_zh") == recipe("uner_zh") / "run.toml"
    assert run_file("conll2003") == recipe("benchmarks") / "conll2003.toml"
    assert read(run_file("banking77")).task == "classify"
    assert run_file("nowhere.toml") == Path("nowhere.toml")
    Path("uner_zh").write_text("task = 'ner'", encoding="utf-8")
    assert run_file("uner_zh") == Path("uner_zh")  # a person's own file comes first
