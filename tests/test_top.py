"""The lazy surface: cheap to import, and no package shadows a public name."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import multihead as mh


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_costs_nothing() -> None:
    loaded = run("import sys, multihead; print(*sys.modules)").split()
    assert not {"torch", "numpy", "typer", "rich", "pydantic"} & set(loaded)
    assert [name for name in loaded if name.startswith("multihead")] == ["multihead"]


def test_what_runs_is_what_editors_see() -> None:
    tree = ast.parse(Path(mh.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == mh.LAZY
    assert set(mh.__all__) == {*mh.LAZY, "__version__"}
    assert set(mh.__all__) <= set(dir(mh))


@pytest.mark.parametrize("name", mh.LAZY)
def test_names_resolve(name: str) -> None:
    assert callable(getattr(mh, name))


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'multihead' has no attribute 'atend'"):
        _ = mh.atend  # type: ignore[attr-defined]


def test_no_package_is_called_as_a_public_name() -> None:
    folder = Path(mh.__file__).parent
    assert not {path.stem for path in folder.iterdir()} & set(mh.LAZY)
