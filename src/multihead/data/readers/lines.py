r"""Numbered lines of a file: split at \\n only, UTF-8 by default, gzip detected by content.

`str.splitlines` would also split at U+2028, U+0085 and form feed; here they stay inside their line.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO, cast

from multihead.io.files import LFS
from multihead.io.pipes import is_stdin, to_regular_file

LONGEST_LINE = 1 << 26  # bytes; a file without line ends must not fill the memory
HEAD = 1 << 16
MAGIC = {
    b"PK\x03\x04": "a zip or Excel file; save the sheet as CSV in UTF-8",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file; save the sheet as CSV in UTF-8",
    b"%PDF": "a PDF; extract its text first",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"\xfd7zXZ": "xz data; unpack it, or pack it as .gz",
    b"BZh": "bzip2 data; unpack it, or pack it as .gz",
    b"\x28\xb5\x2f\xfd": "zstd data; unpack it, or pack it as .gz",
    b"ARROW1": "an Arrow file; save it as Parquet",
    b"SQLite format 3": "an SQLite database; export the table as CSV",
    b"\x7fELF": "a program",
}
WIDE_BOMS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
BROKEN_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Yield the file's bytes, decompressed if they are gzip; a pipe can be opened repeatedly."""
    with to_regular_file(path).open("rb") as raw:
        if raw.peek(2)[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=raw) as packed:
                yield cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, packed), 1 << 17))
        elif path.suffix == ".gz":
            raise ValueError(f"{path}:1: named .gz, but not gzip data; fetch it again, or drop the ending")
        else:
            yield raw


def read_head(path: Path, encoding: str = "utf-8") -> bytes:
    """Return the first 64 KiB, after checking that the path is a non-empty file, no LFS pointer and not binary."""
    if not path.exists() and not is_stdin(path):
        near = (
            get_close_matches(path.name, [p.name for p in path.parent.glob("*")], n=1) if path.parent.is_dir() else []
        )
        hint = f"; did you mean {near[0]!r}?" if near else "; check the path"
        if "*" in path.name or "?" in path.name:
            matching = (
                sorted(candidate.name for candidate in path.parent.glob(path.name)) if path.parent.is_dir() else []
            )
            shown = ", ".join(f'"{name}"' for name in matching[:3]) + (", …" if len(matching) > 3 else "")
            hint = f"; patterns are not expanded, list the files: [{shown}]" if matching else "; nor does one match it"
        raise ValueError(f"{path}: no such file{hint}")
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir())[:5]
        raise ValueError(f"{path}: a directory, not a file; give a file of it: {', '.join(inside) or 'it is empty'}")
    try:
        with open_bytes(path) as stream:
            head = stream.read(HEAD)
    except BROKEN_GZIP as error:
        raise _broken_gzip(path, 1, error) from None
    except OSError as error:
        if error.filename is not None:
            raise
        raise ValueError(f"{path}: cannot be read ({error.strerror}); check the disk, or copy it first") from None
    if not head.removeprefix(codecs.BOM_UTF8):
        raise ValueError(f"{path}:1: the file is empty; fetch or write it again")
    check_head(path, head, encoding)
    return head


def check_head(path: Path, head: bytes, encoding: str = "utf-8") -> None:
    """Raise ValueError if the first bytes are not text: a Git LFS pointer, another encoding, binary data."""
    if head.startswith(LFS):
        raise ValueError(f"{path}:1: a Git LFS pointer, not the data; run git lfs pull")
    _check_not_binary(path, head, encoding)


def _check_not_binary(path: Path, head: bytes, encoding: str) -> None:
    if head.startswith(b"PAR1") or is_wide_encoding(encoding):
        return
    for bom, name in WIDE_BOMS.items():
        if head.startswith(bom):
            raise ValueError(f'{path}:1: this is {name.upper()}, not UTF-8; pass encoding="{name}"')
    for magic, what in MAGIC.items():
        if head.startswith(magic):
            raise ValueError(f"{path}:1: this is {what}")
    if len(CONTROL.findall(head)) > max(len(head) // 10, 16):  # a stray NUL costs its row, not the file
        raise ValueError(f"{path}:1: binary data, not text; give a text, JSON or Parquet file")
    if b"\r" in head and b"\n" not in head and head.count(b"\r") > 1:
        raise ValueError(f"{path}:1: lines end with \\r only (old Mac); convert them: tr '\\r' '\\n'")


def is_wide_encoding(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
    except LookupError:
        raise ValueError(f'unknown encoding {encoding!r}; try "utf-8", "latin-1" or "gb18030"') from None


def iterate_lines(path: Path, encoding: str = "utf-8", bare: bool = True) -> Iterator[tuple[int, str]]:
    r"""Yield (number from 1, text) of every line, without a byte order mark and, if bare, without its \\n or \\r\\n."""
    if is_wide_encoding(encoding):
        yield from _wide_lines(path, encoding, bare)
        return
    with open_bytes(path) as stream:
        number, offset = 0, 0
        while raw := _line(path, stream, number + 1):
            number += 1
            try:
                text = raw.decode(encoding)
            except UnicodeDecodeError as error:
                raise decode_error(path, number, offset, error) from None
            offset += len(raw)
            yield number, _bare(text, number, bare)


def _line(path: Path, stream: BinaryIO, number: int) -> bytes:
    try:
        raw = stream.readline(LONGEST_LINE + 1)
    except BROKEN_GZIP as error:
        raise _broken_gzip(path, number, error) from None
    if len(raw) > LONGEST_LINE:
        raise ValueError(f"{path}:{number}: a line of more than {LONGEST_LINE >> 20} MiB; is this a text file?")
    return raw


def _bare(text: str, number: int, bare: bool = True) -> str:
    if bare and text.endswith("\n"):
        text = text[:-2] if text.endswith("\r\n") else text[:-1]
    return text.removeprefix("\ufeff") if number == 1 else text


def _wide_lines(path: Path, encoding: str, bare: bool = True) -> Iterator[tuple[int, str]]:
    number = 0
    with open_bytes(path) as stream:
        text = io.TextIOWrapper(stream, encoding=encoding, newline="\n")
        try:
            for number, line in enumerate(text, 1):
                yield number, _bare(line, number, bare)
        except UnicodeError as error:
            raise ValueError(f"{path}:{number + 1}: not {encoding}: {error}; check the encoding") from None
        except BROKEN_GZIP as error:
            raise _broken_gzip(path, number + 1, error) from None


def _broken_gzip(path: Path, number: int, error: Exception) -> ValueError:
    return ValueError(f"{path}:{number}: broken gzip data ({error}); fetch it again")


def decode_error(path: Path, number: int, offset: int, error: UnicodeDecodeError) -> ValueError:
    """Return the error for line `number`, which `error.object` holds and which starts after `offset` bytes of
    the file.
    """
    if is_wide_encoding(error.encoding):
        return ValueError(f"{path}:{number}: not {error.encoding}: {error.reason}; check the encoding")
    cure = f'; convert the file to UTF-8, or pass encoding="{guess_encoding(_from(path, offset) or error.object)}"'
    if error.encoding == "utf-8" and _mostly_utf8(error.object):
        cure = ", but the rest of its line is: a damaged character; fix it, or fetch the file again"
    byte, place = error.object[error.start], f"number {offset + error.start + 1:,} of the file"
    return ValueError(f"{path}:{number}: byte {byte:#04x} ({place}) is not {error.encoding}{cure}")


def _from(path: Path, offset: int) -> bytes:
    """Return the line with the following bytes, where those are not UTF-8 either: a single CoNLL line is too short to
    tell.
    """
    with suppress(OSError, *BROKEN_GZIP), open_bytes(path) as stream:
        stream.seek(offset)
        sample = stream.read(HEAD)
        return b"" if _mostly_utf8(sample.partition(b"\n")[2]) else sample
    return b""


def _mostly_utf8(raw: bytes) -> bool:
    """Return whether more than twice as many non-ASCII characters are intact as damaged; true for one GBK line in a
    thousand.
    """
    text = raw.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    return sum(char > "\x7f" for char in text) - damaged > 2 * damaged


def guess_encoding(raw: bytes) -> str:
    """Return the encoding to suggest for bytes that are not UTF-8; only for messages, never applied silently."""
    try:  # a long line may come cut off, so not to its very end
        high = [c for c in codecs.getincrementaldecoder("gb18030")().decode(raw) if ord(c) > 127]
    except UnicodeDecodeError:
        high = []
    if high and sum("\u4e00" <= c <= "\u9fff" or "\u3000" <= c <= "\u303f" or c >= "\uff00" for c in high) > 0.9 * len(
        high
    ):
        pairs = sum(byte > 127 for byte in raw)
        if pairs >= 2 * len(high) - 1 and pairs > 2:
            return "gb18030"
    return "cp1252" if any(0x80 <= byte <= 0x9F for byte in raw) else "latin-1"


def count_lines(path: Path, encoding: str = "utf-8") -> int:
    r"""Return the number of lines of a file, by its bytes if the encoding allows; a last line without \\n counts."""
    if is_wide_encoding(encoding):
        return sum(1 for _ in iterate_lines(path, encoding))
    count, last = 0, b"\n"
    with open_bytes(path) as stream:
        try:
            while block := stream.read(1 << 20):
                count += block.count(b"\n")
                last = block[-1:]
        except BROKEN_GZIP as error:
            raise _broken_gzip(path, count + 1, error) from None
    return count + (last != b"\n")
