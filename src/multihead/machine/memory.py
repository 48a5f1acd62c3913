"""Memory limit and memory use of this process, in bytes."""

import ctypes
import os
import resource
import subprocess
import sys
from pathlib import Path

from multihead.machine import cgroup


def memory_limit(root: Path = cgroup.ROOT) -> int:
    """Return the smaller of the machine's memory and the control groups' limits."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    texts = (
        path.read_text().strip()
        for path in cgroup.files("memory", v1="memory.limit_in_bytes", v2="memory.max", root=root)
    )
    # Version 1 writes a number near 2**63 for "no limit": the machine's memory is smaller.
    return min([installed, *(int(text) for text in texts if text != "max")])


def resident_bytes() -> int:
    """Return the resident memory of this process (RSS)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # macOS
        kibibytes = subprocess.check_output(["ps", "-o", "rss=", "-p", str(os.getpid())], text=True)
        return int(kibibytes) * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """Return the peak resident memory of this process."""
    try:
        # Not getrusage: on Linux its maximum survives exec, so a small child reports its big parent's.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):  # no /proc, or a kernel without VmHWM
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def disable_malloc_trim() -> None:
    """Retain freed memory in this process.

    A training step frees and allocates the same large blocks; the C library would return each to the system and fetch
    it page by page, a tenth of the step's time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and sys.platform == "linux":
        trim_threshold, mmap_max = -1, -4  # as malloc.h numbers them
        mallopt(mmap_max, 0)
        mallopt(trim_threshold, 2**31 - 1)


def release_freed_memory() -> None:
    """Return freed memory that `disable_malloc_trim` retained to the system.

    Batches of many shapes fragment the heap: in the training of a small BERT on long texts, 6 GB were held where at
    most 2.5 GB were in use.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
