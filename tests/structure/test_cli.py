"""The verbs and flags that people and scripts rely on. To change one, change this table and the CHANGELOG."""

from importlib import import_module

import typer.main

from multihead.cli.main import HELP, VERBS

SURFACE = {
    "demo": ["--out", "--online", "changes", "--fresh"],
    "init": ["task", "--from", "--scratch"],
    "check": ["file", "changes", "--json"],
    "train": ["arguments", "--task", "--data", "--from", "--fresh", "--json"],
    "evaluate": ["model", "data", "columns", "--task", "--device", "--precision", "--json"],
    "compare": ["first", "second", "data", "columns", "--show", "--task", "--device", "--precision", "--json"],
    "predict": ["model", "file", "columns", "-i", "--task", "--device", "--precision"],
    "heads": [],
    "heads show": ["model", "text", "--head", "--second", "--png", "--html", "--rows", "--window"],
    "heads stats": ["model", "data", "columns", "--limit", "--task", "--json"],
    "heads rank": ["model", "data", "columns", "--by", "--metric", "--early", "--limit", "--task", "--json"],
    "heads prune": [
        "model",
        "data",
        "columns",
        "--out",
        "--budget",
        "--keep",
        "--ffn",
        "--head-width",
        "--compensate",
        "--heldout",
        "--finetune",
        "--plot",
        "--limit",
        "--json",
    ],
    "heads undo": ["model", "--out"],
    "serve": [
        "models",
        "--port",
        "--host",
        "--key",
        "--workers",
        "--max-queue",
        "--allow-host",
        "--allow-origin",
        "--data",
        "--save-to",
        "--device",
        "--precision",
        "--open",
        "--quiet",
    ],
    "export": ["model", "--out", "--to", "--task"],
    "doctor": ["--json"],
}


def test_surface_is_frozen() -> None:
    surface = {}
    for verb, (module, _) in VERBS.items():
        command = typer.main.get_command(import_module(module).app)
        parts = {f"{verb} {name}": part for name, part in getattr(command, "commands", {}).items()}
        for name, part in {verb: command, **parts}.items():
            surface[name] = [option for parameter in part.params for option in parameter.opts]
    assert surface == SURFACE


def test_every_verb_has_its_file_and_an_example() -> None:
    for verb, (module, line) in VERBS.items():
        assert module == f"multihead.cli.{verb}"
        assert f"  {verb:<10}{line}\n" in HELP
        help_text = typer.main.get_command(import_module(module).app).help or ""
        assert f"Example:\n  multihead {verb}" in help_text or "Examples:\n  multihead" in help_text
