"""Which rows an epoch shows: all of them as often as wanted, in one block or in many, and never with a table of all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from multihead.data import sampler, token_cache
from multihead.data.row_lengths import RowLengths
from multihead.data.sampler import EpochSampler


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "BLOCK", 256)


def all_rows(shown: EpochSampler, epoch: int) -> np.ndarray:
    return np.concatenate([shown.rows(epoch, block) for block in range(shown.blocks)])


def test_few_rows_are_one_block() -> None:
    assert EpochSampler([5], None, 1).blocks == 1
    assert EpochSampler([5], None, 1).rows(3, 0).tolist() == [0, 1, 2, 3, 4]
    counts = np.bincount(EpochSampler([1000, 10], [0.5, 3.0], 1).rows(0, 0), minlength=1010)
    assert (counts[1000:] == 3).all()
    assert 400 < counts[:1000].sum() < 600
    assert counts[:1000].max() == 1


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("count", [257, 1000, 4096])
def test_many_rows_come_once_an_epoch_in_blocks(count: int) -> None:
    shown = EpochSampler([count], None, 1)
    assert shown.blocks == -(-(-(-count // 64) * 64) // 256)
    assert sorted(all_rows(shown, 0)) == list(range(count))
    assert sorted(all_rows(shown, 1)) == list(range(count))
    assert all(len(shown.rows(0, block)) <= 256 + 64 for block in range(shown.blocks))
    # A block comes from all over the data, and is another one in the next epoch.
    assert np.ptp(shown.rows(0, 0)) > count / 4
    assert any(shown.rows(0, 0).tolist() != shown.rows(epoch, 0).tolist() for epoch in (1, 2, 3))
    assert shown.rows(2, 1).tolist() == EpochSampler([count], None, 1).rows(2, 1).tolist()


@pytest.mark.usefixtures("small_blocks")
def test_weights_of_many_rows() -> None:
    shown = EpochSampler([1000, 300], [1.3, 2.0], 1)
    first, second = (np.bincount(all_rows(shown, epoch), minlength=1300) for epoch in (0, 1))
    assert (first[1000:] == 2).all()
    assert sorted(set(first[:1000])) == [1, 2]
    assert first[:1000].sum() == second[:1000].sum() == 1300
    assert first.tolist() != second.tolist()


def test_lengths_are_those_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multihead.data.row_lengths.AT_ONCE", 4)
    draw = np.random.default_rng(0)
    made, wanted = [], []
    for name in ("a", "b"):
        sizes = draw.integers(0, 9, (7, 2))
        fields = {"tokens": np.int32, "target": np.int32}
        rows = [{"tokens": np.arange(a), "target": np.arange(b)} for a, b in sizes]
        made.append(token_cache.open_or_build(tmp_path, name * 64, fields, lambda rows=rows: rows))
        wanted.append(sizes)
    table = np.concatenate(wanted)
    pairs, joined = RowLengths(made, ["tokens", "target"]), RowLengths(made, ["tokens", "target"], joined=True)
    assert (len(pairs), pairs.ndim, joined.ndim) == (14, 2, 1)
    some = np.array([13, 0, 6, 7, 7, 3])
    assert pairs[some].tolist() == table[some].tolist()
    assert joined[some].tolist() == table.sum(1)[some].tolist()
    assert joined[::3].tolist() == table.sum(1)[::3].tolist()
    assert joined[5] == table[5].sum()
    assert (joined.max(), joined.sum()) == (table.sum(1).max(), table.sum())
    assert RowLengths(made, ["target"])[:].tolist() == table[:, 1].tolist()
    assert joined[np.zeros(0, dtype=np.int64)].tolist() == []


LARGE = """
import numpy as np, sys
from pathlib import Path
from multihead.data.row_lengths import RowLengths
from multihead.data.token_cache import TokenCache
from multihead.machine import memory
from multihead.training.loop import BatchOrder, TrainSettings

kept = TokenCache(Path(sys.argv[1]), {"rows": int(sys.argv[2]), "fields": {"tokens": "<u2"}})
list(BatchOrder(np.full(100, 7), TrainSettings(batch_tokens=64))[0])  # what the first call brings in
before = memory.resident_bytes()
lengths = RowLengths([kept], ["tokens"])
order = BatchOrder(lengths, TrainSettings(steps=30, batch_tokens=max(4096, lengths.max())))
for step in range(30):
    for batch in order[step][1]:
        assert sum(len(kept[int(row)]["tokens"]) for row in batch) > 3000
print(memory.peak_bytes() - before)
"""


def test_many_millions_of_rows_are_planned_in_little_memory(tmp_path: Path) -> None:
    """16 million rows: their plan as a whole took 80 bytes a row, 1.3 GB."""
    rows = 1 << 24
    sizes = np.random.default_rng(0).integers(4, 13, 1 << 16)
    ends = np.cumsum(sizes)
    with (tmp_path / "tokens.offsets").open("wb") as file:
        np.int64(0).tofile(file)
        for turn in range(rows >> 16):
            (ends + turn * ends[-1]).tofile(file)
    with (tmp_path / "tokens.values").open("wb") as file:
        file.truncate(2 * int(ends[-1]) * (rows >> 16))
    child = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path), str(rows)], capture_output=True, text=True, check=True
    )
    assert int(child.stdout) < 150 * 2**20
