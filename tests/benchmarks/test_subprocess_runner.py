"""Contestants in processes of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.attention_baselines import OURS
from benchmarks.subprocess_runner import run_in_processes
from benchmarks.training import Benchmark, RoundResult, run


def made() -> Benchmark:
    return Benchmark("made", "made up", {name: lambda: RoundResult(os.getpid(), 1, 0.5) for name in NAMES}, {}, float)


def wrong() -> Benchmark:
    return Benchmark("wrong", "it dies", {OURS: lambda: os._exit(3)}, {}, float)


NAMES = (OURS, "theirs")


def test_each_runs_in_its_own_process(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with run_in_processes(made, dict.fromkeys(NAMES)) as loops:
        first = {name: loop() for name, loop in loops.items()}
        again = {name: loop() for name, loop in loops.items()}
    assert first == again
    assert len({os.getpid(), *(ran.tokens for ran in first.values())}) == 3
    for ran in first.values():
        with pytest.raises(ProcessLookupError):  # and is gone afterwards
            os.kill(ran.tokens, 0)
    assert run(made, 2, tmp_path, json=False) == 0
    assert "theirs" in capfd.readouterr().out
    assert (tmp_path / "train-made.json").exists()


def test_a_process_that_dies_is_told() -> None:
    with run_in_processes(wrong, {OURS: None}) as loops, pytest.raises(ValueError, match="ours: its process has ended"):
        loops[OURS]()
