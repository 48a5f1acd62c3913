"""Errors of the disk while a run is written: the message names a file of the run, and the next run ends as if nothing
had happened."""

from __future__ import annotations

import errno
import os
import resource

import pytest

SETTINGS = {"steps": 6, "save_every": 2, "eval_every": 2}
OPERATIONS = ("open", "mkdir", "rename", "replace", "unlink", "fsync", "ftruncate", "pwrite")


class FailingDisk:
    """The k-th operation below a directory fails; 0: none does, they are counted."""

    def __init__(self, monkeypatch, directory) -> None:
        self.directory, self.at, self.count, self.error = str(directory), 0, 0, errno.EIO
        for name in OPERATIONS:
            monkeypatch.setattr(os, name, self.wrap(name, getattr(os, name)))

    def wrap(self, name, operation):
        def run(path, *rest, **more):
            place = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fspath(path)
            written = name != "open" or rest[0] & (os.O_WRONLY | os.O_RDWR)
            if written and place.startswith(self.directory):
                self.count += 1
                if self.count == self.at:
                    # As the system says it: an operation on an open file knows no name.
                    raise OSError(self.error, os.strerror(self.error), *([] if isinstance(path, int) else [place]))
            return operation(path, *rest, **more)

        return run


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="names of open files come from /proc")
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_every_operation_that_fails_is_named(runs, monkeypatch, error):
    disk = FailingDisk(monkeypatch, runs.directory / "run")
    disk.error = error
    want = runs.whole("run", **SETTINGS)
    total = disk.count
    assert total > 100
    faults: list[str] = []
    for at in range(1 + (error == errno.EIO), total, 17):
        disk.at, disk.count = at, 0
        try:
            runs.make("run", fresh=True, **SETTINGS)
            runs.whole("run", **SETTINGS)
        except (ValueError, OSError) as fault:
            faults.append(str(fault))
        disk.at = 0
        assert runs.whole("run", **SETTINGS) == want
    assert len(faults) > 5
    for fault in faults:
        assert str(runs.directory / "run") in fault
        assert "\n" not in fault
        assert os.strerror(error) in fault or "no room" in fault


@pytest.mark.parametrize("limit", [20, 300, 3_000, 12_000])
def test_a_file_that_cannot_grow_is_named_with_its_bytes(runs, limit):
    """The limit on the size of files stands for a full disk: writes fail, some of them half way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises((ValueError, OSError)) as caught:
            runs.whole("run", **SETTINGS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(runs.directory / "run") in str(caught.value)
    assert "bytes" in str(caught.value)
    assert runs.whole("run", **SETTINGS) == runs.whole("other", **SETTINGS)
