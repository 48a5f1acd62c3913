"""No junk rooms, and nothing prints but the rooms that speak to people."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "multihead"
JUNK = ("utils", "util", "common", "helpers", "helper", "base", "misc")
MAY_PRINT = ("cli", "report")


def junk(path: Path) -> bool:
    """A folder or file whose name says nothing about what is in it."""
    return any(part.strip("_") in JUNK for part in path.with_suffix("").parts)


def prints(source: str) -> list[int]:
    """Line numbers of calls of print."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


@pytest.mark.parametrize("path", sorted(p.relative_to(PACKAGE) for p in PACKAGE.rglob("*.py")), ids=str)
def test_names_and_prints(path: Path) -> None:
    assert not junk(path), f"{path}: find the room it belongs to"
    if path.parts[0] not in MAY_PRINT:
        assert prints((PACKAGE / path).read_text(encoding="utf-8")) == []


def test_faults_are_seen() -> None:
    assert junk(Path("models/utils.py"))
    assert junk(Path("common/mask.py"))
    assert junk(Path("models/_base.py"))
    assert not junk(Path("models/based.py"))
    assert prints("x = 1\nif x:\n    print(x)") == [3]
    assert prints("# print(x)\nfingerprint('print(x)')") == []
