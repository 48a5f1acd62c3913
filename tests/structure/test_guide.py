"""What the guide tells to type is understood: verbs, flags, keys, run files, names in Python, links."""

import ast
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
import typer.main

import multihead as mh
from multihead import config
from multihead.cli.main import VERBS
from multihead.cli.train import run_of
from multihead.recipes import bundled_recipes

ROOT = Path(__file__).parents[2]
PAGES = ("docs/guide.md", "README.md", "README.zh.md")
RUN_FILES = {"run.toml": "classify", "pretrain.toml": "mask"}  # the task that each of the guide's is of


def blocks(page: str, language: str) -> list[str]:
    """The code in a page's fences of one language."""
    parts = re.split(r"^```(.*)\n", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    fences = zip(parts[1::4], parts[2::4], strict=True)  # prose, language, code, the fence's end, prose …
    return [code for named, code in fences if named == language]


def commands(text: str) -> list[list[str]]:
    """The words of every `multihead …` in a block, without comments, redirections and what is done with the output."""
    lines = [part for line in text.split("\n") for part in line.partition("#")[0].split("&&")]
    found = [shlex.split(re.split(r"[<>|]", line)[0]) for line in lines]
    return [words[1:] for words in found if words[:1] == ["multihead"]]


def parsed(words: list[str]) -> None:
    """click's own parser says whether it understands."""
    command = typer.main.get_command(import_module(VERBS[words[0]][0]).app)
    context = command.make_context(words[0], words[1:])
    if hasattr(command, "commands"):
        name, part, rest = command.resolve_command(context, words[1:])
        part.make_context(name, rest)


COMMANDS = [words for block in blocks("docs/guide.md", "") for words in commands(block)]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_are_understood(words: list[str]) -> None:
    parsed(words)


@pytest.mark.parametrize("words", [w for w in COMMANDS if w[0] in ("train", "check")], ids=" ".join)
def test_keys_are_known(words: list[str]) -> None:
    if words[1] == "--task":
        flags = dict(zip(words[1::2], words[2::2], strict=False))
        rest = [word for word in words[1:] if "=" in word]
        run_of(rest, flags["--task"], [flags["--data"]], flags.get("--from"))
    elif words[1] in bundled_recipes():
        config.read(bundled_recipes()[words[1]], words[2:])
    else:
        config.read(config.template(RUN_FILES[words[1]]), words[2:])


@pytest.mark.parametrize("text", blocks("docs/guide.md", "toml"))
def test_run_files_are_read(text: str) -> None:
    assert len(config.read(text).tasks) == 2


@pytest.mark.parametrize("page", PAGES)
def test_names_in_python_are_there(page: str) -> None:
    for text in blocks(page, "python"):
        used = {node.attr for node in ast.walk(ast.parse(text)) if _of_mh(node)}
        assert used
        assert used <= {*dir(mh)}


def _of_mh(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mh"


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)", (ROOT / "docs/guide.md").read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (ROOT / "docs" / target).exists()] == []


def test_faults_are_seen() -> None:
    assert commands("multihead check run.toml && multihead train run.toml a=b > x  # why\ncp a b") == [
        ["check", "run.toml"],
        ["train", "run.toml", "a=b"],
    ]
    with pytest.raises(Exception, match="No such option: --bugdet"):
        parsed(["heads", "prune", "model", "--bugdet", "1"])
    with pytest.raises(KeyError):
        parsed(["trian", "x"])
    with pytest.raises(ValueError, match="did you mean"):
        config.read(config.template("classify"), ["train.lrr=1"])
