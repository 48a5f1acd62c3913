"""Docs, help and docstrings speak the field's language: none of the words that the style guide replaces."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# word -> what to say instead
BANNED = {
    r"learnt": "learned, trained",
    r"foret(?:old|ell\w*)": "next-token prediction, perplexity",
    r"trunks?": "shared encoder",
    r"(?:graphics )?cards?": "GPU",
    r"what another model believes": "soft labels",
    r"models? that (?:reads?|writes?)": "encoder, decoder, classifier, sequence-to-sequence",
    r"right in it": "mixed precision",
    r"could be chance": "confidence interval, significance",
    r"rows? of a side": "split",
    r"unspelt|spelt": "unknown tokens",
    r"goes on where": "resumes",
    r"refuse[sd]?": "raise, reject",
    r"optimiser|normalis\w+|summaris\w+|labelled|honoured": "American spelling",
}
WORDS = re.compile(r"\b(?:" + "|".join(BANNED) + r")\b", re.IGNORECASE)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Docstrings, and help texts of options."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
        elif isinstance(node, ast.keyword) and node.arg in ("help", "short_help"):
            yield from (part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "src").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT / "src"))
)
def test_docstrings_and_help(path: Path) -> None:
    text = "\n".join(map(str, docstrings(ast.parse(path.read_text(encoding="utf-8")))))
    assert WORDS.findall(text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert WORDS.findall(prose) == []


def test_a_banned_word_is_seen() -> None:
    assert WORDS.findall("what was learnt from a trunk") == ["learnt", "trunk"]
    assert not WORDS.search("a scorecard, learned")
