"""The configuration files of a tokenizer, read with type checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from multihead.io.files import read_json
from multihead.io.type_checks import Range, check_value

Json = dict[str, Any]
NAMES = ("pad", "bos", "eos", "cls", "sep", "mask", "unk")
CONFIG, SPECIAL, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
NUMBER: Range = (0, 2**31 - 1)  # of a token
TOKEN = str | dict[str, Any] | None
TYPES: dict[str, tuple[Any, Range | None]] = {
    "tokenizer_class": (str | None, None),
    "add_bos_token": (bool | None, None),
    "add_eos_token": (bool | None, None),
    "add_prefix_space": (bool | None, None),
    "do_lower_case": (bool | None, None),
    "tokenize_chinese_chars": (bool | None, None),
    "strip_accents": (bool | None, None),
    "extra_ids": (int | None, (0, 10_000)),
    "chat_template": (str | list[dict[str, Any]] | None, None),
    "added_tokens_decoder": (dict[str, Any] | None, None),
    **{f"{name}_token": (TOKEN, None) for name in NAMES},
}
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


def read_tokenizer_config(directory: Path) -> Json:
    """Return tokenizer_config.json, or {} where there is none."""
    return _read(directory / CONFIG, TYPES)


def read_special_tokens(directory: Path) -> Json:
    """Return special_tokens_map.json, or {} where there is none."""
    return _read(directory / SPECIAL, {name: TYPES[name] for name in TYPES if name.removesuffix("_token") in NAMES})


def read_added_tokens(directory: Path) -> dict[str, int]:
    """Return added_tokens.json, the id of each token, or {} where there is none."""
    path = directory / ADDED
    added = read_json(path) if path.exists() else {}
    for text, number in added.items():
        check_value(f"{path}: {text[:80]!r}", number, int, NUMBER)
    return added


def token_text(value: Any) -> str | None:
    """Return the text of a token that is a string, or an object with its content."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text else None


def _read(path: Path, types: dict[str, tuple[Any, Range | None]]) -> Json:
    config = read_json(path) if path.exists() else {}
    for name, (kind, limits) in types.items():
        check_value(f"{path}: {name}", config.get(name), kind, limits)
        if kind is TOKEN and isinstance(config.get(name), dict):
            check_value(f"{path}: {name}.content", config[name].get("content"), str)
    for number, entry in (config.get("added_tokens_decoder") or {}).items():
        where = f"{path}: added_tokens_decoder.{number[:20]}"
        if not (number.isascii() and number.isdigit() and len(number) <= 10):
            raise ValueError(f"{where}: its key is not a token id; fetch it again")
        check_value(where, entry, dict[str, Any])
        check_value(f"{where}.content", entry.get("content"), str)
        for flag in FLAGS:
            check_value(f"{where}.{flag}", entry.get(flag), bool | None)
    return config
