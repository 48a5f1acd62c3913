"""Names and sizes that keep the code readable: unique classes, verbs as functions, short files, shallow imports."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType

import pytest
import torch

from multihead.attention import MultiHeadAttention

SOURCE = Path(__file__).parents[2] / "src"
PACKAGE = SOURCE / "multihead"
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FILE, LONGEST_VERB, LONGEST_CHAIN = 400, 150, 22
# Names that look like participles or adjectives and are none: nouns, or words of an interface that is not ours.
ALLOWED = {"table", "_table", "_variable", "warning", "started", "embedding", "stopping", "_shared", "shared"}
PARTICIPLES = """
    kept told said seen written drawn shown known given found taken made held sent built learnt spelt lost left meant
    brought chosen broken spoken frozen hidden grown begun gone done been fed met beside apart alone together whole
    mine own legal ready alike
"""
IRREGULAR = frozenset(PARTICIPLES.split())
VERBS = {"read", "cut", "put", "set", "split", "run", "cast", "fit", "let", "need", "feed", "embed", "proceed"}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods, without properties, which are nouns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
            "property" in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            yield node


def is_participle(name: str) -> bool:
    word = name.strip("_")
    if "_" in word or name.startswith("__") or word in VERBS:
        return False
    return word in IRREGULAR or re.search(r"(ed|ing|able|ible)$", word) is not None


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def test_class_names_are_unique() -> None:
    places = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_function_is_named_by_a_bare_participle() -> None:
    assert len(ALLOWED) <= 15
    found = {
        f"{module_of(path)}.{node.name}"
        for path in FILES
        for node in functions(ast.parse(path.read_text(encoding="utf-8")))
        if is_participle(node.name) and node.name not in ALLOWED
    }
    assert found == set()


@pytest.mark.parametrize("name", ["settled", "kept", "wearing", "_alike"])
def test_a_participle_is_seen(name: str) -> None:
    assert is_participle(name)


@pytest.mark.parametrize("name", ["normalize_row", "embed", "_read", "loaded_model", "__repr__"])
def test_a_verb_is_none(name: str) -> None:
    assert not is_participle(name)


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_files_are_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= (LONGEST_VERB if path.is_relative_to(PACKAGE / "cli") else LONGEST_FILE)


@cache
def imports_of(module: str) -> frozenset[str]:
    """Modules of the package that a module imports when it is imported itself."""
    base = SOURCE.joinpath(*module.split("."))
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("multihead"):
            for alias in node.names:
                full = SOURCE.joinpath(*f"{node.module}.{alias.name}".split("."))
                inner = full.is_dir() or full.with_suffix(".py").exists()
                found.add(f"{node.module}.{alias.name}" if inner else str(node.module))
    return frozenset(found - {module})


@cache
def chain(module: str) -> int:
    """The longest chain of imports that starts at a module; a package that only hands names on is no link of it."""
    package = SOURCE.joinpath(*module.split(".")).is_dir()
    return (not package) + max((chain(name) for name in imports_of(module)), default=0)


def test_import_chains_are_short() -> None:
    longest = max((chain(module_of(path)), module_of(path)) for path in FILES)
    assert longest[0] <= LONGEST_CHAIN, longest


def test_an_attention_call_is_three_files() -> None:
    """What computes: the layer, the formula with its choice of a kernel, and the bias; kernels stand behind them."""
    attention, x = MultiHeadAttention(24, 4).eval(), torch.randn(2, 300, 24)
    names: set[str] = set()

    def trace(frame: FrameType, event: str, arg: object) -> None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE / "attention") and frame.f_code.co_name != "__init__":
            names.add(path.name)

    sys.settrace(trace)
    try:
        with torch.inference_mode():
            attention(x)
    finally:
        sys.settrace(None)
    assert names == {"multihead.py", "functional.py", "bias.py"}


def code_lines(node: ast.AST) -> int:
    """Lines with code: no docstrings, no comments, no blank lines."""
    return len(
        {child.lineno for child in ast.walk(node) if hasattr(child, "lineno") and not isinstance(child, ast.Expr)}
    )


def test_multi_head_attention_is_one_screen() -> None:
    tree = ast.parse((PACKAGE / "attention" / "multihead.py").read_text(encoding="utf-8"))
    (attention,) = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == "MultiHeadAttention"]
    (forward,) = [n for n in functions(attention) if n.name == "forward"]
    branches = sum(isinstance(n, ast.If | ast.IfExp | ast.For | ast.While | ast.Match) for n in ast.walk(forward))
    assert (code_lines(attention) <= 60, code_lines(forward) <= 25, branches <= 4) == (True, True, True)
