"""One writer per directory: a lock that dies with its holder and tells who that is."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_writer(directory: Path) -> Iterator[None]:
    """Hold the directory, or say who does."""
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
            raise ValueError(f"{directory}: {who} is training here; stop it, or choose another out") from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        os.close(handle)
