"""Checkpoints whose manifests are damaged, old, or of another run."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from multihead.training import checkpoints
from multihead.training.checkpoints import latest_checkpoint, open_checkpoint, save
from tests.flips import changed, flip_every_bit

TENSORS = {"model": {"w": torch.arange(6.0).view(2, 3)}, "optimizer": {"0.step": torch.tensor(3.0)}}


def content(path):
    kept = open_checkpoint(path)
    tensors = {file: {name: t.tolist() for name, t in group.items()} for file, group in kept.tensors.items()}
    return kept.step, tensors, kept.state


def unsealed(path):
    """The manifest as it was written before it had a checksum of itself."""
    manifest = json.loads((path / "manifest.json").read_text())
    old = {name: manifest[name] for name in ("step", "sha256")}
    (path / "manifest.json").write_text(json.dumps(old, indent=2) + "\n")


@pytest.mark.parametrize("old", [False, True], ids=["sealed", "from before"])
def test_every_flipped_bit_of_a_manifest_is_detected(tmp_path, old):
    path = save(tmp_path, 9, TENSORS, {"best": {}})
    if old:
        unsealed(path)
    detected, harmless = flip_every_bit(path / "manifest.json", lambda: content(path))
    assert detected == 8 * len((path / "manifest.json").read_bytes())
    assert harmless == 0


def test_a_changed_digit_falls_back_to_the_checkpoint_before(tmp_path):
    for step in (8, 9):
        path = save(tmp_path, step, TENSORS, {"best": {}})
    text = (path / "manifest.json").read_bytes()
    for old, new in ((b'"step": 9', b'"step": 8'), (b'"step"', b'"stdp"'), (b'"sha256"', b'"sha257"')):
        with changed(path / "manifest.json", text.replace(old, new)):
            kept, wrong = latest_checkpoint(tmp_path)
            assert kept.step == 8
            assert str(path / "manifest.json") in wrong[0]
    assert latest_checkpoint(tmp_path)[0].step == 9


def test_a_renamed_checkpoint_is_not_used(tmp_path):
    shutil.copytree(save(tmp_path, 8, TENSORS, {"best": {}}), tmp_path / "step-12")
    kept, wrong = latest_checkpoint(tmp_path)
    assert kept.step == 8
    assert "names step 8, but the directory is step-12" in wrong[0]


def test_a_manifest_without_the_seal_is_no_older_one(tmp_path):
    path = save(tmp_path, 9, TENSORS, {"best": {}})
    manifest = json.loads((path / "manifest.json").read_text())
    for name in ("seal", "format"):
        with changed(path / "manifest.json", json.dumps({k: v for k, v in manifest.items() if k != name}).encode()):
            assert latest_checkpoint(tmp_path)[0] is None
    unsealed(path)
    assert content(path)[0] == 9


def test_a_newer_format_is_named(tmp_path):
    from multihead.io.seal import checksum

    path = save(tmp_path, 9, TENSORS, {"best": {}})
    newer = {"format": 3, "step": 9, "sha256": {}, "more": 1}
    (path / "manifest.json").write_text(json.dumps({**newer, "seal": checksum(newer)}))
    assert "format 3, this version reads up to 2; upgrade" in latest_checkpoint(tmp_path)[1][0]


def test_states_of_damaged_checkpoints_are_left_out(tmp_path):
    for step in (8, 9):
        path = save(tmp_path, step, TENSORS, {"best": {"step": step}})
    with changed(path / "state.json", b'{"bust": {"step": 9}}'):
        assert [state["best"]["step"] for state in checkpoints.read_states(tmp_path)] == [8]
    assert [state["best"]["step"] for state in checkpoints.read_states(tmp_path)] == [9, 8]
