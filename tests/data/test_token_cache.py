"""The cache: what goes in comes out, whatever is damaged is rebuilt, and killed or racing builders harm nothing."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihead.data import token_cache
from multihead.data.token_cache import CacheCorrupted, open_or_build

FIELDS = {"tokens": np.uint16, "labels": np.int32}
ROWS: list[dict[str, Any]] = [
    {"tokens": [5, 6, 7], "labels": [-100, 1, 2]},
    {"tokens": [], "labels": []},
    {"tokens": [65535], "labels": [3, 4]},
]


def same(opened: token_cache.TokenCache, rows: list[dict[str, Any]]) -> bool:
    return len(opened) == len(rows) and all(
        list(got[name]) == list(row[name]) for got, row in zip(opened, rows, strict=True) for name in row
    )


def never() -> Iterator[dict[str, Any]]:
    raise AssertionError("a whole cache was built again")


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    built = open_or_build(tmp_path, "k", FIELDS, lambda: iter(ROWS))
    again = open_or_build(tmp_path, "k", FIELDS, never)
    assert same(built, ROWS)
    assert same(again, ROWS)
    assert again[0]["tokens"].dtype == np.uint16
    assert again[0]["labels"].dtype == np.int32
    assert list(again.lengths("tokens")) == [3, 0, 1]
    assert list(again.lengths("labels")) == [3, 0, 2]
    assert list(again[-1]["labels"]) == [3, 4]
    assert isinstance(again.values["tokens"], np.memmap)
    with pytest.raises(IndexError):
        again[3]
    with pytest.raises(ValueError, match="read-only"):
        again[0]["tokens"][0] = 1
    assert [path.name for path in tmp_path.iterdir()] == ["k"]
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o777 & ~mask  # others may read a shared cache


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=5), max_size=20))
def test_any_rows(rows: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = [{"tokens": row} for row in rows]
        open_or_build(folder, "k", {"tokens": np.uint32}, lambda: iter(data))
        assert same(token_cache.open(folder, "k"), data)


def test_the_key_is_the_content(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"one")
    b.write_bytes(b"two")
    key = token_cache.cache_key([a, b], b"tokenizer", {"size": 8, "lower": True})
    assert key == token_cache.cache_key([a, b], b"tokenizer", {"lower": True, "size": 8})
    shutil.copy(a, tmp_path / "copy")
    os.utime(a, (1, 1))
    assert key == token_cache.cache_key([tmp_path / "copy", b], b"tokenizer", {"size": 8, "lower": True})
    others = [
        token_cache.cache_key([b, a], b"tokenizer", {"size": 8, "lower": True}),
        token_cache.cache_key([a], b"tokenizer", {"size": 8, "lower": True}),
        token_cache.cache_key([a, b], b"tokenizes", {"size": 8, "lower": True}),
        token_cache.cache_key([a, b], b"tokenizer", {"size": 9, "lower": True}),
    ]
    a.write_bytes(b"onf")
    others.append(token_cache.cache_key([a, b], b"tokenizer", {"size": 8, "lower": True}))
    assert len({key, *others}) == 6


def test_every_flipped_bit_cut_and_missing_file_is_seen(tmp_path: Path) -> None:
    open_or_build(tmp_path, "k", FIELDS, lambda: iter(ROWS))
    directory = tmp_path / "k"
    for path in sorted(directory.iterdir()):
        whole = path.read_bytes()
        path.chmod(0o644)
        broken = [whole[:-1], whole + b"\0", b"", *(_flipped(whole, i) for i in range(0, 8 * len(whole), 13))]
        for content in broken:
            path.write_bytes(content)
            with pytest.raises(CacheCorrupted):
                token_cache.open(tmp_path, "k")
        path.unlink()
        with pytest.raises(CacheCorrupted):
            token_cache.open(tmp_path, "k")
        path.write_bytes(whole)
        assert same(token_cache.open(tmp_path, "k"), ROWS)


def _flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("what", ["flip", "cut", "missing", "manifest", "file instead", "other key"])
def test_a_damaged_cache_is_rebuilt(what: str, tmp_path: Path) -> None:
    old = open_or_build(tmp_path, "k", FIELDS, lambda: iter(ROWS))
    values, manifest = tmp_path / "k" / "tokens.values", tmp_path / "k" / "manifest.json"
    for path in (values, manifest):
        path.chmod(0o644)
    if what == "flip":
        content = values.read_bytes()
        values.unlink()
        values.write_bytes(_flipped(content, 9))
    elif what == "cut":
        values.unlink()
        values.write_bytes(b"\x05")
    elif what == "missing":
        values.unlink()
    elif what == "manifest":
        manifest.write_text("{")
    elif what == "file instead":
        shutil.rmtree(tmp_path / "k")
        (tmp_path / "k").write_text("no directory")
    else:
        (tmp_path / "k").rename(tmp_path / "other")
        (tmp_path / "other").rename(tmp_path / "k2")
        with pytest.raises(CacheCorrupted, match="not the manifest"):
            token_cache.open(tmp_path, "k2")
    assert same(open_or_build(tmp_path, "k", FIELDS, lambda: iter(ROWS)), ROWS)
    assert same(open_or_build(tmp_path, "k", FIELDS, never), ROWS)
    assert what == "file instead" or same(old, ROWS)  # a reader that had it open keeps reading
    assert {path.name for path in tmp_path.iterdir()} - {"k2"} == {"k"}


def test_a_builder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[dict[str, Any]]:
        yield ROWS[0]
        raise RuntimeError("the tokenizer broke")

    with pytest.raises(RuntimeError, match="the tokenizer broke"):
        open_or_build(tmp_path, "k", FIELDS, failing)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"tokens": [65536], "labels": [1]}, "row 1, field 'tokens': not one axis of values that fit uint16"),
        ({"tokens": [-1], "labels": [1]}, "uint16"),
        ({"tokens": np.array([70000]), "labels": [1]}, "uint16"),
        ({"tokens": [1.5], "labels": [1]}, "uint16"),
        ({"tokens": [[1]], "labels": [1]}, "one axis"),
        ({"tokens": [1]}, "row 1 has the fields"),
    ],
)
def test_values_that_do_not_fit_are_refused(row: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        open_or_build(tmp_path, "k", FIELDS, lambda: iter([ROWS[0], row]))
    assert list(tmp_path.iterdir()) == []


BUILD = textwrap.dedent("""
    import sys, time
    import numpy as np
    from multihead.data.token_cache import open_or_build
    def rows():
        for i in range(200):
            time.sleep(float(sys.argv[2]))
            yield {"tokens": [i] * (i % 7)}
    open_or_build(sys.argv[1], "k", {"tokens": np.uint16}, rows)
""")
MANY = [{"tokens": [i] * (i % 7)} for i in range(200)]


def test_killed_while_building(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", BUILD, str(tmp_path), "0.05"])
    while not list(tmp_path.glob(".building-*/tokens.values")):
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    left = list(tmp_path.glob(".building-*"))
    assert left
    assert not (tmp_path / "k").exists()
    assert same(open_or_build(tmp_path, "k", {"tokens": np.uint16}, lambda: iter(MANY)), MANY)
    assert [path.name for path in tmp_path.iterdir()] == ["k"]


def test_a_living_builder_is_not_swept(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", BUILD, str(tmp_path), "0.02"])
    while not (left := list(tmp_path.glob(".building-*"))):
        time.sleep(0.02)
    while not list(left[0].glob("*")):
        time.sleep(0.02)
    token_cache.sweep(tmp_path)
    assert left[0].exists()
    assert child.wait() == 0
    assert same(token_cache.open(tmp_path, "k"), MANY)


def test_a_builder_that_is_swept_before_it_locks_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, swept = fcntl.flock, []

    def lock_late(handle: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not swept:
            swept.extend(tmp_path.glob(".building-*"))
            token_cache.sweep(tmp_path)
        lock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    assert same(open_or_build(tmp_path, "k", {"tokens": np.uint16}, lambda: iter(MANY)), MANY)
    assert len(swept) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["k"]


def _race(folder: str, barrier: Any, results: Any) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield from MANY
        barrier.wait()  # all have built before any can publish

    results.put(same(open_or_build(folder, "k", {"tokens": np.uint16}, rows), MANY))


def test_builders_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(4), context.Queue()
    children = [context.Process(target=_race, args=(str(tmp_path), barrier, results)) for _ in range(4)]
    for child in children:
        child.start()
    assert [results.get(timeout=60) for _ in children] == [True] * 4
    for child in children:
        child.join()
    assert [path.name for path in tmp_path.iterdir()] == ["k"]
    assert same(open_or_build(tmp_path, "k", {"tokens": np.uint16}, never), MANY)


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(token_cache, "sync", full)
    with pytest.raises(OSError, match=r"bytes were written and more are needed, [\d,]+ are free") as caught:
        open_or_build(tmp_path, "k", FIELDS, lambda: iter(ROWS))
    assert caught.value.errno == errno.ENOSPC
    assert str(tmp_path) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_writing_holds_a_few_blocks(tmp_path: Path) -> None:
    """32 MB are written with less than 8 MB held."""
    row = np.arange(4000, dtype=np.uint16)
    tracemalloc.start()
    open_or_build(tmp_path, "k", {"tokens": np.uint16}, lambda: ({"tokens": row} for _ in range(4000)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
    assert (tmp_path / "k" / "tokens.values").stat().st_size == 32_000_000
