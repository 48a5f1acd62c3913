"""Let torch programs share the CPUs: idle OpenMP threads sleep early while other programs compete.

Threads of libgomp spin for milliseconds between parallel regions. Alone that is right: a training step of 34 ms takes
48 ms when they sleep at once. Next to another program the spinning thread takes the CPU from the one that has work:
two such trainings on two cores take 100 to 2,000 ms a step, and 57 ms when idle threads sleep.

libgomp reads its spin count once, when it is loaded, but spins only briefly (100 rounds instead of 300,000) while it
manages more threads than there are CPUs. So a spare pool of sleeping threads, which costs nothing, switches the short
spin on, and its end switches it off again. Number and order of torch's own threads stay: no result changes by a bit.
"""

import ctypes
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

INTERVAL = 0.25  # seconds between two looks; one look takes about 0.2 ms
CONTENDED = (
    0.15  # share of the time in which a runnable thread waited for a CPU; alone it is 0.01, next to an equal 0.5
)
CALM = 0.05
CALM_LOOKS = 8  # so many calm looks in a row end the short spin
SPIN_SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # set by the user: left alone

_started = threading.Lock()


def share_cpus() -> None:
    """Watch for contention from now on, in a daemon thread; further calls in the same process do nothing."""
    if _read_schedstat() is None or any(name in os.environ for name in SPIN_SETTINGS):
        return
    if _started.acquire(blocking=False):
        threading.Thread(target=_watch, name="cpu-sharing", daemon=True).start()


def _restart_in_child() -> None:
    """Reset the lock: a forked child inherits it but not the thread."""
    global _started
    _started = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_in_child)


def _watch() -> None:
    contention, pool, pause = Contention(), SparePool(), threading.Event()
    while True:
        pause.wait(INTERVAL)
        contention.update()
        if contention.present and not pool.open:
            pool.start()
        elif pool.open and contention.calm_looks >= CALM_LOOKS:
            pool.stop()


class Contention:
    """Whether this process's threads wait for a CPU, from one `update` to the next."""

    def __init__(self) -> None:
        self.present = False
        self.calm_looks = 0
        self._last = _read_schedstat() or (0, 0)

    def update(self) -> None:
        now = _read_schedstat() or self._last
        # Threads end between two looks and take their times with them: a sum may fall.
        running, waiting = (max(0, new - old) for new, old in zip(now, self._last, strict=True))
        self._last = now
        share = waiting / max(1, running + waiting)
        # A process that hardly runs cannot judge: its few wake-ups always wait a little.
        busy = running + waiting > 0.2 * INTERVAL * 1e9
        self.present = busy and share > CONTENDED
        self.calm_looks = 0 if busy and share > CALM else self.calm_looks + 1


class SparePool:
    """An OpenMP pool that does nothing, so that libgomp manages more threads than there are CPUs."""

    def __init__(self) -> None:
        self._end: threading.Event | None = None

    @property
    def open(self) -> bool:
        return self._end is not None

    def start(self) -> None:
        """Open the pool, if torch is there and uses libgomp."""
        library = _find_libgomp()
        if library is None:
            return
        end = threading.Event()
        # libgomp ends the process where it cannot start a thread; that this one started shows that it can.
        with suppress(RuntimeError):
            threading.Thread(target=_hold_pool, args=(library, end), name="spare-omp-pool", daemon=True).start()
            self._end = end

    def stop(self) -> None:
        """Close the pool: libgomp ends its threads with the thread that opened it."""
        if self._end is not None:
            self._end.set()
            self._end = None


def _hold_pool(library: str, end: threading.Event) -> None:
    omp, libc = ctypes.CDLL(library), ctypes.CDLL(None)
    # More threads than CPUs, whatever torch uses. Each of them calls free(NULL), which does nothing.
    threads = omp.omp_get_num_procs() + 1
    omp.GOMP_parallel(libc.free, None, ctypes.c_uint(threads), ctypes.c_uint(0))
    end.wait()


def _find_libgomp() -> str | None:
    """Return the libgomp that torch has loaded; other packages may bring their own."""
    if "torch" not in sys.modules:
        return None
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            path = line.split(maxsplit=5)[-1]
            if "libgomp" in path and Path(path).parent.parts[-2:] == ("torch", "lib"):
                return path
    return None


def _read_schedstat() -> tuple[int, int] | None:
    """Return the nanoseconds that this process's threads ran, and waited for a CPU; None where unknown."""
    running = waiting = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                fields = Path("/proc/self/task", thread, "schedstat").read_bytes().split()
                running += int(fields[0])
                waiting += int(fields[1])
    except (OSError, IndexError):
        return None
    return running, waiting
