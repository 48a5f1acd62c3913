"""Pooling of a sentence-transformers model, as its directory records it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from multihead.io.files import read_json

Pooling = Literal["first", "mean", ""]  # "": not recorded, or another kind
# Modes of sentence-transformers that a classifier here supports; combined with others, whose vectors are joined, the
# mean.
MODES: dict[str, Pooling] = {"mean": "mean", "mean_tokens": "mean", "cls": "first", "cls_token": "first"}
PREFIX = "pooling_mode_"


def read_pooling(directory: Path) -> Pooling:
    """Return the pooling of a model, from the config.json of its N_Pooling module.

    Raises:
        ValueError: the file is not JSON, or a mode in it is neither true nor false.
    """
    file = next(iter(sorted(directory.glob("[0-9]*_Pooling/config.json"))), None)
    if file is None:
        return ""
    named = {MODES[mode] for mode in list_modes(read_json(file), file) if mode in MODES}
    return "mean" if "mean" in named else "first" if "first" in named else ""


def list_modes(config: dict[str, Any], file: Path) -> list[str]:
    """Return the enabled modes: flags named pooling_mode_…, or pooling_mode in newer files, one name or several."""
    flags = {key.removeprefix(PREFIX): flag for key, flag in config.items() if key.startswith(PREFIX)}
    for mode, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"{file}: {PREFIX}{mode[:80]} is neither true nor false; fix it or fetch it again")
    names = config.get("pooling_mode", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"{file}: pooling_mode is not the name of a mode such as mean or cls; fix it or fetch it again"
        )
    return [mode for mode, flag in flags.items() if flag] + names
