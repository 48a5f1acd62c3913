"""kill -9 at random moments, over three tasks: the bytes of a run that was never killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

KILLS = 8  # for each task
EVENTS = 34  # of a whole run: 24 steps, 3 evaluations, 5 checkpoints, and a little more
PROGRAM = """
import sys
from pathlib import Path
from multihead.config import read
from multihead.training.run import TrainingRun
print("begun", flush=True)
run = TrainingRun(read(Path(sys.argv[1])))
for event in run: print(type(event).__name__, getattr(event, "step", ""), flush=True)
run.finish(replicates=0)
"""


@pytest.mark.slow
def test_killed_again_and_again(each_runs):
    runs = each_runs
    began = time.monotonic()
    want = runs.whole("whole")
    event = (time.monotonic() - began) / EVENTS  # about how long one takes
    pick, kills, told = random.Random(runs.task), 0, []
    while kills < KILLS:  # a run that came through too early is compared, and another one is killed
        out = f"killed-{kills}"
        (runs.directory / "run.toml").write_text(runs.text(out), encoding="utf-8")
        while True:
            command = [sys.executable, "-c", PROGRAM, str(runs.directory / "run.toml")]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            process.stdout.readline()
            heard = []
            if kills < KILLS:
                heard = [process.stdout.readline() for _ in range(pick.randrange(EVENTS // 2))]
                time.sleep(pick.random() * 2 * event)
                process.send_signal(signal.SIGKILL)
            heard += process.stdout.readlines()
            if process.wait() == 0:
                break
            assert process.returncode == -signal.SIGKILL
            kills += 1
            told.append(heard[-1].strip() if heard else "nothing")
        assert runs.fingerprint(out) == want
        assert runs.log(out) == runs.log("whole")
    print(f"\n{runs.task}: {kills} kills, all {want[:12]}; last heard of: {', '.join(told)}")
