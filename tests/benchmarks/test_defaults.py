"""The comparison of our defaults with a plain loop: its sets, its scores, its intervals; one real pair of runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr
from seqeval.metrics import f1_score

from benchmarks.defaults import interval, main, row_sums, score_of
from benchmarks.plain_loop import first_subwords
from benchmarks.small_sets import SmallSet, misspell
from multihead.recipes import minilm

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def test_sets_are_drawn_by_their_seed_and_held_out_rows_stay() -> None:
    rows = [{"text": f"several longer words {i}", "label": "a"} for i in range(50)]
    small = SmallSet("classify", lambda _: (rows[:30], rows[30:]), 10, typos=0.5, lower=True)
    first, again, other = (small.draw(Path(), seed) for seed in (1, 1, 2))
    assert first == again
    assert first[0] != other[0]
    assert first[1] == other[1]
    assert len(first[0]) == 10
    assert {row["text"][-2:] for row in first[0]}.isdisjoint({row["text"][-2:] for row in first[1]})


def test_a_typo_changes_one_place_and_no_short_word_or_number() -> None:
    draw = np.random.default_rng(0)
    found = [misspell("sentence", draw) for _ in range(200)]
    assert all(word[0] == "s" and abs(len(word) - 8) <= 1 for word in found)
    assert len(set(found)) > 20
    assert [misspell(word, draw) for word in ("the", "1999", "U.S.")] == ["the", "1999", "U.S."]


def test_scores_are_those_of_the_peers() -> None:
    draw = np.random.default_rng(1)
    gold, said = ([[TAGS[i] for i in draw.integers(5, size=9)] for _ in range(40)] for _ in range(2))
    sums = np.sum([row_sums("ner", {"tags": a}, b) for a, b in zip(gold, said, strict=True)], axis=0)
    assert score_of("ner", sums) == pytest.approx(f1_score(gold, said))
    x, y = draw.normal(size=(2, 60))
    sums = np.sum([row_sums("match", {"label": a}, b) for a, b in zip(x, y, strict=True)], axis=0)
    assert score_of("match", sums) == pytest.approx(pearsonr(x, y)[0])


def test_an_interval_sees_a_difference_and_no_difference() -> None:
    draw = np.random.default_rng(2)
    right = (draw.random((3, 800)) < 0.7).astype(float)
    worse = right * (draw.random((3, 800)) < 0.9)
    first, second = (np.stack([side, np.ones_like(side)], axis=-1) for side in (right, worse))
    mean, low, high = interval("classify", first, second)
    assert low < mean < high < 0
    assert interval("classify", first, first) == (0, 0, 0)


def test_the_plain_loop_labels_first_subwords() -> None:
    assert first_subwords([None, 0, 0, 1, 2, 2, None]) == [(1, 0), (3, 1), (4, 2)]


@pytest.mark.slow
@pytest.mark.skipif(minilm() is None, reason="wants MiniLM")
def test_both_sides_run_and_finished_runs_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trec").mkdir()
    lines = [f"{'NUM:x How many' if i % 2 else 'LOC:y Where'} towns are number {i} ?" for i in range(1040)]
    (tmp_path / "trec" / "TREC.train").write_text("\n".join(lines))
    given = [str(tmp_path), "--out", str(tmp_path / "out"), "--sets", "trec", "--seeds", "1"]
    assert main(given) == 0
    assert "equal" in capsys.readouterr().out
    assert main(given) == 0
    assert "[1/2]" not in capsys.readouterr().out
