"""The whole bench at tiny lengths: it returns, and writes what it promises. Times are not looked at."""

import json
import struct
from pathlib import Path

import pytest

from benchmarks import attention, attention_baselines, inspection_overhead, peak_memory, thresholds, timing
from benchmarks.attention_baselines import AGAIN, OURS, TORCH_DEFAULT, Baseline
from benchmarks.attention_speed import SpeedResult
from benchmarks.inspection_overhead import OverheadResult
from benchmarks.timing import Ratio, ratio


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers that are always here, a few tokens, the least number of rounds, no child processes."""
    absent = Baseline("absent", attention_baselines.ours, needs="no_such_module")
    monkeypatch.setattr(attention_baselines, "CONTESTANTS", (*attention_baselines.CONTESTANTS[:4], absent))
    monkeypatch.setattr(attention_baselines, "TOKENS", 16)
    monkeypatch.setattr(inspection_overhead, "LONG", 16)
    monkeypatch.setattr(thresholds, "STATS_MEMORY_AT", 16)
    monkeypatch.setattr(timing, "PATIENCE", 0.0)
    monkeypatch.setattr(peak_memory, "peak_in_child", lambda name, length, mode="forward": 1000 * length)


@pytest.mark.usefixtures("tiny")
def test_run_writes_a_table_a_picture_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = attention.run(lengths=[16, 8, 8], rounds=2, out=tmp_path / "new" / "folder", json=False)
    folder = tmp_path / "new" / "folder"
    report = json.loads((folder / "attention.json").read_text())
    assert code == (0 if report["holds"] else 1)
    assert [(s["mode"], s["length"], s["rounds"]) for s in report["speeds"]] == [
        *(("forward", 8, 2), ("forward", 16, 2)),
        *(("training", 8, 2), ("training", 16, 2)),
    ]
    assert set(report["speeds"][0]["seconds"]) == {"ours", "ours again", "torch.nn", "torch.nn, weights"}
    assert {look["what"] for look in report["looks"]} == {"watch", "stats", "row"}
    assert report["missing"] == ["no-such-module"]
    picture = (folder / "attention.png").read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    assert picture.startswith(b"\x89PNG")
    assert width > height > 400
    printed = capsys.readouterr().out
    for words in ("Forward pass", "Training step", "Peak memory", "Bars", "no-such-module", "multihead[bench]"):
        assert words in printed


@pytest.mark.usefixtures("tiny")
def test_json_prints_json_only(capsys: pytest.CaptureFixture[str]) -> None:
    attention.run(lengths=[8], rounds=1, out=None, json=True)
    report = json.loads(capsys.readouterr().out)
    assert report["setting"] == {"dim": 512, "heads": 8, "dtype": "float32", "lengths": [8], "rounds": 1}
    assert report["machine"]["threads"] >= 1


@pytest.mark.usefixtures("tiny")
def test_progress_counts_its_jobs() -> None:
    ticks: list[str] = []
    contestants = [c for c in attention_baselines.CONTESTANTS if c.is_installed]
    attention.measure(contestants, [8, 16], 1, ticks.append)
    assert len(ticks) == attention._jobs(len(contestants), [8, 16])


def speed(mode: str, length: int, ours: float, **others: float) -> SpeedResult:
    seconds = {OURS: ours, AGAIN: ours, **{name.replace("_", " "): s for name, s in others.items()}}
    ratios = {name: ratio([ours], [s]) for name, s in seconds.items() if name != OURS}
    return SpeedResult(mode, length, 1, 1, seconds, ratios)  # type: ignore[arg-type]


def test_bars_of_made_speeds() -> None:
    short, long = speed("forward", 128, 1.0, quick=0.9, slow=2.0), speed("forward", 2048, 1.0, quick=1.1)
    long.seconds[TORCH_DEFAULT], long.ratios[TORCH_DEFAULT] = 1.5, ratio([1.0], [1.5])
    found = list(thresholds.speed_thresholds([short, long]))
    assert [(bar.length, bar.limit, bar.holds) for bar in found] == [
        *((128, 1.03, False), (2048, 1.03, True), (2048, 0.6, False)),
    ]
    assert found[0].note == "quick"
    assert found[0].value == pytest.approx(1 / 0.9)


def test_bars_of_made_looks_and_memory() -> None:
    made = Ratio(2.0, 2.0, 2.0, 2.0, 0.95)
    looks = [
        OverheadResult("row", 8192, 9, made),
        OverheadResult("stats", 2048, 9, made, made),
        OverheadResult("watch", 128, 9, made, made),
    ]
    assert [(bar.length, bar.holds) for bar in thresholds.overhead_thresholds(looks)] == [
        (128, False),
        (2048, True),
        (8192, True),
    ]
    assert thresholds.memory_thresholds(stats=64, explicit=64).value == pytest.approx(1 / 64)  # (16,384 / 2,048)² = 64
    assert thresholds.memory_thresholds(stats=64, explicit=64).holds
    assert not thresholds.memory_thresholds(stats=64 * 4, explicit=64).holds
    assert not thresholds.memory_thresholds(None, 64).holds
