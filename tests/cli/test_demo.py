"""The demo on a few rows, in a process of its own: it trains, scores, tags, reports and draws."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from multihead.recipes import minilm


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    changes = ["data.limit=60", "train.epochs=1", "train.threads=1"]
    command = [sys.executable, "-m", "multihead", "demo", "--out", str(out), *changes]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "120"})
    assert done.returncode == 0, done.stderr
    for word in ("B-PER", "macro", "weighted", "entity F1", "Angela Merkel"):
        assert word in done.stdout
    assert ("from scratch" in done.stdout) == (minilm() is None)
    assert (out / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    scores = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    assert scores["test"]["strict.f1"]["interval"] is not None
