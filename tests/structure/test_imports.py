"""Packages import downward only; imports hide in functions only where that is the rule."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from multihead.machine.extras import EXTRAS

PACKAGE = Path(__file__).parents[2] / "src" / "multihead"
MODULES = sorted(path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*.py"))

# From the bottom to the top: a package may import itself and every package of an earlier line. An entry with a dot is
# a module that stands on another line than the rest of its package.
LAYERS = (
    ("kernels",),
    ("attention",),
    ("text", "image", "audio"),
    ("models",),
    ("data",),
    ("inspection.address", "inspection.statistics", "inspection.recording", "inspection.hooks", "generation"),
    ("tasks",),
    ("config",),
    ("inference",),
    ("pretrained",),
    ("training",),
    ("inspection",),
    ("pruning",),
    ("inspection.head_usage",),
    ("report",),
    ("export",),
    ("server",),
    ("apps",),
    ("cli",),
)
LEAVES = ("io", "metrics", "machine", "recipes", "tasks.spec")  # import no other package; all but attention use them
NAMES = {name for layer in LAYERS for name in layer} | set(LEAVES)
TOP = ("__init__", "__main__")  # the lazy surface and `python -m multihead`: may name every package
MAY_IMPORT_TOP = ("cli",)  # `import multihead as mh`; elsewhere only __version__
OPTIONAL = {module for modules in EXTRAS.values() for module in modules}
DYNAMIC = ("import_module", "__import__")
UPWARD = ("multihead/inference/pipeline.py",)  # methods that hand the object to packages that stand on it
LAZY = ("multihead/tasks/__init__.py", "multihead/tasks/spec.py")  # the class of a task, when it is asked for


def place_of(dotted: str) -> str:
    """inspection.hooks.watch -> inspection.hooks, which has a line of its own; models.block -> models."""
    package, _, rest = dotted.partition(".")
    module = f"{package}.{rest.partition('.')[0]}"
    return module if module in NAMES else package


def allowed(place: str, target: str) -> bool:
    """Whether a package, or a module with a line of its own, may import another."""
    if place.partition(".")[0] == target.partition(".")[0]:
        return True
    if target in LEAVES:
        return place not in (*LEAVES, "attention")
    levels = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    if place in LEAVES or target not in levels:
        return False
    return levels[target] < levels[place]


def room_of(path: Path) -> str:
    """multihead/inspection/hooks.py -> inspection.hooks; multihead/models/block.py -> models."""
    return place_of(".".join(path.with_suffix("").parts[1:]))


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
    if room in TOP or str(path) in UPWARD:
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
                target = place_of(rest)
                if target in NAMES:
                    if not allowed(room, target):
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
    assert {room_of(path) for path in MODULES} <= NAMES | set(TOP)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("multihead/attention/mask.py", "from multihead.models import Decoder"),
        ("multihead/attention/mask.py", "import numpy"),
        ("multihead/attention/mask.py", "from multihead.machine import cpu"),
        ("multihead/models/block.py", "import multihead.inspection.recording"),
        ("multihead/models/block.py", "from multihead import inspection"),
        ("multihead/models/block.py", "from multihead import Mask"),
        ("multihead/models/block.py", "import multihead as mh"),
        ("multihead/models/block.py", "from ..cli import main"),
        ("multihead/models/block.py", "from .. import report"),
        ("multihead/models/families/bert.py", "from ...inspection import recording"),
        ("multihead/models/block.py", "def f():\n    import json"),
        ("multihead/models/block.py", "class A:\n    async def f(self):\n        from torch import nn"),
        ("multihead/models/block.py", "if TYPE_CHECKING:\n    from multihead.training import loop"),
        ("multihead/models/block.py", "importlib.import_module('multihead.cli')"),
        ("multihead/inspection/recording.py", "from multihead.tasks import ner"),
        ("multihead/machine/cpu.py", "from multihead.attention import Mask"),
        ("multihead/report/html.py", "from multihead.cli import main"),
        ("multihead/io/files.py", "from multihead.data import splits"),
    ],
)
def test_a_fault_is_seen(path: str, source: str) -> None:
    assert faults(Path(path), source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "multihead/attention/mask.py",
            "import math\nimport torch\nfrom multihead.attention.bias import AttentionBias",
        ),
        ("multihead/models/block.py", "from ..attention import Mask\nfrom .config import ModelConfig"),
        ("multihead/models/families/bert.py", "from ..config import ModelConfig"),
        (
            "multihead/inspection/recording.py",
            "from multihead.models import Decoder\nfrom multihead.machine import memory",
        ),
        ("multihead/training/loop.py", "from multihead import __version__"),
        ("multihead/text/sentencepiece.py", "def f():\n    import sentencepiece"),
        ("multihead/cli/demo.py", "def f():\n    import torch\n    import multihead as mh"),
    ],
)
def test_what_is_right_passes(path: str, source: str) -> None:
    assert faults(Path(path), source) == []
