"""The `multihead` command: find the subcommand, import only its file, and turn errors and signals into exit codes.

The subcommand is parsed by hand and not by typer: help then needs no import (0.04 s here, with typer 0.1 s, with torch
2 s), and nothing depends on typer's private classes.
"""

from __future__ import annotations

import os
import sys

from multihead import TYPE_CHECKING, __version__
from multihead.cli import signals

if TYPE_CHECKING:
    from typing import NoReturn

VERBS = {
    "demo": ("multihead.cli.demo", "fine-tune a tagger on bundled data, with report and pictures"),
    "init": ("multihead.cli.init", "print a complete, commented run file for a task"),
    "check": ("multihead.cli.check", "check the data before training, with an exit code"),
    "train": ("multihead.cli.train", "train a model; the same command resumes after a stop"),
    "evaluate": ("multihead.cli.evaluate", "score a model on a dataset"),
    "compare": ("multihead.cli.compare", "compare two models on a dataset: flips, significance"),
    "predict": ("multihead.cli.predict", "JSONL or text in, JSONL out, streaming"),
    "heads": ("multihead.cli.heads", "inspect attention heads, rank them, prune them, undo it"),
    "serve": ("multihead.cli.serve", "serve models over HTTP: predictions, heads, text, vectors"),
    "export": ("multihead.cli.export", "write a model so that another library loads it"),
    "doctor": ("multihead.cli.doctor", "report the capabilities of this machine, and what is missing"),
}

HELP = f"""\
Usage: multihead [--debug] COMMAND [OPTIONS]

A workbench for Transformers.

Commands:
{chr(10).join(f"  {verb:<10}{line}" for verb, (_, line) in VERBS.items())}

Options:
  --debug     show the full traceback of an error (also: MULTIHEAD_DEBUG=1)
  --version   show the version
  --help      show this; multihead COMMAND --help shows a command's options and an example

Exit codes: 0 success, 1 a check or a run failed, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one command and exit with its code."""
    signals.catch_signals()  # before anything that takes time
    try:
        _run(list(sys.argv[1:] if arguments is None else arguments))
    except signals.Stopped:
        signals.end_stopped()
    finally:
        if signals.stopped_by:  # a library's bare `except:` caught it
            signals.end_stopped()
        signals.release_signals()


def _run(arguments: list[str]) -> NoReturn:
    from importlib import import_module

    debug = os.environ.get("MULTIHEAD_DEBUG", "0") not in ("", "0")
    if "--debug" in arguments:  # anywhere: people append it to the command that just failed
        arguments.remove("--debug")
        debug = True
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        print(HELP)
        sys.exit(0 if arguments else 2)
    if arguments[0] == "--version":
        print(f"multihead {__version__}")
        sys.exit(0)

    verb, *rest = arguments
    if verb not in VERBS:
        from difflib import get_close_matches

        close = get_close_matches(verb, VERBS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"commands: {', '.join(VERBS)}"
        _fail(f"unknown command {verb!r}; {hint}", code=2)

    try:
        import_module(VERBS[verb][0]).app(rest, prog_name=f"multihead {verb}")
    except (ValueError, OSError) as error:
        if debug:
            raise
        lines = (" ".join(line.split()) for line in str(error).splitlines())
        _fail("\n  ".join(line for line in lines if line), code=1)
    except ModuleNotFoundError as error:
        extra = _extra_of(error.name or "")
        if debug or extra is None:
            raise
        _fail(f"{error.name} is not installed: pip install 'multihead[{extra}]'", code=1)
    sys.exit(0)


def _extra_of(module: str) -> str | None:
    from multihead.machine.extras import extra_of

    return extra_of(module)


def _fail(message: str, code: int) -> NoReturn:
    print(f"multihead: {message}", file=sys.stderr)
    sys.exit(code)
