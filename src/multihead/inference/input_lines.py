"""Lines of a file, a pipe or a prompt, as bytes: the input of `predict`, each source read once."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

from multihead.data.readers.lines import BROKEN_GZIP, LONGEST_LINE, check_head, open_bytes, read_head
from multihead.io.pipes import GzipStream, is_pipe, is_stdin, to_regular_file

JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
TABLES = (".csv", ".tsv", ".parquet")
CHUNK = 1 << 16  # bytes
GZIP = b"\x1f\x8b"
MARK = 2  # magic bytes of compressed data


class InputLines:
    """Lines of a file, a pipe or a prompt, as bytes, and how far they have been read.

    whole: do not stream a pipe line by line, since its format must be detected or its rows are not lines.
    """

    def __init__(self, file: str, interactive: bool = False, encoding: str = "utf-8", whole: bool = False) -> None:
        self.file, self.interactive = file, interactive
        ending = Path(file.removesuffix(".gz")).suffix.lower()
        self.json, self.table = ending in JSON_ENDINGS, ending in TABLES and not interactive
        self.read, self.size = 0, 0
        self.share: Callable[[], float] | None = None
        self.pipe: PipeReader | None = None
        if interactive:
            return
        if not whole and not self.table and ending != ".json" and self._streams():
            # Read lines from this handle only: reopening a pipe would lose its first lines.
            self.pipe = PipeReader(0 if is_stdin(file) else os.open(file, os.O_RDONLY), file, encoding)
        elif file != "-" or whole:
            self.size = self._check_size(Path(file), encoding)
            if not file.endswith(".gz") and not self.table:  # the length of compressed data is unknown
                self.share = lambda: self.read / max(self.size, 1)

    def _streams(self) -> bool:
        if os.name != "posix":  # no select on other systems
            return False
        return not sys.stdin.isatty() if self.file == "-" else is_pipe(Path(self.file))

    @staticmethod
    def _check_size(path: Path, encoding: str) -> int:
        """Return the size in bytes, after checking that it is not binary; an empty file has no inputs and is valid."""
        file = to_regular_file(path)
        if not file.exists() or file.is_dir() or file.stat().st_size:
            read_head(path, encoding)
        return file.stat().st_size

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines; only \\n ends a line. A line that is too long is cut just beyond the limit."""
        if self.interactive:
            yield from (line for line in read_prompts() if line.strip())
            return
        stream: BinaryIO | PipeReader
        held = self.pipe or (sys.stdin.buffer if self.file == "-" and not self.size else None)
        with nullcontext(held) if held is not None else open_bytes(Path(self.file)) as stream:
            try:
                while line := stream.readline(LONGEST_LINE + 1):
                    self.read += len(line)
                    yield line
                    while len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                        line = stream.readline(LONGEST_LINE)
                        self.read += len(line)
            except BROKEN_GZIP as error:
                raise ValueError(f"{self.file}: broken gzip data ({error}); fetch it again") from None


class PipeReader:
    """Line reader of a pipe that reports whether another line is available; Python's own reader would block."""

    def __init__(self, number: int, file: str = "-", encoding: str = "utf-8") -> None:
        self.number, self.held = number, bytearray()
        self.file, self.encoding = file, encoding
        self.gzip: GzipStream | None = None
        self.begun = False

    def readline(self, limit: int) -> bytes:
        end, scanned = self.held.find(b"\n", 0, limit) + 1, len(self.held)
        while not end and scanned < limit and self._take():
            end, scanned = self.held.find(b"\n", scanned, limit) + 1, len(self.held)
        line = bytes(self.held[: end or limit])
        del self.held[: len(line)]
        return line

    def idle(self, seconds: float) -> bool:
        """Whether no line is available within so many seconds; the end of the input counts as available."""
        until = time.monotonic() + seconds
        while b"\n" not in self.held:
            left = max(until - time.monotonic(), 0.0)
            if not select.select([self.number], [], [], left)[0]:
                return True
            if not self._take():
                return False
            if not left:
                return b"\n" not in self.held
        return False

    def _take(self) -> bool:
        """Read the available bytes; False: the input has ended."""
        more = os.read(self.number, CHUNK)
        while more and not self.begun and len(more) < MARK and (rest := os.read(self.number, CHUNK)):
            more += rest
        if more and not self.begun:
            self._begin(more)
        if self.gzip is None:
            self.held += more
            return bool(more)
        try:  # here, as `idle` reads too
            if more:
                self.held += self.gzip.unpack(more)
            else:
                self.gzip.end()
        except BROKEN_GZIP as error:
            raise ValueError(f"{self.file}: broken gzip data ({error}); fetch it again") from None
        return bool(more)

    def _begin(self, head: bytes) -> None:
        """Inspect the first bytes, as for a file: decompress gzip, reject other binary data."""
        self.begun = True
        if head.startswith(GZIP):
            self.gzip = GzipStream()
        elif self.file.endswith(".gz"):
            raise ValueError(f"{self.file}:1: named .gz, but not gzip data; fetch it again, or drop the ending")
        else:
            check_head(Path(self.file), head, self.encoding)


def read_prompts() -> Iterator[bytes]:
    while True:
        try:
            yield input("> ").encode("utf-8", "surrogateescape")
        except EOFError:
            return
