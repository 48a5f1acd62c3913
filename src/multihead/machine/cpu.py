"""The CPU's name and the instruction sets that matter for matrix products."""

import platform
import subprocess
import sys
from pathlib import Path

# Names as Linux writes them in /proc/cpuinfo, in the order of age: x86, then Arm.
# fmt: off
TELLING = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni",
    "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
    "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2",
)
# fmt: on
CPUINFO = Path("/proc/cpuinfo")


def cpu_name(cpuinfo: Path = CPUINFO) -> str:
    """Return the CPU's model name."""
    name = _field(cpuinfo, "model name")
    if not name and sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        name = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return name or platform.processor() or platform.machine()


def instructions(cpuinfo: Path = CPUINFO) -> list[str]:
    """Return the relevant instruction sets that the CPU claims; `precision` measures whether they work."""
    claimed = (_field(cpuinfo, "flags") or _field(cpuinfo, "Features")).split()
    return [flag for flag in TELLING if flag in claimed]


def _field(cpuinfo: Path, key: str) -> str:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:  # not Linux
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == key), "")
