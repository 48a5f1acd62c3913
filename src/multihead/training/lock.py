"""One writer per directory: a lock that is released when its process ends, and names its holder."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from multihead.io.files import name_file_in_errors, open_own


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Lock the directory, or raise ValueError naming the holder."""
    file = directory / ".lock"
    with name_file_in_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    holder = f"process {os.getpid()} on {socket.gethostname()}".encode()
    handle = open_own(file, os.O_RDWR, len(holder))
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
            raise ValueError(f"{directory}: {who} is training here; stop it, or choose another out") from None
        with name_file_in_errors(file, len(holder)):
            os.ftruncate(handle, 0)
            os.pwrite(handle, holder, 0)
        yield
    finally:
        os.close(handle)
