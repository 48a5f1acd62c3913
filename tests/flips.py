"""Every single bit of a file flipped, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def changed(path: Path, content: bytes) -> Iterator[None]:
    """The file with other bytes for a while."""
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


def try_reading(read: Callable[[], Any]) -> tuple[Any, str]:
    """What is read, or the message of the ValueError; any other exception is a failure of the test."""
    try:
        return read(), ""
    except ValueError as error:
        return None, str(error)


def flips(path: Path) -> Iterator[int]:
    """The numbers of the file's bits, each of them flipped in the file while its number is looked at."""
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        raw = bytearray(good)
        raw[bit // 8] ^= 1 << bit % 8
        with changed(path, bytes(raw)):
            yield bit


def flip_every_bit(path: Path, read: Callable[[], Any]) -> tuple[int, int]:
    """Read after each flip. A flip must raise a ValueError of one line that names the file, or change nothing of what
    is read. Returns how many were detected, and how many were harmless."""
    want, detected, harmless = read(), 0, 0
    for bit in flips(path):
        got, fault = try_reading(read)
        if fault:
            assert str(path.parent) in fault, f"bit {bit}: {fault}"
            assert "\n" not in fault, f"bit {bit}: {fault}"
            detected += 1
        else:
            assert got == want, f"bit {bit} is silent: {path.read_bytes()!r}"
            harmless += 1
    return detected, harmless
