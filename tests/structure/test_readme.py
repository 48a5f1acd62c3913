"""The map of packages in CONTRIBUTING, the links and the example of the READMEs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "multihead"
both = pytest.mark.parametrize("readme", ["README.md", "README.zh.md"])


def packages_on_disk(package: Path) -> set[str]:
    """Folders with code in them, and modules at the top."""
    folders = {f"{path.name}/" for path in package.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    return folders | {path.name for path in package.glob("*.py") if not path.name.startswith("__")}


def packages_on_map(text: str) -> set[str]:
    """First words of the lines of the code block that begins with src/multihead/."""
    block = re.search(r"^```\w*\nsrc/multihead/\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return set(re.findall(r"^  ([\w.]+/?) ", block[1], re.MULTILINE)) if block else set()


def links(text: str) -> set[str]:
    """Targets of Markdown links and pictures that are files of this repository."""
    return {target for target in re.findall(r"\]\(([^)#]+)", text) if "://" not in target}


def test_map_of_packages() -> None:
    assert packages_on_map((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")) == packages_on_disk(PACKAGE)


@both
def test_links_lead_somewhere(readme: str) -> None:
    targets = links((ROOT / readme).read_text(encoding="utf-8"))
    assert targets
    assert [target for target in sorted(targets) if not (ROOT / target).exists()] == []


def test_both_show_the_same_example() -> None:
    def code(name: str) -> list[str]:
        lines = (ROOT / name).read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0].splitlines()
        return [line.partition("#")[0].rstrip() for line in lines]

    assert code("README.md") == code("README.zh.md")


def test_faults_are_seen(tmp_path: Path) -> None:
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention" / "mask.py").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "run.py").touch()
    (tmp_path / "__init__.py").touch()
    assert packages_on_disk(tmp_path) == {"attention/", "run.py"}
    assert packages_on_map("```\nsrc/multihead/\n  attention/  x\n  run.py  y\n              more\n```\n") == {
        "attention/",
        "run.py",
    }
    assert packages_on_map("no map") == set()
    assert links("![a](docs/a.png) [b](https://x.org) [c](c.md#d) [d](#e)") == {"docs/a.png", "c.md"}
