"""`multihead doctor`: report the capabilities of this machine, and missing packages."""

from __future__ import annotations

import json as jsons
import platform
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multihead import __version__
from multihead.cli.app import verb

if TYPE_CHECKING:
    from torch import nn

app = verb()

NOTE = (
    "On CPU, attention dropout above 0 and a learned bias that needs gradients (T5 in training) leave the "
    "fused kernel: memory then grows with the square of the length. Attention dropout is 0 unless you set it."
)


@app.command()
def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Report the capabilities of this machine, and missing packages. Takes some seconds to measure precision.

    \b
    Example:
      multihead doctor --json | python -m json.tool
    """
    facts = examine()
    if json:
        print(jsons.dumps(facts, allow_nan=False))
    else:
        show(facts)


def examine() -> dict[str, Any]:
    """Return all facts as JSON values; memory in bytes."""
    import torch

    from multihead.machine import cpu, device, extras, memory, precision, threads

    return {
        "versions": {"multihead": __version__, "python": platform.python_version(), "torch": torch.__version__},
        "cpu": {
            "name": cpu.cpu_name(),
            "instructions": cpu.instructions(),
            "torch_uses": torch.backends.cpu.get_cpu_capability(),
        },
        "devices": device.available_devices(),
        "threads": {"use": threads.processors(), "allowed": threads.allowed_processors(), "quota": threads.quota()},
        "memory": {"limit": memory.memory_limit(), "resident": memory.resident_bytes(), "peak": memory.peak_bytes()},
        "precision": {
            "auto": precision.choose_precision("auto"),
            **{name: {"good": it.good, "verdict": it.verdict} for name, it in precision.measure().items()},
        },
        "attention": kernels(),
        "note": NOTE,
        "missing_extras": extras.missing_extras(),
    }


def kernels() -> dict[str, str]:
    """Return the attention kernel that each kind of training step uses on the CPU, as observed."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from multihead.attention import Mask, MultiHeadAttention, PositionEncoding, RelativeBias

    class KernelProbe(TorchDispatchMode):  # not torch.profiler: it writes to stderr
        fused = False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.fused |= "flash_attention" in str(func)
            return func(*args, **(kwargs or {}))

    def observe_kernel(
        attention: nn.Module, mask: Mask | None = None, position: PositionEncoding | None = None, T: int = 128
    ) -> str:
        with KernelProbe() as probe:  # type: ignore[no-untyped-call]
            attention(torch.randn(2, T, 16), mask=mask, position=position).sum().backward()
        return "fused" if probe.fused else "explicit"

    plain = MultiHeadAttention(16, 4)
    return {
        "plain": observe_kernel(plain),
        "causal": observe_kernel(plain, Mask.causal()),
        "padded": observe_kernel(plain, Mask.lengths([128, 50])),
        "packed": observe_kernel(plain, Mask.segments(torch.arange(128).div(50).long().expand(2, -1))),
        "texts of 32 tokens": observe_kernel(plain, T=32),
        "grouped heads": observe_kernel(MultiHeadAttention(16, 4, kv_heads=2)),
        "value width ≠ key width": observe_kernel(MultiHeadAttention(16, 4, key_dim=4, value_dim=6)),
        "attention dropout": observe_kernel(MultiHeadAttention(16, 4, dropout=0.1)),
        "learned bias, training": observe_kernel(plain, position=RelativeBias(4)),
    }


def show(facts: dict[str, Any]) -> None:
    """Print the facts as a table."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from multihead.machine.precision import display_name

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()

    def row(name: str, text: str) -> None:
        table.add_row(name, escape(text))

    cpu, threads, memory = facts["cpu"], facts["threads"], facts["memory"]
    row("versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items()))
    row("CPU", f"{cpu['name']}; torch uses {cpu['torch_uses']}")
    row("instructions", " ".join(cpu["instructions"]) or "unknown")
    row("devices", ", ".join(facts["devices"]))
    quota = "no quota" if threads["quota"] is None else f"quota {threads['quota']:g}"
    row("threads", f"{threads['use']} ({threads['allowed']} CPUs allowed, {quota})")
    row(
        "memory",
        f"{_gib(memory['limit'])} may be used; this command holds {_gib(memory['resident'])}, "
        f"at most {_gib(memory['peak'])} so far",
    )
    row("precision", f"auto is {display_name(facts['precision']['auto'])}")
    for name, result in facts["precision"].items():
        if name != "auto":
            row("", f"{display_name(name)} {result['verdict']}")
    for number, kernel in enumerate(("fused", "explicit")):
        kinds = [kind for kind, taken in facts["attention"].items() if taken == kernel]
        row("" if number else "attention", f"{kernel}: {', '.join(kinds) or 'never'}")
    missing = [
        f"{', '.join(names)} missing: pip install 'multihead[{extra}]'"
        for extra, names in facts["missing_extras"].items()
    ]
    for number, line in enumerate(missing or ["all installed"]):
        row("" if number else "extras", line)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"\n{facts['note']}")


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
