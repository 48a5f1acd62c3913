"""Rooms import downward only; imports hide in functions only where that is the rule."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from multihead.machine.extras import EXTRAS

PACKAGE = Path(__file__).parents[2] / "src" / "multihead"
MODULES = sorted(path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*.py"))

# From the bottom to the top: a room may import itself and every room of an earlier line.
LAYERS = (
    ("attention",),
    ("models",),
    ("watch", "decode"),
    ("tasks",),
    ("build",),
    ("train",),
    ("heads",),
    ("report",),
    ("export",),
    ("serve",),
    ("apps",),
    ("bench",),
    ("cli",),
)
LEAVES = (
    "data",
    "scores",
    "machine",
    "run",
    "recipes",
)  # import no other room; any room but attention uses them
TOP = ("__init__", "__main__")  # the lazy surface and `python -m multihead`: may name every room
MAY_IMPORT_TOP = ("bench", "cli")  # `import multihead as mh`; elsewhere only __version__
OPTIONAL = {module for modules in EXTRAS.values() for module in modules}
DYNAMIC = ("import_module", "__import__")


def allowed(room: str) -> set[str]:
    """The rooms that a room may import."""
    if room in LEAVES:
        return {room}
    level = next(i for i, layer in enumerate(LAYERS) if room in layer)
    below = {name for layer in LAYERS[:level] for name in layer}
    return below | {room} | (set(LEAVES) if room != "attention" else set())


def room_of(path: Path) -> str:
    """multihead/watch/seen.py -> watch; multihead/run.py -> run."""
    return path.with_suffix("").parts[1]


def imported(node: ast.AST, path: Path) -> Iterator[str]:
    """Dotted names that one statement imports: modules, and for `from a import b` a.b."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = path.parts[: len(path.parts) - node.level] if node.level else ()
        module = ".".join([*package, *([node.module] if node.module else [])])
        yield from (f"{module}.{alias.name}" for alias in node.names)


def faults(path: Path, source: str) -> list[str]:
    """What one file does against the rules."""
    room, found = room_of(path), []
    if room in TOP:
        return found
    tree = ast.parse(source)
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        for name in imported(node, path):
            package, _, rest = name.partition(".")
            where = f"{path}:{getattr(node, 'lineno', 0)}: {name}"
            if package == "multihead":
                target = rest.partition(".")[0]
                if target in {name for layer in LAYERS for name in layer} | set(LEAVES):
                    if target not in allowed(room):
                        found.append(f"{where}: {room} may not import {target}")
                elif room not in MAY_IMPORT_TOP and target != "__version__":
                    found.append(f"{where}: import from the room itself, not from the top")
            elif room == "attention" and package not in {"torch", *sys.stdlib_module_names}:
                found.append(f"{where}: attention imports torch only")
            if id(node) in inside and room != "cli" and package not in OPTIONAL:
                found.append(f"{where}: an import inside a function")
        if isinstance(node, ast.Call) and room != "cli":
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called in DYNAMIC:
                found.append(f"{path}:{node.lineno}: {called} hides an import")
    return found


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_go_downward(path: Path) -> None:
    assert faults(path, (PACKAGE.parent / path).read_text(encoding="utf-8")) == []


def test_every_room_has_its_place() -> None:
    known = {name for layer in LAYERS for name in layer} | set(LEAVES) | set(TOP)
    assert {room_of(path) for path in MODULES} <= known


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("multihead/attention/mask.py", "from multihead.models import Decoder"),
        ("multihead/attention/mask.py", "import numpy"),
        ("multihead/attention/mask.py", "from multihead.machine import cpu"),
        ("multihead/models/block.py", "import multihead.watch.seen"),
        ("multihead/models/block.py", "from multihead import watch"),
        ("multihead/models/block.py", "from multihead import Mask"),
        ("multihead/models/block.py", "import multihead as mh"),
        ("multihead/models/block.py", "from ..cli import main"),
        ("multihead/models/block.py", "from .. import bench"),
        ("multihead/models/families/bert.py", "from ...watch import seen"),
        ("multihead/models/block.py", "def f():\n    import json"),
        ("multihead/models/block.py", "class A:\n    async def f(self):\n        from torch import nn"),
        ("multihead/models/block.py", "if TYPE_CHECKING:\n    from multihead.train import loop"),
        ("multihead/models/block.py", "importlib.import_module('multihead.cli')"),
        ("multihead/watch/seen.py", "from multihead.decode import beam"),
        ("multihead/machine/cpu.py", "from multihead.attention import Mask"),
        ("multihead/bench/attention.py", "from multihead.cli import main"),
        ("multihead/run.py", "from multihead.data import files"),
    ],
)
def test_a_fault_is_seen(path: str, source: str) -> None:
    assert faults(Path(path), source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "multihead/attention/mask.py",
            "import math\nimport torch\nfrom multihead.attention.sight import Sight",
        ),
        ("multihead/models/block.py", "from ..attention import Mask\nfrom .config import ModelConfig"),
        ("multihead/models/families/bert.py", "from ..config import ModelConfig"),
        (
            "multihead/watch/seen.py",
            "from multihead.models import Decoder\nfrom multihead.machine import memory",
        ),
        ("multihead/train/loop.py", "from multihead import __version__"),
        ("multihead/bench/attention.py", "def f():\n    import x_transformers"),
        ("multihead/cli/demo.py", "def f():\n    import torch\n    import multihead as mh"),
    ],
)
def test_what_is_right_passes(path: str, source: str) -> None:
    assert faults(Path(path), source) == []
