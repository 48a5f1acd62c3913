"""multihead.json: every change of it is seen; files from before its checksum still open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from multihead.io import manifest
from multihead.models import ModelConfig
from multihead.pretrained import create, load, save
from multihead.text.tokenizer import Tokenizer
from tests.flips import changed, flip_every_bit, flips, try_reading


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small BERT that says that it was trained for a task."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(["a small text", "and another one"], "wordpiece", 60)
    config = ModelConfig(
        vocab=len(tokenizer), dim=8, layers=1, heads=2, max_length=16, activation="gelu", positions="learned",
        norm_first=False, embed_norm=True, final_norm=False, token_types=2, pad=tokenizer.special["pad"],
    )  # fmt: skip
    loaded = create("bert", "ForSequenceClassification", encoder=config, tokenizer=tokenizer, labels=["bad", "good"])
    loaded.task, loaded.name, loaded.options = "classify", "mood", {"size": 16, "overlap": 4}
    save(loaded, tmp_path / "model")
    return tmp_path / "model"


def unsealed(directory: Path) -> bytes:
    told = json.loads((directory / "multihead.json").read_text())
    return json.dumps({name: value for name, value in told.items() if name not in ("format", "seal")}).encode()


def test_every_flipped_bit_is_detected(model: Path) -> None:
    detected, harmless = flip_every_bit(model / "multihead.json", lambda: manifest.check(model))
    assert detected == 8 * len((model / "multihead.json").read_bytes())
    assert harmless == 0


@pytest.mark.slow
def test_every_flipped_bit_of_a_file_from_before_is_no_traceback(model: Path) -> None:
    """Nothing vouches for the options of such a file; all other flips are detected."""
    file = model / "multihead.json"
    file.write_bytes(unsealed(model))
    want, silent = manifest.check(model), []
    for _ in flips(file):
        _, fault = try_reading(lambda: load(model).make_task())
        if fault:
            assert str(model) in fault
        else:
            silent += [name for name, value in manifest.check(model).items() if value != want[name]]
    assert set(silent) <= {"options", "name"}


def test_a_file_from_before_opens_and_saving_it_adds_the_checksum(model: Path, tmp_path: Path) -> None:
    want = load(model)
    (model / "multihead.json").write_bytes(unsealed(model))
    opened = load(model)
    assert (opened.task, opened.name, opened.options) == (want.task, want.name, want.options)
    save(opened, tmp_path / "again")
    told = json.loads((tmp_path / "again" / "multihead.json").read_text())
    assert told["format"] == 2
    assert len(told["seal"]) == 64


def test_removing_one_key_makes_no_older_file(model: Path) -> None:
    told = json.loads((model / "multihead.json").read_text())
    for name in ("format", "seal"):
        with (
            changed(model / "multihead.json", json.dumps({k: v for k, v in told.items() if k != name}).encode()),
            pytest.raises(ValueError, match="its own checksum does not match"),
        ):
            load(model)


def test_a_hand_edit_is_told_what_to_do(model: Path) -> None:
    text = (model / "multihead.json").read_text()
    (model / "multihead.json").write_text(text.replace('"size": 16', '"size": 8'))
    with pytest.raises(ValueError, match=r'multihead\.json: not what was written .* delete its lines "format" and'):
        load(model)
    (model / "multihead.json").write_bytes(unsealed(model))  # what the message says
    assert load(model).options["size"] == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "xlassify"}, r"the task is 'xlassify'; known: .*classify"),
        ({"task": 3}, "task is a int"),
        ({"options": []}, "options is a list"),
        ({"options": {"size": "16"}}, r"options\.size is '16'"),
        ({"sha256": {}}, r"config\.json has no sha256"),
        ({"sha256": {"config.json": 1}}, r"the sha256 of 'config\.json' is not valid"),
        ({"sha257": {}}, "unknown key 'sha257'"),
        ({"unfinished": False}, "unknown key 'unfinished'"),
    ],
)
def test_an_older_file_is_compared_with_the_schema(model: Path, change: dict, message: str) -> None:
    told = json.loads(unsealed(model)) | change
    (model / "multihead.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=message):
        load(model)


def test_without_the_file_it_is_a_foreign_model(model: Path) -> None:
    (model / "multihead.json").unlink()
    assert load(model).task is None
