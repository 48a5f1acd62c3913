"""Precision selection: half precision, or fp32 by another library, where it works, agrees with fp32 and is faster."""

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

# onednn: fp32 as well, multiplied by oneDNN instead of MKL, which is the slower one on CPUs other than Intel's.
Name = Literal["fp32", "onednn", "bf16", "fp16"]
READING = ("auto", "fp32", "bf16")
OTHERS: tuple[Name, ...] = ("onednn", "bf16", "fp16")
FIRST: tuple[Name, ...] = ("bf16", "onednn")  # in order of preference; fp16 must be requested

# Largest relative error. bf16 has 8 bits, so its products are off by about 0.005; fp32's, added up in another order,
# by 1e-6.
AGREES = {"onednn": 1e-5, "bf16": 0.02, "fp16": 0.02}
FASTER = {"onednn": 0.98, "bf16": 0.9, "fp16": 0.9}  # of fp32's time; a smaller gain is within the noise
MATMUL: Any = getattr(torch.backends.mkldnn, "matmul", None)  # torch's switches for products by oneDNN
PATIENCE = 120.0  # seconds; emulated fp16 is slow, not endless


@dataclass(frozen=True)
class PrecisionProbe:
    """The measurement of one precision; `died` describes how the probe ended if it did not finish."""

    precision: str
    error: float = math.inf
    ratio: float = math.inf
    died: str = ""

    @property
    def good(self) -> bool:
        """Whether it works, agrees with fp32 and is faster. NaN fails every comparison."""
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


def choose_precision(name: str = "auto", probe: Callable[[], Mapping[str, PrecisionProbe]] | None = None) -> Name:
    """Return the precision for training; `auto` is bf16 where it is good, else fp32 by oneDNN where that is, else fp32.

    fp16 must be requested by name: its range is small, so training needs loss scaling.
    """
    if name == "fp32":
        return "fp32"
    if name == "auto":
        probes = (probe or measure)()
        return next((precision for precision in FIRST if precision in probes and probes[precision].good), "fp32")
    for precision in OTHERS:
        if name == precision:
            if not (finding := (probe or measure)()[precision]).right:
                raise ValueError(f"{precision} on this machine {finding.verdict}; use fp32 or auto")
            return precision
    raise ValueError(f"unknown precision {name!r}; use one of auto, fp32, {', '.join(OTHERS)}")


def inference_precision(name: str, device: str) -> str:
    """Return the precision for inference: fp32, or bf16 where it works (and, for auto, is faster)."""
    if name not in READING:
        raise ValueError(f"unknown precision {name!r} for inference; use one of {', '.join(READING)}")
    return choose_precision(name, partial(measure, ("bf16",), device))


def display_name(name: str) -> str:
    """Return the name of a precision in messages."""
    return "fp32 by oneDNN" if name == "onednn" else name


@contextmanager
def matmul_backend(name: str) -> Iterator[None]:
    """Multiply fp32 matrices with the library of a precision, within this context.

    torch's switch is named bf16, which is what happens on CPUs with matrix units for bf16; elsewhere it is plain fp32
    by oneDNN. The probe distinguishes the two by their error. Older versions of torch have no such switch.
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
    """Probe precisions other than plain fp32 in a child process; takes a few seconds, once per process."""
    program = [sys.executable, "-m", "multihead.machine.precision_probe", device]
    findings: dict[str, PrecisionProbe] = {}
    # One child measures all, unless a precision kills it: then another child measures the rest.
    while left := [name for name in names if name not in findings]:
        probes, died = _ask([*program, *left], PATIENCE)
        findings |= {finding.precision: finding for finding in probes}
        if len(probes) < len(left):
            dead = left[len(probes)]
            findings[dead] = PrecisionProbe(dead, died=died or "the probe gave no answer")
    return findings


def _ask(command: Sequence[str], patience: float) -> tuple[list[PrecisionProbe], str]:
    """Return the child's measurements, and how it ended if it failed."""
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
