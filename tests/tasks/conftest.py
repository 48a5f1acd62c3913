"""A run that is stopped and goes on, for tasks with parts of their own."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from multihead.config import read
from multihead.training.events import Evaluated, Saved
from multihead.training.run import TrainingRun


@pytest.fixture
def stopped(tmp_path: Path) -> Callable[[str, Path], TrainingRun]:
    """A run file (with {out} and {data}) is trained twice, as `whole` and `stopped`: the second leaves off at step 7
    and goes on. Both have learnt the same, to the bit."""

    def twice(run_file: str, data: Path) -> TrainingRun:
        sums = []
        for name in ("whole", "stopped"):
            text = run_file.format(out=tmp_path / name, data=data)
            for event in TrainingRun(read(text)) if name == "stopped" else ():
                if getattr(event, "step", 0) == 7 and not isinstance(event, Saved | Evaluated):
                    break
            run = TrainingRun(read(text))
            for _ in run:
                pass
            run.finish(replicates=10)
            sums.append(hashlib.sha256((tmp_path / name / "model" / "model.safetensors").read_bytes()).hexdigest())
        assert sums[0] == sums[1]
        return run

    return twice
