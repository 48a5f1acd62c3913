"""Made-up reports and a browser, for all tests of this room."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from multihead.report import ReportData


def neighbour(name: str) -> ModuleType:
    """A file beside this one: tests are no package, so it is opened by its path."""
    spec = importlib.util.spec_from_file_location(f"report_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fixtures, chromium = neighbour("fixtures"), neighbour("chromium")


@pytest.fixture(scope="session")
def english() -> ReportData:
    return fixtures.english()


@pytest.fixture(scope="session")
def chinese() -> ReportData:
    return fixtures.chinese()


@pytest.fixture(scope="session")
def intents() -> ReportData:
    return fixtures.intents()


@pytest.fixture
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A Chromium, 1280 wide unless the test's parameter says otherwise."""
    program = chromium.found()
    if program is None:
        pytest.skip("no Chromium found: install chromium, or name one in $CHROMIUM")
    with chromium.Browser(program, **getattr(request, "param", {})) as opened:
        yield opened
