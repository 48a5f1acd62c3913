"""TOML features that tomllib lacks: formatting of values, and line numbers of keys."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

BARE = re.compile(r"[A-Za-z0-9_-]+")
HEADER = re.compile(r"\s*(\[\[?)([^\]]+)\]")
KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*'|\s*\.\s*)+?)\s*=""")
PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")

KeyPath = tuple[str | int, ...]  # ("train", "lr"); ("tasks", 0, "data", "train")


def format_toml(value: Any) -> str:
    """Format a value as TOML; "none", which is not TOML, if unset."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():  # 5e-4, not 0.0005
            return f"{Decimal(repr(value)):e}" if 0 < abs(value) < 0.01 else repr(value)
        case str():  # JSON escapes are valid TOML, except for DEL
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(map(format_toml, value))}]"
        case dict():
            pairs = (f"{k if BARE.fullmatch(k) else format_toml(k)} = {format_toml(v)}" for k, v in value.items())
            return f"{{{', '.join(pairs)}}}"
        case _:
            return str(value)


def line_of(text: str, path: KeyPath) -> int | None:
    """Return the line of a key, or of the nearest enclosing table; searched, since tomllib reports no positions."""
    names = [part for part in path if isinstance(part, str)]
    block = next((part for part in path if isinstance(part, int)), None)
    table: list[str] = []
    index, depth, result = -1, 0, None
    for number, line in enumerate(text.split("\n"), 1):
        if header := HEADER.match(line):
            table = _parts(header[2])
            index += header[1] == "[["
            here = table
        elif key := KEY.match(line):
            here = table + _parts(key[1])
        else:
            continue
        shared = next(
            (i for i, pair in enumerate(zip(here, names, strict=False)) if pair[0] != pair[1]),
            min(len(here), len(names)),
        )
        if shared > depth and (block is None or table[:1] != names[:1] or index == block):
            depth, result = shared, number
    return result


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in PART.findall(dotted)]
