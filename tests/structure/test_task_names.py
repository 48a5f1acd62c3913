"""What a task is stands in its spec and its class: no other file compares a task's name, or has a table of tasks."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from multihead.config.run_config import BlockKeys, RunKeys
from multihead.tasks import TASKS
from multihead.tasks.spec import SPECS

PACKAGE = Path(__file__).parents[2] / "src" / "multihead"
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
OWN = ("tasks", "bench")  # bench has races of its own, which are called like tasks
EXEMPT: dict[str, str] = {}  # file -> why


def literals(node: ast.AST) -> Iterator[str]:
    """Texts that are written out: the node itself, or what a tuple, list or set of them holds."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for part in node.elts:
            yield from literals(part)


def compared(node: ast.AST) -> Iterator[str]:
    """What a node compares something with. `"answer" in prediction` asks for a key, and is no such thing."""
    if isinstance(node, ast.Compare):
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.Eq | ast.NotEq):
                yield from (*literals(left), *literals(right))
            elif isinstance(operator, ast.In | ast.NotIn):
                yield from literals(right)
            left = right
    elif isinstance(node, ast.MatchValue):
        yield from literals(node.value)


def faults(source: str) -> list[str]:
    """Comparisons with a task's name, and tables by tasks' names."""
    found = []
    for node in ast.walk(ast.parse(source)):
        found += [f"{node.lineno}: compares with {name!r}" for name in compared(node) if name in SPECS]  # type: ignore[attr-defined]
        if isinstance(node, ast.Dict):
            keys = [name for key in node.keys if key is not None for name in literals(key) if name in SPECS]
            found += [f"{node.lineno}: a table by {', '.join(keys)}"] if len(keys) > 1 else []
    return found


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] not in OWN], ids=str)
def test_no_file_compares_names_of_tasks(path: Path) -> None:
    found = faults((PACKAGE / path).read_text(encoding="utf-8"))
    assert found == [] or str(path) in EXEMPT


@pytest.mark.parametrize(
    "source",
    [
        'if run.task == "ner": pass',
        'x = "ner" != task.name',
        'x = task in ("ner", "answer")',
        'x = task not in ["denoise"]',
        'match task:\n    case "ner" | "mask":\n        pass',
        'TABLE = {"ner": 1, "mask": 2}',
    ],
)
def test_a_fault_is_seen(source: str) -> None:
    assert faults(source)


@pytest.mark.parametrize("source", ['x = "answer" in prediction', 'x = {"mask": 1, "pad": 0}', 'x = kind == "cross"'])
def test_what_is_right_passes(source: str) -> None:
    assert faults(source) == []


@pytest.mark.parametrize("name", SPECS)
def test_a_task_is_what_its_spec_says(name: str) -> None:
    spec, task = SPECS[name], TASKS[name]
    assert (spec.name, task.spec, task.name) == (name, spec, name)
    assert (task.inputs, task.gold, task.body, task.columns()) == (spec.inputs, spec.gold, spec.body, spec.columns)
    assert spec.label is None or spec.label in spec.gold
    assert spec.generates_text or not spec.has_source
    assert name not in {*RunKeys.model_fields, *BlockKeys.model_fields, "tasks"}


def test_every_body_has_one_default_task() -> None:
    bodies = [spec.body for spec in SPECS.values() if spec.default_for_body]
    assert sorted(bodies) == ["decoder", "encoder", "encoder_decoder"]


def test_specs_need_no_torch() -> None:
    program = "import sys, multihead.tasks.spec, multihead.config; print({'torch', 'numpy', 'pandas'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("set()", "")
