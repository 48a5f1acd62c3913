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
# Facts about tasks, without torch: files of the room tasks that import nothing but each other, so that the leaves that
# must know tasks can read them.
FACTS = ("tasks.spec", "tasks.sections")
READ_FACTS = ("data", "run")
LAZY = ("multihead/tasks/__init__.py",)  # may import by name: the class of a task, when it is asked for
TOP = ("__init__", "__main__")  # the lazy surface and `python -m multihead`: may name every room
MAY_IMPORT_TOP = ("bench", "cli")  # `import multihead as mh`; elsewhere only __version__
OPTIONAL = {module for modules in EXTRAS.values() for module in modules}
DYNAMIC = ("import_module", "__import__")


def allowed(room: str) -> set[str]:
    """The rooms that a room may import."""
    if room in LEAVES:
        return {room, *(FACTS if room in READ_FACTS else ())}
    if room in FACTS:
        return {*FACTS}
    level = next(i for i, layer in enumerate(LAYERS) if room in layer)
    below = {name for layer in LAYERS[:level] for name in layer}
    return below | {room, *(FACTS if room != "attention" else ())} | (set(LEAVES) if room != "attention" else set())


def room_of(path: Path) -> str:
    """multihead/watch/seen.py -> watch; multihead/run.py -> run; multihead/tasks/spec.py -> tasks.spec."""
    return room_of_name(".".join(path.with_suffix("").parts[1:]))


def room_of_name(rest: str) -> str:
    """watch.seen.Seen -> watch; tasks.spec.SPECS -> tasks.spec."""
    first_two = ".".join(rest.split(".")[:2])
    return first_two if first_two in FACTS else rest.partition(".")[0]


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
                target = room_of_name(rest)
                if target in {name for layer in LAYERS for name in layer} | {*LEAVES, *FACTS}:
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
            if called in DYNAMIC and str(path) not in LAZY:
                found.append(f"{path}:{node.lineno}: {called} hides an import")
    return found


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_go_downward(path: Path) -> None:
    assert faults(path, (PACKAGE.parent / path).read_text(encoding="utf-8")) == []


def test_every_room_has_its_place() -> None:
    known = {name for layer in LAYERS for name in layer} | {*LEAVES, *FACTS, *TOP}
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
        ("multihead/run/file.py", "from multihead.tasks import TASKS"),
        ("multihead/data/read.py", "from multihead.tasks.ner import Ner"),
        ("multihead/scores/spans.py", "from multihead.tasks.spec import SPECS"),
        ("multihead/tasks/spec.py", "from multihead.tasks.task import Task"),
        ("multihead/tasks/spec.py", "from multihead.data.record import Record"),
        ("multihead/tasks/ner.py", "importlib.import_module('multihead.cli')"),
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
        ("multihead/run/file.py", "from multihead.tasks.spec import SPECS"),
        ("multihead/data/read.py", "from multihead.tasks.spec import SPECS"),
        ("multihead/tasks/spec.py", "from multihead.tasks.sections import NerSection"),
        ("multihead/bench/attention.py", "def f():\n    import x_transformers"),
        ("multihead/cli/demo.py", "def f():\n    import torch\n    import multihead as mh"),
    ],
)
def test_what_is_right_passes(path: str, source: str) -> None:
    assert faults(Path(path), source) == []
