"""Limits of the control group of this process, versions 1 and 2: what a container may use, not what the host has."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def files(controller: str, v1: str, v2: str, root: Path = ROOT) -> Iterator[Path]:
    """Yield the existing limit files from this process's group up to the root: all of them apply.

    `v1` and `v2` are the file's name in each version. Inside a container the path in /proc/self/cgroup is often the
    host's and not mounted; the walk upwards still reaches the container's own group at the mount.
    """
    mounts = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group_path = line.split(":", 2)
        if controllers == "":
            tops, name = [mounts, mounts / "unified"], v2
        elif controller in controllers.split(","):
            tops, name = [mounts / controllers, mounts / controller], v1
        else:
            continue
        for top in tops:
            group = Path(group_path.lstrip("/"))
            for folder in (group, *group.parents):
                if (path := top / folder / name).is_file():
                    yield path


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # not Linux, or /proc is hidden
        return []
