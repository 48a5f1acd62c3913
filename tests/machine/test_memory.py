import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from multihead.machine import memory

INSTALLED = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
MIB = 2**20


@pytest.mark.parametrize(
    ("cgroup", "path", "text", "limit"),
    [
        ("0::/a\n", "a/memory.max", "268435456\n", 256 * MIB),
        ("0::/a\n", "memory.max", "max\n", INSTALLED),
        ("4:memory:/a\n", "memory/a/memory.limit_in_bytes", "134217728\n", 128 * MIB),
        ("4:memory:/a\n", "memory/memory.limit_in_bytes", "9223372036854771712\n", INSTALLED),  # "no limit"
        ("", "memory.max", "1\n", INSTALLED),
    ],
)
def test_limit(tmp_path: Path, cgroup: str, path: str, text: str, limit: int) -> None:
    for name, content in (("proc/self/cgroup", cgroup), (f"sys/fs/cgroup/{path}", text)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert memory.memory_limit(tmp_path) == limit


def test_resident_and_peak_follow_what_is_held() -> None:
    """A child takes 64 MiB and gives it back: resident rises and falls, the peak stays."""
    program = """
from multihead.machine import memory
before = memory.resident_bytes()
block = b"x" * (64 * 2**20)
held = memory.resident_bytes()
del block
print(before, held, memory.resident_bytes(), memory.peak_bytes())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, held, after, peak = map(int, done.stdout.split())
    assert 60 * MIB < held - before < 70 * MIB
    assert after < held - 60 * MIB
    assert abs(peak - held) < 4 * MIB  # the kernel counts the two in different batches


def child_of_a_big_parent(expression: str) -> int:
    """What a small process answers that was started by one of 256 MiB."""
    child = f"import resource; from multihead.machine import memory; print({expression})"
    parent = (
        "import subprocess, sys; block = b'x' * (256 * 2**20); "
        f"print(subprocess.check_output([sys.executable, '-c', {child!r}], text=True))"
    )
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux carries the maximum over exec")
def test_a_small_child_does_not_report_its_parent() -> None:
    naive = child_of_a_big_parent("resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024")
    assert naive > 256 * MIB
    assert child_of_a_big_parent("memory.peak_bytes()") < 128 * MIB


@pytest.mark.skipif(shutil.which("ps") is None, reason="no ps")
def test_resident_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = memory.resident_bytes()
    monkeypatch.setattr(memory, "Path", lambda name: Path("/nowhere"))
    assert abs(memory.resident_bytes() - exact) < 16 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' allocators know neither")
def test_freed_memory_stays_until_it_is_given_back() -> None:
    program = """
import torch
from multihead.machine import memory
memory.disable_malloc_trim()
before = memory.resident_bytes()
blocks = [torch.ones(2**20) for _ in range(32)]  # 4 MiB each
del blocks[:-1]  # the last one lies above the gap
kept = memory.resident_bytes()
memory.release_freed_memory()
print(before, kept, memory.resident_bytes())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, kept, after = map(int, done.stdout.split())
    assert kept - before > 120 * MIB
    assert after - before < 20 * MIB
