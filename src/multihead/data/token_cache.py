"""The token cache: ragged arrays in memory-mapped files, keyed by the content of everything they were made from.

`<cache>/<key>/` holds `<field>.values`, `<field>.offsets` (int64, rows + 1) and `manifest.json` with the size and
SHA-256 of each. It is written to a temporary directory, synced and renamed, so it is either complete or absent, and
never changed afterwards. Two builders may work at once; the first rename wins and both read it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import mmap
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from multihead.io.files import NO_ROOM, add_path, make_directory, sha256, sync
from multihead.io.pipes import to_regular_file
from multihead.io.seal import checksum

VERSION = 4
MANIFEST = "manifest.json"
BLOCK = 1 << 20
GIVE_BACK = 128  # rows read; each touches up to 64 KiB of every file
LARGE = 1 << 26  # bytes of a cache whose pages are released
TELL = 2.0  # seconds between progress messages

RowOf = Mapping[str, ArrayLike]
log = logging.getLogger(__name__)


class CacheCorrupted(Exception):
    """A cache that must not be used, with the reason."""


def cache_key(files: Iterable[str | Path], tokenizer: bytes, options: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the data's bytes (file by file, in order), the tokenizer's bytes and the options."""
    digest = hashlib.sha256(f"multihead cache {VERSION}".encode())
    for file in files:
        digest.update(b"file" + bytes.fromhex(sha256(to_regular_file(Path(file)))))
    digest.update(b"tokenizer" + hashlib.sha256(tokenizer).digest())
    digest.update(b"options" + json.dumps(options, sort_keys=True, ensure_ascii=True, allow_nan=False).encode())
    return digest.hexdigest()


class TokenCache:
    """An open cache: `store[i]` are the arrays of row i, memory-mapped."""

    def __init__(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        self.directory = directory
        self.rows = int(manifest["rows"])
        self.values: dict[str, NDArray[Any]] = {}
        self.offsets: dict[str, NDArray[np.int64]] = {}
        for name, dtype in manifest["fields"].items():
            self.values[name] = _map_file(directory / f"{name}.values", np.dtype(dtype))
            self.offsets[name] = _map_file(directory / f"{name}.offsets", np.dtype(np.int64))
        mapped = [*self.values.values(), *self.offsets.values()]
        self.large = mapped if sum(array.nbytes for array in mapped) > LARGE else []
        self.reads = 0

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> dict[str, NDArray[Any]]:
        row = row + self.rows if row < 0 else row
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of {self.rows}")
        self.reads += 1
        if self.large and self.reads % GIVE_BACK == 0:
            release_pages(*self.large)
        return {
            name: values[self.offsets[name][row] : self.offsets[name][row + 1]] for name, values in self.values.items()
        }

    def __iter__(self) -> Iterator[dict[str, NDArray[Any]]]:
        return (self[row] for row in range(self.rows))

    def lengths(self, field: str) -> NDArray[np.int64]:
        """Return [rows], the number of values of each row in a field."""
        return np.diff(self.offsets[field])


def release_pages(*arrays: NDArray[Any]) -> None:
    """Release the pages of mapped files from this process; they stay in the system's cache."""
    for array in arrays:
        mapped = getattr(array, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def _map_file(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")


def open(cache: str | Path, key: str) -> TokenCache:
    """Return the cache of this key after checking its files against the manifest; raise CacheCorrupted with the
    reason.
    """
    directory = Path(cache) / key
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        seal = manifest.pop("seal")
        if seal != checksum(manifest) or manifest["key"] != key or manifest["version"] != VERSION:
            raise CacheCorrupted(f"{directory / MANIFEST}: not the manifest that was written for this key")
        for name, (size, digest) in manifest["files"].items():
            path = directory / name
            if path.stat().st_size != size:
                raise CacheCorrupted(f"{path}: {path.stat().st_size:,} bytes instead of {size:,}")
            if sha256(path) != digest:
                raise CacheCorrupted(f"{path}: its bytes have changed")
        return TokenCache(directory, manifest)
    except FileNotFoundError as error:
        raise CacheCorrupted(f"{error.filename}: not there") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise CacheCorrupted(f"{directory}: {type(error).__name__}: {error}") from None


def open_or_build(
    cache: str | Path,
    key: str,
    fields: Mapping[str, DTypeLike],
    build: Callable[[], Iterable[RowOf]],
    quiet: bool = False,
) -> TokenCache:
    """Return the cache of this key: opened if complete, otherwise built from the rows that `build()` yields.

    quiet: the rows report their own progress.
    """
    cache = Path(cache)
    try:
        return open(cache, key)
    except CacheCorrupted as fault:
        if os.path.lexists(cache / key):
            log.warning("%s; the token cache is built again", fault)
    make_directory(cache)
    sweep(cache)
    with _room(cache) as aside:
        write(aside, key, fields, build(), quiet)
        return _publish(aside, cache, key)


def _make_directory(cache: Path, prefix: str) -> Path:
    """Make a new directory with the rights of the umask (mkdtemp's 0700 would restrict a shared cache to one user)."""
    directory = cache / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"
    directory.mkdir()
    return directory


def _locked_directory(cache: Path) -> tuple[Path, int]:
    """Return a new directory and the handle that locks it; retry if `sweep` removed it before the lock."""
    while True:
        aside = _make_directory(cache, ".building-")
        with suppress(FileNotFoundError):
            handle = os.open(aside, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if aside.exists():
                return aside, handle
            os.close(handle)


@contextmanager
def _room(cache: Path) -> Iterator[Path]:
    """Yield a temporary directory in the cache, locked while its builder lives, and removed afterwards."""
    aside, handle = _locked_directory(cache)
    try:
        yield aside
    except OSError as error:
        written = sum(path.stat().st_size for path in aside.glob("*"))
        shutil.rmtree(aside, ignore_errors=True)  # before asking for free space: it takes space itself
        if error.errno in NO_ROOM:
            raise OSError(
                error.errno,
                f"no room for the token cache: {written:,} bytes were written and more are needed, "
                f"{shutil.disk_usage(cache).free:,} are free; free some space or choose another directory",
                str(cache),
            ) from error
        if not str(error.filename).startswith(str(cache)):  # of what the rows are read from
            raise
        raise ValueError(
            f"{error.filename}: the token cache cannot be written, after {written:,} bytes "
            f"({error.strerror or error}); check the disk and who may write there"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        os.close(handle)


def _publish(aside: Path, cache: Path, key: str) -> TokenCache:
    """Rename into place. Where another builder was first, use its cache if valid, else move it away."""
    for _ in range(10):
        try:
            aside.rename(cache / key)
            sync(cache)
            return open(cache, key)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        try:
            return open(cache, key)
        except CacheCorrupted:  # damaged: readers retain their mappings, the name becomes free
            discard(cache, key)
    raise OSError(f"{cache / key}: cannot be put in place; is something writing into it?")


def discard(cache: Path, key: str) -> None:
    """Remove the cache of this key, if any: it is moved away first, so that nobody opens a part of it."""
    while os.path.lexists(cache / key):
        bad = _make_directory(cache, ".damaged-")
        with suppress(FileNotFoundError):  # another process was faster, or `sweep` removed the new directory
            (cache / key).rename(bad / "was")
        shutil.rmtree(bad, ignore_errors=True)


def sweep(cache: Path) -> None:
    """Remove the unlocked directories that killed builders left."""
    for left in [*cache.glob(".building-*"), *cache.glob(".damaged-*")]:
        with suppress(OSError):
            handle = os.open(left, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(handle)


def write(
    directory: Path, key: str, fields: Mapping[str, DTypeLike], rows: Iterable[RowOf], quiet: bool = False
) -> None:
    """Write a complete cache into an empty directory, a few blocks at a time, and sync it."""
    dtypes = {name: np.dtype(dtype) for name, dtype in fields.items()}
    count, reported = 0, time.monotonic()
    with ExitStack() as stack:
        columns = {name: stack.enter_context(_RaggedColumn(directory, name, dtype)) for name, dtype in dtypes.items()}
        for count, row in enumerate(rows, 1):
            if row.keys() != columns.keys():
                raise ValueError(f"row {count - 1} has the fields {sorted(row)}, the cache {sorted(columns)}")
            for name, values in row.items():
                columns[name].add(values, count - 1)
            if not quiet and time.monotonic() - reported > TELL:
                reported = time.monotonic()
                size = sum(column.count * dtypes[name].itemsize for name, column in columns.items()) / 1e6
                log.info("filling the token cache: %s windows, %s MB", f"{count:,}", f"{size:,.1f}")
    files = {path: entry for column in columns.values() for path, entry in column.entries().items()}
    manifest = {
        "version": VERSION,
        "key": key,
        "rows": count,
        "fields": {name: dtype.str for name, dtype in dtypes.items()},
        "files": files,
    }
    path = directory / MANIFEST
    with add_path(path):
        path.write_text(json.dumps(manifest | {"seal": checksum(manifest)}, indent=1), encoding="utf-8")
    for name in [*files, MANIFEST]:
        (directory / name).chmod(0o444)
        sync(directory / name)
    sync(directory)


class _HashedFile:
    """A file written in blocks, hashed while writing."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self.digest, self.held = path, 0, hashlib.sha256(), bytearray()
        self.file = path.open("xb")

    def add(self, content: bytes) -> None:
        self.held += content
        if len(self.held) >= BLOCK:
            self.flush()

    def flush(self) -> None:
        with add_path(self.path):
            self.file.write(self.held)
        self.digest.update(self.held)
        self.size += len(self.held)
        self.held = bytearray()


class _RaggedColumn:
    """One field: its values in sequence, and the start of each row."""

    def __init__(self, directory: Path, name: str, dtype: np.dtype[Any]) -> None:
        if not name.isidentifier():
            raise ValueError(f"a field's name is a word, not {name!r}")
        self.name, self.dtype, self.count = name, dtype, 0
        self.values, self.offsets = (
            _HashedFile(directory / f"{name}.values"),
            _HashedFile(directory / f"{name}.offsets"),
        )
        self.offsets.add(np.int64(0).tobytes())

    def __enter__(self) -> _RaggedColumn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self.values, self.offsets):
            try:
                if kind is None:
                    file.flush()
            finally:
                with add_path(file.path):
                    file.file.close()

    def add(self, values: ArrayLike, row: int) -> None:
        array = np.asarray(values)
        cast = array.astype(self.dtype) if array.size else np.empty(0, self.dtype)
        if array.ndim != 1 or not np.array_equal(cast, array, equal_nan=self.dtype.kind == "f"):
            raise ValueError(
                f"row {row}, field {self.name!r}: not one axis of values that fit {self.dtype}: {array!r:.100}"
            )
        self.count += len(cast)
        self.values.add(cast.tobytes())
        self.offsets.add(np.int64(self.count).tobytes())

    def entries(self) -> dict[str, tuple[int, str]]:
        return {file.path.name: (file.size, file.digest.hexdigest()) for file in (self.values, self.offsets)}
