"""`python -m benchmarks corpus`: texts are as long as asked, a run is measured in its own process, the bar can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import corpus_memory
from benchmarks.corpus_memory import BAR, CorpusReport, CorpusResult, peaks, write_text

MB = 2**20


def test_a_text_has_the_wanted_size(tmp_path: Path) -> None:
    for size in (10, 3_000_000):
        write_text(tmp_path / "text.txt", size)
        assert (tmp_path / "text.txt").stat().st_size == size
    lines = (tmp_path / "text.txt").read_text().split("\n")
    assert len(set(lines)) > 0.8 * len(lines) / 2


def test_more_is_counted_from_the_smallest_text_of_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    small = [CorpusResult("mask", 10, 300 * MB, 200 * MB), CorpusResult("generate", 10, 100 * MB, 90 * MB)]
    good = CorpusReport([*small, CorpusResult("generate", 1000, 250 * MB, 90 * MB)])
    assert good.holds
    assert good.more(good.lines[2]) == 150 * MB
    bad = CorpusReport([*small, CorpusResult("generate", 1000, 300 * MB, 90 * MB)])
    assert bad.more(bad.lines[2]) == BAR
    assert not bad.holds
    assert json.loads(bad.json())["lines"][2]["more"] == BAR
    corpus_memory.show(bad, Console(width=100))
    assert "FAIL" in capsys.readouterr().out


def test_a_run_that_dies_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        peaks("generate", tmp_path / "none.txt", tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("task", corpus_memory.TASKS)
def test_memory_does_not_grow_with_the_text(task: str) -> None:
    """By a quarter of what 1 GB may take, for 3 MB more."""
    report = CorpusReport(list(corpus_memory.measure([task], [1, 4], lambda *_: None)))
    assert [line.text for line in report.lines] == [10**6, 4 * 10**6]
    assert report.lines[0].own < report.lines[0].peak
    assert report.more(report.lines[1]) < BAR / 4
