"""Who sits out and why, who is the best, and who is no peer at all."""

import pytest
import torch

from benchmarks import attention_baselines, attention_speed
from benchmarks.attention_baselines import Baseline, BuiltBaseline
from benchmarks.attention_speed import SpeedResult, too_much
from benchmarks.timing import ratio

TABLES = Baseline("tables", attention_baselines.ours, tables=(2, 4))
FUSED = Baseline("fused", attention_baselines.ours)


def test_tables_too_large_or_too_slow_sit_out() -> None:
    assert too_much(TABLES, "forward", 4096) == ""
    assert too_much(TABLES, "forward", 16_384) == "17 GB"  # 2 tables · 8 heads · 2¹⁴·2¹⁴ · 4 bytes
    assert too_much(TABLES, "training", 8192) == "9 GB"
    assert too_much(TABLES, "forward", 4096, last=(7.0, attention_baselines.cells(2048))) == "28 s"
    assert too_much(TABLES, "forward", 4096, last=(4.0, attention_baselines.cells(2048))) == ""
    assert too_much(FUSED, "training", 16_384, last=(100.0, attention_baselines.cells(128))) == ""


def test_the_best_is_the_fastest_other() -> None:
    seconds = {"ours": 1.0, "ours again": 0.9, "slow": 3.0, "quick": 2.0}
    speed = SpeedResult("forward", 8, 1, 1, seconds, {name: ratio([1.0], [s]) for name, s in seconds.items()})
    assert speed.best == "quick"


def test_a_contestant_that_computes_something_else_is_refused() -> None:
    def build(like: object) -> BuiltBaseline:
        wrong = torch.nn.Linear(attention_baselines.DIM, attention_baselines.DIM)
        return BuiltBaseline(wrong, wrong)

    with pytest.raises(ValueError, match="wrong computes something else"):
        attention_speed.builds([Baseline("wrong", build)])


def test_memory_lengths() -> None:
    assert attention_speed.memory_lengths([16_384, 128, 2048]) == [2048, 16_384]
    assert attention_speed.memory_lengths([64, 128]) == [128]
