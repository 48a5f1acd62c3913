"""docs/results.md is what docs/results.toml says, and its links lead somewhere."""

import re
import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_results_page_is_generated_from_the_data_file() -> None:
    build = runpy.run_path(str(DOCS / "build_results.py"))["build"]
    assert (DOCS / "results.md").read_text(encoding="utf-8") == build(), "run: python docs/build_results.py"


def test_links_of_docs_exist() -> None:
    for page in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert link.startswith("http") or (page.parent / link).exists(), f"{page}: {link}"
