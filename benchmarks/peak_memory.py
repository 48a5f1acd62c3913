"""Peak memory of one job, in a process of its own: resident memory at its highest, less what was held before.

Started by `peak_in_child` as a program: `python -m benchmarks.peak_memory JOB LENGTH MODE`, where JOB is a contestant
or a job of `inspection_overhead`. Prints a number of bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import attention_baselines, inspection_overhead
from multihead.machine import memory

SMALL = 16  # tokens of the first call, which loads libraries and starts threads
PATIENCE = 600.0


def peak_in_child(name: str, length: int, mode: attention_baselines.Mode = "forward") -> int | None:
    """Bytes that a contestant, or a job of `inspection_overhead`, needs at its peak; None if the child died."""
    command = [sys.executable, "-m", "benchmarks.peak_memory", name, str(length), mode]
    # glibc keeps freed memory for later, unless blocks come from the system one by one.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True, env=environment)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    return int(child.stdout.split()[-1])  # a peer may greet on stdout


def make_job(name: str, length: int, mode: attention_baselines.Mode) -> Callable[[], object]:
    if name in inspection_overhead.JOBS:
        return inspection_overhead.JOBS[name](length)
    contestant = next(contestant for contestant in attention_baselines.CONTESTANTS if contestant.name == name)
    return attention_baselines.job(contestant.build(attention_baselines.reference()), mode, length)


def measure_peak(run: Callable[[], object], first: Callable[[], object]) -> int:
    first()
    _forget()
    before = memory.resident_bytes()
    run()
    return max(0, memory.peak_bytes() - before)


def _forget() -> None:
    """Set the high-water mark back to what is held now: importing leaves a higher one."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # not Linux, or not allowed: small jobs then seem to need nothing
        return


if __name__ == "__main__":
    name, length, mode = sys.argv[1], int(sys.argv[2]), next(m for m in attention_baselines.MODES if m == sys.argv[3])
    sys.stdout.write(f"{measure_peak(make_job(name, length, mode), make_job(name, SMALL, mode))}\n")
