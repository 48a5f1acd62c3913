"""Number of threads worth starting.

More than the quota causes stalls: a container with two CPUs on a 64-core host would otherwise start 64 threads.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from multihead.machine import cgroup


def processors(root: Path = cgroup.ROOT) -> int:
    """Return the CPUs this process may use: its affinity, limited by the control group's quota; at least 1."""
    share = quota(root)
    return max(1, allowed_processors() if share is None else min(allowed_processors(), math.floor(share)))


def allowed_processors() -> int:
    """Return the CPUs the scheduler may place this process on (taskset, cpuset)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quota(root: Path = cgroup.ROOT) -> float | None:
    """Return the CPU time per second that the control groups grant, in CPUs; None = no limit."""
    return min(_quotas(root), default=None)


def _quotas(root: Path) -> Iterator[float]:
    for path in cgroup.files("cpu", v1="cpu.cfs_quota_us", v2="cpu.max", root=root):
        if path.name == "cpu.max":  # "200000 100000", or "max 100000"
            granted, period = path.read_text().split()
        else:  # microseconds, -1 = no limit
            granted, period = path.read_text().strip(), path.with_name("cpu.cfs_period_us").read_text()
        if granted not in ("max", "-1"):
            yield int(granted) / int(period)
