"""Bounded reads of untrusted files, and atomic writes of our own."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MIB = 1 << 20
JSON_LIMIT = 64 * MIB  # the largest public tokenizer.json has 33 MB
LFS = b"version https://git-lfs.github.com/spec/"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def size_of(path: Path, limit: int | None = None) -> int:
    """Return the size in bytes of a regular, non-empty file that is no Git LFS pointer and no larger than `limit`."""
    if not path.exists():
        raise ValueError(f"{path}: no such file; check the path, or fetch the model again")
    if not path.is_file():
        raise ValueError(f"{path}: not a regular file; give a file here")
    size = path.stat().st_size
    if size == 0:
        raise ValueError(f"{path}: the file is empty; fetch it again")
    with path.open("rb") as file:
        if file.read(len(LFS)) == LFS:
            raise ValueError(f"{path}: a Git LFS pointer, not the file itself; run git lfs pull")
    if limit is not None and size > limit:
        raise ValueError(f"{path}: {size:,} bytes, at most {limit:,} are read; check that it is the right file")
    return size


def read_bytes(path: Path, limit: int = JSON_LIMIT) -> bytes:
    with add_path(path):
        size_of(path, limit)
        return path.read_bytes()


def read_text(path: Path, limit: int = JSON_LIMIT) -> str:
    """Return the text of a UTF-8 file, with or without a byte order mark; line endings are unchanged."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start} is not UTF-8; save it as UTF-8 or fetch it again") from None


def read_json(path: Path, limit: int = JSON_LIMIT) -> dict[str, Any]:
    """Return a JSON object; NaN and duplicate keys, which Python's reader accepts, raise ValueError."""
    return parse_json(read_text(path, limit), str(path))


def read_own_json(path: Path) -> dict[str, Any]:
    """Return a JSON object that we wrote and that the caller replaces or skips if it is damaged.

    The error names place and fault without the fix: the user need not do anything.
    """
    try:
        return read_json(path)
    except ValueError as error:
        raise ValueError(str(error).rpartition("; ")[0] or str(error)) from None


class _Constant(str):
    """NaN or Infinity, until the key that it belongs to is known."""


def parse_json(text: str, where: str) -> dict[str, Any]:
    """Parse text like `read_json`; `where` is the place that errors name."""

    def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        for key, entry in pairs:
            if isinstance(entry, _Constant):
                raise ValueError(f"the key {key[:80]!r}: {entry} is not JSON; write a number or null")
        if len(value) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for i, key in enumerate(keys) if key in keys[:i])
            raise ValueError(f"the key {twice[:80]!r} appears twice in one object; remove one of them")
        return value

    constants: list[str] = []

    def no_constant(name: str) -> _Constant:
        constants.append(name)
        return _Constant(name)

    try:
        value = json.loads(text, object_pairs_hook=reject_duplicates, parse_constant=no_constant)
        if constants:  # in a list
            raise ValueError(f"{constants[0]} is not JSON; write a number or null")
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not JSON at line {error.lineno}: {error.msg}; fix it or fetch it again") from None
    except RecursionError:
        raise ValueError(f"{where}: JSON nested too deep; fetch it again") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{where}: holds a {type(value).__name__}, not an object {{…}}; fetch it again")
    return value


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with add_path(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def add_path(path: Path) -> Iterator[None]:
    """Add the file name to system errors: after a file was opened, Python no longer knows which one it was."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


@contextmanager
def name_file_in_errors(path: Path, size: int | None = None, after: str = "") -> Iterator[None]:
    """Convert system errors while `path` is written to one line with the path and the size.

    size: the bytes to be written.
    after: what happened to the previous file.
    """
    try:
        yield
    except OSError as error:
        # When a tree is removed, the system knows the file by its name only.
        known = size is None and isinstance(error.filename, str) and os.path.dirname(error.filename)
        place = error.filename if known else path
        why = error.strerror or str(error)
        end = f"; {after}" if after else ""
        if error.errno in NO_ROOM:
            needed = "more bytes are" if size is None else f"{size:,} bytes"
            raise ValueError(
                f"{place}: no room to write it: {needed} needed, {free_bytes(path):,} free ({why}); "
                f"free some space or choose another directory{end}"
            ) from error
        what = "cannot be written" if size is None else f"cannot be written, {size:,} bytes"
        raise ValueError(f"{place}: {what} ({why}); check the disk and who may write there{end}") from error


def free_bytes(path: Path) -> int:
    """Return the free bytes where `path` is, or would be."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())
    return shutil.disk_usage(there).free


@contextmanager
def atomic_write(path: Path, size: int) -> Iterator[Path]:
    """Yield a temporary file next to `path` for the caller to write; then sync it and replace `path` with it.

    size: the bytes that it will have. On a full disk the old file stays. A symbolic link at either name is replaced,
    never followed.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.aside")
    try:
        with name_file_in_errors(path, size, "what was there before is untouched"):
            try:
                if free_bytes(path.parent) < size:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                new.unlink(missing_ok=True)  # left by a killed process with the same id
                os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o666))
                mode = new.stat().st_mode & 0o777  # what the umask left of 0666; asking os.umask is not thread-safe
                yield new
                new.chmod(mode)  # safetensors leaves 0600
                sync(new)
                new.replace(path)
                sync(path.parent)
            except OSError:
                with suppress(OSError):
                    new.unlink()  # before asking for free space: the partial file takes space itself
                raise
    finally:
        with suppress(OSError):
            new.unlink()


def sync(path: Path) -> None:
    """Flush a file, or the names in a directory, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with add_path(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def make_directory(path: Path) -> None:
    """Make a directory inside one that the user named; raise ValueError for a symbolic link."""
    if path.is_symlink():
        raise ValueError(
            f"{path}: a symbolic link, and nothing is written through one; remove it (the directory that you name as "
            "out may be a link)"
        )
    with name_file_in_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def open_own(path: Path, flags: int, size: int) -> int:
    """Open one of our files for writing `size` bytes in place, created if missing; never through a link."""
    with name_file_in_errors(path, size):
        try:
            handle = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise ValueError(f"{path}: a symbolic link, and nothing is written through one; remove it") from None
        status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(handle)
        what = "has another name too (a hard link)" if stat.S_ISREG(status.st_mode) else "is not a regular file"
        raise ValueError(f"{path}: {what}, and is not written to; remove it")
    return handle


def remove_tree(path: Path) -> None:
    """Remove a directory or file that may be missing; for a symbolic link, the link itself."""
    with name_file_in_errors(path), suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with atomic_write(path, len(content)) as new, new.open("r+b") as file:
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    """Write JSON with two spaces of indent, as the hub's files have; NaN raises ValueError, since others could not read
    it.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; JSON has no NaN and no infinity") from None
    write_bytes(path, (text + "\n").encode("utf-8", "surrogatepass"))
