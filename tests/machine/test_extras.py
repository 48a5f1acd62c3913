import re
import tomllib
from pathlib import Path

import pytest

from multihead.machine import extras


def test_table_is_what_pyproject_says() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    declared = pyproject["project"]["optional-dependencies"]
    declared.pop("dev")
    modules = {
        extra: tuple(re.match(r"[\w-]+", line)[0].replace("-", "_") for line in lines)  # type: ignore[index]
        for extra, lines in declared.items()
    }
    imported = {"pillow": "PIL"}  # packages whose modules have another name
    assert {extra: tuple(imported.get(n, n) for n in names) for extra, names in modules.items()} == extras.EXTRAS


def test_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "EXTRAS", {"good": ("json",), "bad": ("json", "no_such_module")})
    assert extras.missing_extras() == {"bad": ["no_such_module"]}


def test_extra_of() -> None:
    assert extras.extra_of("x_transformers.attend") == "bench"
    assert extras.extra_of("numpy") is None
