"""The command as a person types it, and a file for it to read."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

GOOD, BAD = ["fine", "lovely", "great"], ["dull", "cold", "poor"]


@pytest.fixture(scope="session")
def multihead() -> Callable[..., subprocess.CompletedProcess[str]]:
    """multihead("train", "run.toml", cwd=folder, given="typed\\n")"""

    def typed(*words: str, cwd: Path, given: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        command = [sys.executable, "-m", "multihead", *words]
        return subprocess.run(
            command, cwd=cwd, input=given, capture_output=True, text=True, check=False, env=environment
        )

    return typed


@pytest.fixture(scope="session")
def reviews() -> Callable[[int, int], str]:
    """A CSV file of so many rows, by a seed; its columns are review and verdict."""

    def rows(count: int, seed: int) -> str:
        pick = random.Random(seed)
        lines = ["review,verdict"]
        for _ in range(count):
            good = pick.random() < 0.5
            words = [*pick.choices(GOOD if good else BAD, k=3), f"w{pick.randint(0, 99)}"]
            lines.append(f"{' '.join(words)},{'good' if good else 'bad'}")
        return "\n".join(lines) + "\n"

    return rows
