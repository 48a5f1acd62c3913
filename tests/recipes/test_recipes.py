import hashlib
from pathlib import Path

import pytest

from multihead.recipes import recipe, shakespeare
from multihead.run import read
from multihead.train.setup import data_of

RECIPES = {  # rows of train, valid (0: held out of train by hash) and test
    "uner_ewt": (12_543, 2_001, 2_077),
    "uner_zh": (3_997, 500, 500),
    "banking77": (10_003, 0, 3_080),
    "banking77_pairs": (6_000, 0, 1_500),
    "squad_small": (4_398, 0, 654),
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
    assert "Licence: Creative Commons" in (folder / "ATTRIBUTION.txt").read_text(encoding="utf-8")
    assert (folder / "LICENSE.txt").is_file()
    readings, _ = data_of(read(folder / "run.toml"))
    counts = {side: sum(1 for _ in reading) for side, reading in readings.items()}
    assert tuple(counts.get(side, 0) for side in ("train", "valid", "test")) == RECIPES[name]
    assert all(reading.rejected.total == 0 for reading in readings.values())


def test_no_recipe_is_forgotten() -> None:
    folders = {path.name for path in Path(str(recipe("uner_ewt"))).parent.iterdir() if (path / "run.toml").is_file()}
    assert folders == set(RECIPES)
