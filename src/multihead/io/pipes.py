"""Pipes as files: input that can be read only once is copied to a temporary file when it is first opened.

A file is opened more than once: for its format, for its columns, and for the examples of every epoch. Reading a pipe
for the first would consume the bytes of the next.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import stat
import tempfile
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from multihead.io.files import NO_ROOM

log = logging.getLogger(__name__)
STDIN = ("-", "/dev/stdin")
# By name, device and inode: /dev/fd/63 can be another pipe later.
_copies: dict[tuple[str, int, int], Path] = {}


def is_stdin(path: str | Path) -> bool:
    return str(path) in STDIN


def is_pipe(path: Path) -> bool:
    """Return whether the bytes can be read only once: a FIFO, a process substitution `<(…)`, a socket or such a
    stdin.
    """
    try:
        mode = _status(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (is_stdin(path) and not stat.S_ISREG(mode))


def to_regular_file(path: Path) -> Path:
    """Return the path itself or, for a pipe, the copy of its content; a pipe is read once per process.

    Raises ValueError for a device such as /dev/zero, which may have no end.
    """
    try:
        status = _status(path)
    except OSError:
        return path  # opening it will report the fault
    mode = status.st_mode
    if stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and str(path) != "-"):
        return path
    if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not is_stdin(path):
        if os.path.samestat(status, os.stat(os.devnull)):
            return path
        raise ValueError(f"{path}: a device, not a file; give a file or a pipe")
    key = (str(path), status.st_dev, status.st_ino)
    if key not in _copies:
        _copies[key] = _copy(path)
    return _copies[key]


def _status(path: Path) -> os.stat_result:
    return os.fstat(0) if is_stdin(path) else path.stat()


def _copy(path: Path) -> Path:
    # Logged before reading, so that the user of an empty named pipe sees what is waited for.
    log.warning("%s: a pipe can be read only once; it is read to its end into a temporary file first", path)
    handle, name = tempfile.mkstemp(prefix="multihead-")
    atexit.register(Path(name).unlink, missing_ok=True)
    try:
        with os.fdopen(handle, "wb") as out, _open_once(path) as source:
            shutil.copyfileobj(source, out, 1 << 20)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        where = tempfile.gettempdir()
        raise ValueError(
            f"{path}: no room in {where} for a copy of this pipe; save it as a file, or set TMPDIR"
        ) from None
    return Path(name)


def _open_once(path: Path) -> BinaryIO:
    # Descriptor 0 itself: a socket cannot be opened again by a name such as /dev/stdin.
    return cast(BinaryIO, os.fdopen(os.dup(0), "rb")) if is_stdin(path) else path.open("rb")


class GzipStream:
    """Decompress gzip data that arrives in chunks; several members form one stream."""

    def __init__(self) -> None:
        self.member, self.begun = zlib.decompressobj(wbits=31), False

    def unpack(self, packed: bytes) -> bytes:
        """Return the decompressed bytes; raise zlib.error for corrupt data."""
        parts = []
        while packed:
            self.begun = True
            parts.append(self.member.decompress(packed))
            packed = self.member.unused_data
            if self.member.eof:
                self.member, self.begun = zlib.decompressobj(wbits=31), False
                packed = packed.lstrip(b"\0")  # some programs pad the end
        return b"".join(parts)

    def end(self) -> None:
        """Raise EOFError if a member was cut off."""
        if self.begun:
            raise EOFError("the data ends before the end-of-stream marker was reached")
