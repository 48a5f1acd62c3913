"""How many threads are worth starting. More than the quota means stalls: a container with two processors on a
64-core host otherwise starts 64 threads."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from multihead.machine import cgroup

# How often a thread of GNU's OpenMP, which torch has on Linux, looks for work before it sleeps: about 0.1 ms. By itself
# it looks on for milliseconds, and where two programs share the processors each waits for threads that the other's
# waiting keeps from running: two trainings of a small language model at once took 1,970 ms a step, so 125, and one
# alone 34 ms either way.
SPINS = ("GOMP_SPINCOUNT", "5000")


def share_processors() -> None:
    """To be called before torch is imported, which reads it once. What the user says of waiting stands."""
    if not {SPINS[0], "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ[SPINS[0]] = SPINS[1]


def processors(root: Path = cgroup.ROOT) -> int:
    """Processors this process may use: its affinity, cut down to the control group's quota; at least 1."""
    share = quota(root)
    return max(1, allowed() if share is None else min(allowed(), math.floor(share)))


def allowed() -> int:
    """Processors the scheduler may place this process on (taskset, cpuset)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quota(root: Path = cgroup.ROOT) -> float | None:
    """Processor time per second that the control groups grant, in processors; None = no limit."""
    return min(_quotas(root), default=None)


def _quotas(root: Path) -> Iterator[float]:
    for path in cgroup.files("cpu", v1="cpu.cfs_quota_us", v2="cpu.max", root=root):
        if path.name == "cpu.max":  # "200000 100000", or "max 100000"
            granted, period = path.read_text().split()
        else:  # microseconds, -1 = no limit
            granted, period = path.read_text().strip(), path.with_name("cpu.cfs_period_us").read_text()
        if granted not in ("max", "-1"):
            yield int(granted) / int(period)
