"""What is worth computing in here: half precision, or fp32 by another library, where it works, agrees and is faster."""

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import torch

# onednn: fp32 as well, multiplied by oneDNN instead of MKL, which on processors that are not Intel's is the slower one.
Name = Literal["fp32", "onednn", "bf16", "fp16"]
READING = ("auto", "fp32", "bf16")
OTHERS: tuple[Name, ...] = ("onednn", "bf16", "fp16")
FIRST: tuple[Name, ...] = ("bf16", "onednn")  # of several good ones; fp16 must be asked for

# Largest relative error. bf16 keeps 8 bits, so its products are off by about 0.005; fp32's, added up in another order,
# by 1e-6.
AGREES = {"onednn": 1e-5, "bf16": 0.02, "fp16": 0.02}
FASTER = {"onednn": 0.98, "bf16": 0.9, "fp16": 0.9}  # of fp32's time; a smaller gain is within the noise
MATMUL: Any = getattr(torch.backends.mkldnn, "matmul", None)  # torch's switches for products by oneDNN
PATIENCE = 120.0  # seconds; emulated fp16 is slow, not endless


@dataclass(frozen=True)
class PrecisionProbe:
    """What the probe saw of one way to compute: `died` says how it ended if it did not answer."""

    precision: str
    error: float = math.inf
    ratio: float = math.inf
    died: str = ""

    @property
    def good(self) -> bool:
        """Works, agrees with fp32 and is faster than it. NaN fails every comparison."""
        return self.right and self.ratio <= FASTER[self.precision]

    @property
    def right(self) -> bool:
        return not self.died and self.error <= AGREES[self.precision]

    @property
    def verdict(self) -> str:
        if self.died:
            return f"does not work: {self.died}"
        if not self.right:
            return f"wrong: off by {self.error:.1%}" if self.error > 1e-3 else f"wrong: off by {self.error:.0e}"
        pace = f"{self.ratio:.2f} of fp32's time"
        return f"works, {pace}" if self.good else f"works, but not faster: {pace}"


def choose_precision(wanted: str = "auto", probe: Callable[[], Mapping[str, PrecisionProbe]] | None = None) -> Name:
    """What to compute in; `auto` is bf16 where it is good, else fp32 by oneDNN where that is, else fp32.

    fp16 must be asked for by name: its range is small, so training needs loss scaling.
    """
    if wanted == "fp32":
        return "fp32"
    if wanted == "auto":
        found = (probe or measure)()
        return next((name for name in FIRST if name in found and found[name].good), "fp32")
    for name in OTHERS:
        if wanted == name:
            if not (finding := (probe or measure)()[name]).right:
                raise ValueError(f"{name} on this machine {finding.verdict}; use fp32 or auto")
            return name
    raise ValueError(f"no precision {wanted!r}; one of auto, fp32, {', '.join(OTHERS)}")


def inference_precision(wanted: str, device: str) -> str:
    """What to read in, where nothing is learnt: fp32, or bf16 where it works (and, for auto, is faster)."""
    if wanted not in READING:
        raise ValueError(f"no precision {wanted!r} to read in; one of {', '.join(READING)}")
    return choose_precision(wanted, partial(measure, ("bf16",), device))


def display_name(name: str) -> str:
    """As messages call a choice."""
    return "fp32 by oneDNN" if name == "onednn" else name


@contextmanager
def matmul_backend(name: str) -> Iterator[None]:
    """Products of fp32 matrices by the library that a choice names.

    torch's switch for it says bf16: that is what happens where the processor has matrix units for bf16; elsewhere it is
    plain fp32 by oneDNN. The probe tells the two apart by their error. Older versions of torch have no such switch.
    """
    if name != "onednn" or MATMUL is None:
        yield
        return
    before, MATMUL.fp32_precision = MATMUL.fp32_precision, "bf16"
    try:
        yield
    finally:
        MATMUL.fp32_precision = before


@cache
def measure(names: tuple[Name, ...] = OTHERS, device: str = "cpu") -> dict[str, PrecisionProbe]:
    """Other ways than plain fp32, probed in a child process; a few seconds, once per process."""
    program = [sys.executable, "-m", "multihead.machine.precision_probe", device]
    findings: dict[str, PrecisionProbe] = {}
    # One child answers for all, unless a precision kills it: then another goes on with the rest.
    while left := [name for name in names if name not in findings]:
        found, died = _ask([*program, *left], PATIENCE)
        findings |= {finding.precision: finding for finding in found}
        if len(found) < len(left):
            dead = left[len(found)]
            findings[dead] = PrecisionProbe(dead, died=died or "the probe gave no answer")
    return findings


def _ask(command: Sequence[str], patience: float) -> tuple[list[PrecisionProbe], str]:
    """The child's findings, and how it ended if not well."""
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
        output, died = child.stdout, _exit_message(child.returncode, child.stderr)
    except subprocess.TimeoutExpired as late:
        # On a timeout the partial output is bytes even in text mode.
        output, died = (late.stdout or b"").decode(), f"no answer in {patience:.0f} s"
    # Libraries print there too when asked to (DNNL_VERBOSE=1, MKL_VERBOSE=1).
    return [PrecisionProbe(**json.loads(line)) for line in output.splitlines() if line.startswith("{")], died


def _exit_message(code: int, stderr: str) -> str:
    if code < 0:
        return f"the process died with {signal.Signals(-code).name}"
    return stderr.strip().rpartition("\n")[2] if code else ""
