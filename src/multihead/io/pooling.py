"""How the vectors of a sentence-transformers model were pooled in training, as its directory says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from multihead.io.files import read_json

Pooling = Literal["first", "mean", ""]  # "": not said, or another kind
# The modes of sentence-transformers that a classifier here has too; beside others, whose vectors are joined, the mean.
MODES: dict[str, Pooling] = {"mean": "mean", "mean_tokens": "mean", "cls": "first", "cls_token": "first"}
PREFIX = "pooling_mode_"


def read_pooling(directory: Path) -> Pooling:
    """Return how the vectors of a model are pooled, by the config.json of its module N_Pooling.

    Raises:
        ValueError: if the file is not JSON, or a mode in it is neither true nor false.
    """
    file = next(iter(sorted(directory.glob("[0-9]*_Pooling/config.json"))), None)
    if file is None:
        return ""
    named = {MODES[mode] for mode in list_modes(read_json(file), file) if mode in MODES}
    return "mean" if "mean" in named else "first" if "first" in named else ""


def list_modes(config: dict[str, Any], file: Path) -> list[str]:
    """Return the modes that are on: flags named pooling_mode_…, or in newer files pooling_mode, a name or several."""
    flags = {key.removeprefix(PREFIX): flag for key, flag in config.items() if key.startswith(PREFIX)}
    for mode, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"{file}: {PREFIX}{mode[:80]} is neither true nor false; mend it or fetch it again")
    names = config.get("pooling_mode", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{file}: pooling_mode is no name of a mode, such as mean or cls; mend it or fetch it again")
    return [mode for mode, flag in flags.items() if flag] + names
