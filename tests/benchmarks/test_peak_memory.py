"""Peak memory, measured in a child."""

import pytest

from benchmarks import peak_memory
from benchmarks.attention_baselines import OURS

MEGABYTE = 2**20


def test_the_child_tells_what_explicit_needs() -> None:
    found = peak_memory.peak_in_child(
        "explicit", 512
    )  # batch 4, 8 heads: a table is 32 MB, and more than one exists at a time
    assert found is not None
    assert 2 * 32 * MEGABYTE < found < 8 * 32 * MEGABYTE


@pytest.mark.slow
def test_fused_needs_less() -> None:
    fused, explicit = peak_memory.peak_in_child(OURS, 1024), peak_memory.peak_in_child("explicit", 1024)
    assert fused is not None
    assert explicit is not None
    assert fused < explicit / 3


def test_a_child_that_dies_gives_none() -> None:
    assert peak_memory.peak_in_child("nobody", 8) is None
