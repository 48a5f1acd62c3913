import hashlib
import json
import re
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from multihead.config import read
from multihead.data.splits import fold_text
from multihead.models import ModelConfig
from multihead.pretrained import create, save
from multihead.recipes import bundled_recipes, recipe, run_file, shakespeare
from multihead.recipes.benchmarks import prepare_reuters, sst2_augment
from multihead.text.tokenizer import Tokenizer
from multihead.training.task_data import make_splits

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
    readings, _ = make_splits(read(folder / "run.toml"))
    counts = {side: sum(1 for _ in reading) for side, reading in readings.items()}
    assert tuple(counts.get(side, 0) for side in ("train", "valid", "test")) == RECIPES[name]
    assert all(reading.rejected.total == 0 for reading in readings.values())


@pytest.mark.parametrize("name", ["tatoeba_en_zh", "tatoeba_en_de"])
def test_no_sentence_stands_on_two_sides(name: str) -> None:
    readings, _ = make_splits(read(recipe(name) / "run.toml"))
    for role in ("source", "target"):
        sides = [{fold_text(record.values[role]) for record in reading} for reading in readings.values()]
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
    prepare_reuters.main(str(tmp_path), str(tmp_path / "out"))
    (row,) = [json.loads(line) for line in (tmp_path / "out" / "train.jsonl").read_text().strip().split("\n")]
    assert row == {
        "source": "Showers continued in the zone, and prices rose by 3 pct.",
        "target": "COCOA <UP>",
    }
    assert len((tmp_path / "out" / "bodies.txt").read_text().split("\n")) == 3
    assert len((tmp_path / "out" / "abstracts.txt").read_text().split("\n")) == 1_993


def test_sentences_with_words_that_a_model_embeds_close_by(tmp_path: Path) -> None:
    long = "it is a really fine film of its kind"
    rows = [long, "a really fine film of its kind", "fine film", "one more dull story about a very dull man"]
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n" + "".join(f"{row} \t1\n" for row in rows))
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\ta test , unlabelled\n")
    assert sst2_augment.sentences(rows) == [long, rows[3]]
    tokenizer = Tokenizer.train(rows * 20, "wordpiece", 400)
    model = create(
        "bert", "ForMaskedLM", encoder=ModelConfig(
            vocab=len(tokenizer), dim=16, layers=1, heads=2, max_length=32, positions="learned", norm_first=False,
            embed_norm=True, final_norm=False, token_types=2, pad=tokenizer.special["pad"], norm_eps=1e-12,
        ), tokenizer=tokenizer,
    )  # fmt: skip
    words = ["really", "fine", "dull", "story"]
    table = cast(Any, model.model.body).stem.embedding.weight.data
    fine, dull = (tokenizer.inner.encode(word, add_special_tokens=False).ids[0] for word in ("fine", "dull"))
    table[fine] = 10 * table[dull]
    save(model, tmp_path / "teacher")
    assert sst2_augment.nearest_words(words, tmp_path / "teacher")["fine"] == ["dull"]
    new = list(sst2_augment.exchange_words([long] * 20, {"fine": ["dull"]}, Random(0)))
    assert 0 < len(new) < 20
    assert {*new} == {long.replace("fine", "dull")}
    sst2_augment.main(str(tmp_path), str(tmp_path / "teacher"), str(tmp_path / "more.txt"))
    assert (tmp_path / "more.txt").read_text().startswith("a test , unlabelled\n")


def test_no_recipe_is_forgotten() -> None:
    folders = {path.name for path in Path(str(recipe("uner_ewt"))).parent.iterdir() if (path / "run.toml").is_file()}
    assert folders == set(RECIPES)


def test_recipes_are_found_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {*RECIPES} < {*bundled_recipes()}
    assert run_file("uner_zh") == recipe("uner_zh") / "run.toml"
    assert run_file("conll2003") == recipe("benchmarks") / "conll2003.toml"
    assert read(run_file("banking77")).task == "classify"
    assert run_file("nowhere.toml") == Path("nowhere.toml")
    Path("uner_zh").write_text("task = 'ner'", encoding="utf-8")
    assert run_file("uner_zh") == Path("uner_zh")  # a person's own file comes first
