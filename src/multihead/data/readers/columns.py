"""Map roles (text, label, source …) to columns of a file, and check the values of a role."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

TEXTS = ("text", "text_a", "text_b", "question", "context", "prompt")  # must be non-empty strings
WRITTEN = ("source", "target")  # strings, or lists of sentences
FILLED = frozenset((*TEXTS, *WRITTEN, "label", "labels", "tokens", "tags"))  # must hold something

Fault = tuple[str, str]  # code, reason


def pick_columns(columns: Mapping[str, str] | None, names: Sequence[str], where: str) -> dict[str, str]:
    """Return role -> column for a file with these column names; without `columns` every column is its own role."""
    if columns is None:
        return {name: name for name in names}
    picked = {}
    for role, column in columns.items():
        if column in names:
            picked[role] = column
        elif column.isdecimal() and 1 <= int(column) <= len(names):
            picked[role] = names[int(column) - 1]
        else:
            raise ValueError(missing_column_error(role, column, names, where))
    return picked


def missing_column_error(role: str, column: str, names: Sequence[str], where: str, numbered: bool = True) -> str:
    """Return the message for a missing column. numbered: the columns have an order, so a number names one too."""
    folded = {name.casefold().strip(): name for name in names}
    near = get_close_matches(column.casefold(), folded, n=1, cutoff=0.5)
    shown = ", ".join(names[:20]) + (" …" if len(names) > 20 else "")
    hint = (
        f'did you mean {role} = "{folded[near[0]]}"?'
        if near
        else f'name one of them: {role} = "…"' + (", or its number from 1" if numbered else "")
    )
    return f"{where}: no column {column!r} for {role}; the file has: {shown}; {hint}"


def find_fault(values: Mapping[str, Any]) -> Fault | None:
    """Return the fault of a row's values, by their roles, or None."""
    for role, value in values.items():
        if isinstance(value, str):  # nearly all of them
            if "\0" in value:
                return "NUL character", f"a NUL character in {role}"
            if role in FILLED and (not value or value.isspace()):
                return f"empty {role}", f"empty {role}"
        elif role in FILLED and (fault := _fault_of_other(role, value)):
            return fault
    return None


def _fault_of_other(role: str, value: Any) -> Fault | None:
    """Return the fault of a value that is not a string, or None."""
    if value is None or (
        role not in ("label", "labels") and _is_blank(value)
    ):  # an empty list of labels may be correct
        return f"empty {role}", f"empty {role}"
    if isinstance(value, float) and math.isnan(value):
        return f"empty {role}", f"{role} is NaN: no value"
    if role in TEXTS:
        return f"{role} is not text", f"{role} is {type_name(value)}; use a string"
    if role in WRITTEN and not is_string_list(value):
        return f"{role} is not text", f"{role} is {type_name(value)}; use a string or a list of strings"
    return _fault_of_label(value) if role == "label" else None


def _is_blank(value: Any) -> bool:
    """Return whether a list holds no word: nothing, or only white space."""
    return is_string_list(value) and not any(item.strip() for item in value)


def _fault_of_label(value: Any) -> Fault | None:
    """Return the fault of a label, or None: a class is a string or a number; several are a list of them."""
    several = isinstance(value, list | tuple)
    for label in value if several else (value,):
        empty = (
            label is None
            or (isinstance(label, float) and math.isnan(label))
            or (isinstance(label, str) and not label.strip())
        )
        if empty or isinstance(label, Mapping | bytes | list | tuple):
            what = "a list with " + ("an empty label" if empty else type_name(label)) if several else type_name(label)
            return "label is no class", f"label is {what}; use a string, a number, or a list of them"
    return None


def is_string_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def type_name(value: Any) -> str:
    kinds = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
        bytes: "bytes",
    }
    return kinds.get(type(value), f"a {type(value).__name__}")
