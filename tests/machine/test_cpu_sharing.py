"""Contention is real here: busy threads on one CPU. What libgomp does is observed by the CPU time of its threads."""

import os
import subprocess
import sys

import pytest

from multihead.machine import cpu_sharing

pytestmark = pytest.mark.skipif(cpu_sharing._read_schedstat() is None, reason="the kernel counts no waiting time")


def run_python(code: str, **environment: str) -> str:
    """Standard output of a fresh interpreter: spinning is set once per process, and affinity is inherited."""
    settings = {name: value for name, value in os.environ.items() if name not in cpu_sharing.SPIN_SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", code], env=settings | environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


COMPETE = """
import hashlib, os, threading, time
from multihead.machine.cpu_sharing import CALM_LOOKS, INTERVAL, Contention

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
contention, end = Contention(), time.monotonic() + 3 * INTERVAL
block = bytes(2**20)
def work():
    while time.monotonic() < end:
        hashlib.sha256(block).digest()  # releases the GIL
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
time.sleep(2 * INTERVAL)
contention.update()
seen = contention.present
for thread in threads: thread.join()
contention.update()
for _ in range(CALM_LOOKS):
    time.sleep(0.02)
    contention.update()
print(seen, contention.present, contention.calm_looks >= CALM_LOOKS)
"""


def test_contention_is_seen_while_threads_compete_and_not_after() -> None:
    assert run_python(COMPETE) == "True False True"


SPIN = """
import os, time
import torch
from multihead.machine.cpu_sharing import SparePool, _read_schedstat

torch.set_num_threads(2)
x, pool = torch.ones(2**18), SparePool()
def cpu_time():
    for _ in range(3): x.add(1)
    before = _read_schedstat()[0]
    for _ in range(100):
        x.add(1)
        time.sleep(0.004)  # the worker has nothing to do: it spins, or sleeps
    return _read_schedstat()[0] - before
spinning = cpu_time()
pool.start(); time.sleep(0.3)
sleeping = cpu_time()
pool.stop(); time.sleep(0.3)
again = cpu_time()
print(spinning, sleeping, again)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one CPU libgomp never spins long")
def test_spare_pool_lets_idle_threads_sleep_and_its_end_lets_them_spin() -> None:
    spinning, sleeping, again = map(int, run_python(SPIN, OMP_NUM_THREADS="2").split())
    assert sleeping < 0.5 * spinning
    assert sleeping < 0.5 * again


BITS = """
import time
import torch
from multihead.machine.cpu_sharing import SparePool

torch.set_num_threads(2)
torch.manual_seed(0)
x = torch.randn(64, 512)
def gradient():
    weight = torch.linspace(-1, 1, 512 * 512).view(512, 512).requires_grad_()
    torch.nn.functional.gelu(x @ weight).logsumexp(-1).sum().backward()
    return weight.grad
before, pool = gradient(), SparePool()
pool.start(); time.sleep(0.2)
print(pool.open, torch.equal(before, gradient()), torch.get_num_threads())
"""


def test_spare_pool_changes_no_bit() -> None:
    assert run_python(BITS) == "True True 2"


WATCHERS = """
import os, threading
from multihead.machine.cpu_sharing import share_cpus

def watchers(): return sum(thread.name == "cpu-sharing" for thread in threading.enumerate())
share_cpus(); share_cpus()
here = watchers()
read, write = os.pipe()
if os.fork() == 0:
    share_cpus()
    os.write(write, str(watchers()).encode())
    os._exit(0)
os.wait()
print(here, os.read(read, 9).decode())
"""


@pytest.mark.parametrize(("environment", "watchers"), [({}, "1 1"), ({"GOMP_SPINCOUNT": "10"}, "0 0")])
def test_one_watcher_per_process_unless_the_user_chose(environment: dict[str, str], watchers: str) -> None:
    assert run_python(WATCHERS, **environment) == watchers
