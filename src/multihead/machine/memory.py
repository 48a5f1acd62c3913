"""How much memory this process may use and does use, in bytes."""

import ctypes
import os
import resource
import subprocess
import sys
from pathlib import Path

from multihead.machine import cgroup


def memory_limit(root: Path = cgroup.ROOT) -> int:
    """The smaller of the machine's memory and what the control groups grant."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    texts = (
        path.read_text().strip()
        for path in cgroup.files("memory", v1="memory.limit_in_bytes", v2="memory.max", root=root)
    )
    # Version 1 writes a number near 2**63 for "no limit": the machine's memory is smaller.
    return min([installed, *(int(text) for text in texts if text != "max")])


def resident_bytes() -> int:
    """Memory this process holds now (RSS)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # macOS
        kibibytes = subprocess.check_output(["ps", "-o", "rss=", "-p", str(os.getpid())], text=True)
        return int(kibibytes) * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The most memory this process ever held."""
    try:
        # Not getrusage: on Linux its maximum survives exec, so a small child reports its big parent's.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):  # no /proc, or a kernel without VmHWM
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def disable_malloc_trim() -> None:
    """Let freed memory stay with this process. A training step frees and takes the same large blocks again; the C
    library would give each back to the system and fetch it page by page, a tenth of the step's time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and sys.platform == "linux":
        trim_threshold, mmap_max = -1, -4  # as malloc.h numbers them
        mallopt(mmap_max, 0)
        mallopt(trim_threshold, 2**31 - 1)


def release_freed_memory() -> None:
    """What `disable_malloc_trim` held back goes to the system. Batches of many shapes leave gaps between what is in
    use: of a small BERT's training on long texts, 6 GB were held where 2.5 were ever used at once."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
