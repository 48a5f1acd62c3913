"""What deploy/ starts is understood by the command line, and stops as the server does."""

import configparser
import json
import re
import shlex
from pathlib import Path

import typer.main

from multihead.cli.serve import app

DEPLOY = Path(__file__).parents[2] / "deploy"


def parse(words: list[str]) -> dict[str, object]:
    """The values that `multihead serve …` is started with."""
    assert words[:2] == ["multihead", "serve"]
    return typer.main.get_command(app).make_context("serve", words[2:]).params


def test_the_unit_starts_the_server() -> None:
    unit = configparser.RawConfigParser(strict=False, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((DEPLOY / "multihead.service").read_text(encoding="utf-8"))
    words = shlex.split(unit["Service"]["ExecStart"])
    assert parse(["multihead", *words[1:]])["host"] == "127.0.0.1"
    assert unit["Service"]["SuccessExitStatus"] == "143"


def test_the_image_starts_the_server() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, flags=re.MULTILINE)
    settings = parse([*json.loads(entry), "ner=/models/ner/model"])
    assert (settings["host"], settings["port"]) == ("0.0.0.0", 8000)
    sources = re.findall(r"^COPY (.*) \S+$", text, flags=re.MULTILINE)
    assert all((DEPLOY.parent / name).exists() for line in sources for name in line.split())
