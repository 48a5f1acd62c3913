"""Which number format is worth using here: half precision only where it works, agrees and is faster."""

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

Name = Literal["fp32", "bf16", "fp16"]
HALVES: tuple[Name, ...] = ("bf16", "fp16")

AGREES = 0.02  # largest relative error; bf16 keeps 8 bits, so its products are off by about 0.005
FASTER = 0.9  # of fp32's time; a smaller gain is within the noise
PATIENCE = 120.0  # seconds; emulated fp16 is slow, not endless


@dataclass(frozen=True)
class Finding:
    """What the probe saw of one half precision: `died` says how it ended if it did not answer."""

    precision: str
    error: float = math.inf
    ratio: float = math.inf
    died: str = ""

    @property
    def good(self) -> bool:
        """Works, agrees with fp32 and is faster than it. NaN fails every comparison."""
        return not self.died and self.error <= AGREES and self.ratio <= FASTER

    @property
    def verdict(self) -> str:
        if self.died:
            return f"does not work: {self.died}"
        if not self.error <= AGREES:
            return f"wrong: off by {self.error:.1%}"
        pace = f"{self.ratio:.2f} of fp32's time"
        return f"works, {pace}" if self.good else f"works, but not faster: {pace}"


def choose(wanted: str = "auto", probe: Callable[[], Mapping[str, Finding]] | None = None) -> Name:
    """The precision to compute in; `auto` is bf16 where it is good and fp32 everywhere else.

    fp16 must be asked for by name: its range is small, so training needs loss scaling.
    """
    if wanted == "auto":
        return "bf16" if (probe or measure)().get("bf16", Finding("bf16")).good else "fp32"
    if wanted == "fp32":
        return "fp32"
    for half in HALVES:
        if wanted == half:
            if (finding := (probe or measure)()[half]).died or not finding.error <= AGREES:
                raise ValueError(f"{half} on this machine {finding.verdict}; use fp32 or auto")
            return half
    raise ValueError(f"no precision {wanted!r}; one of auto, fp32, bf16, fp16")


@cache
def measure(halves: tuple[Name, ...] = HALVES, device: str = "cpu") -> dict[str, Finding]:
    """Half precisions, probed in a child process; a few seconds, once per process."""
    program = [sys.executable, "-m", "multihead.machine.probe", device]
    findings: dict[str, Finding] = {}
    # One child answers for all, unless a precision kills it: then another goes on with the rest.
    while left := [half for half in halves if half not in findings]:
        found, died = _ask([*program, *left], PATIENCE)
        findings |= {finding.precision: finding for finding in found}
        if len(found) < len(left):
            dead = left[len(found)]
            findings[dead] = Finding(dead, died=died or "the probe gave no answer")
    return findings


def _ask(command: Sequence[str], patience: float) -> tuple[list[Finding], str]:
    """The child's findings, and how it ended if not well."""
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
        output, died = child.stdout, _ending(child.returncode, child.stderr)
    except subprocess.TimeoutExpired as late:
        # On a timeout the partial output is bytes even in text mode.
        output, died = (late.stdout or b"").decode(), f"no answer in {patience:.0f} s"
    return [Finding(**json.loads(line)) for line in output.splitlines()], died


def _ending(code: int, stderr: str) -> str:
    if code < 0:
        return f"the process died with {signal.Signals(-code).name}"
    return stderr.strip().rpartition("\n")[2] if code else ""
