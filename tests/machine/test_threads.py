"""Container limits are read from trees of files made here: no container is needed."""

from pathlib import Path

import pytest

from multihead.machine import threads


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


CGROUP = "proc/self/cgroup"
FS = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({CGROUP: "0::/\n"}, None),
        # version 2: own group, a parent that is stricter, no limit
        ({CGROUP: "0::/a/b\n", f"{FS}/a/b/cpu.max": "150000 100000\n"}, 1.5),
        (
            {CGROUP: "0::/a/b\n", f"{FS}/a/b/cpu.max": "max 100000\n", f"{FS}/a/cpu.max": "200000 100000\n"},
            2.0,
        ),
        ({CGROUP: "0::/a/b\n", f"{FS}/a/b/cpu.max": "max 100000\n"}, None),
        # inside a container: the host's path is not mounted, the limit is at the top
        ({CGROUP: "0::/docker/0123\n", f"{FS}/cpu.max": "300000 100000\n"}, 3.0),
        # version 1, in both ways of mounting it; -1 = no limit
        (
            {
                CGROUP: "3:memory:/x\n2:cpu,cpuacct:/pod\n",
                f"{FS}/cpu,cpuacct/pod/cpu.cfs_quota_us": "50000\n",
                f"{FS}/cpu,cpuacct/pod/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                CGROUP: "2:cpuacct,cpu:/pod\n",
                f"{FS}/cpu/cpu.cfs_quota_us": "400000\n",
                f"{FS}/cpu/cpu.cfs_period_us": "100000\n",
            },
            4.0,
        ),
        (
            {
                CGROUP: "2:cpu:/\n0::/\n",
                f"{FS}/cpu/cpu.cfs_quota_us": "-1\n",
                f"{FS}/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        # cpuset and cpuacct are not cpu
        ({CGROUP: "2:cpuset:/\n", f"{FS}/cpuset/cpu.cfs_quota_us": "100000\n"}, None),
    ],
)
def test_quota(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    assert threads.quota(tree(tmp_path, files)) == quota


@pytest.mark.parametrize(("quota", "use"), [(None, 6), (2.0, 2), (2.9, 2), (0.25, 1), (64.0, 6)])
def test_processors(monkeypatch: pytest.MonkeyPatch, quota: float | None, use: int) -> None:
    monkeypatch.setattr(threads, "allowed_processors", lambda: 6)
    monkeypatch.setattr(threads, "quota", lambda root: quota)
    assert threads.processors() == use


def test_this_machine() -> None:
    assert 1 <= threads.processors() <= threads.allowed_processors()
