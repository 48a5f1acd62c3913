"""Type and range checks of values from untrusted files.

A type is a Python annotation (`int | None`, `list[int]`, `Literal["a", "b"]`); a range is the smallest and the largest
allowed number, inside lists too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from numbers import Integral, Real
from reprlib import Repr
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

Range = tuple[float, float]

LARGEST = 2**53  # default limit of integers: beyond it JSON readers disagree
FINITE: Range = (-sys.float_info.max, sys.float_info.max)  # neither infinite nor NaN, which no range holds
ABOVE_0 = math.ulp(0.0)  # lower limit of a range that excludes 0
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: "null"}

_shown = Repr()
_shown.maxlevel, _shown.maxstring, _shown.maxother, _shown.maxlong = 2, 60, 60, 40


def check_value(name: str, value: Any, kind: Any, limits: Range | None = None) -> None:
    """Raise a ValueError with the field, its value and what is allowed, unless the value has this type and range."""
    if not is_kind(value, kind, limits):
        raise ValueError(f"{name} is {show(value)}; allowed is {describe(kind, limits)}")


def read_value(source: Mapping[str, Any], name: str, kind: Any, default: Any, limits: Range | None = None) -> Any:
    """Return a checked field of an object; the default where it is missing."""
    value = source.get(name, default)
    check_value(name, value, kind, limits)
    return value


def show(value: Any) -> str:
    """Return a short representation of a value for an error message."""
    return _shown.repr(value)


def is_kind(value: Any, kind: Any, limits: Range | None = None) -> bool:
    """Return whether a value has a type and, for numbers, lies in a range."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(is_kind(value, item, limits) for item in inner)
    if origin is Literal:
        return any(type(value) is type(item) and value == item for item in inner)
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            return False
        if origin is list or inner[-1] is Ellipsis:
            return all(is_kind(item, inner[0], limits) for item in value)
        pairs = zip(value, inner, strict=False)
        return len(value) == len(inner) and all(is_kind(item, part, limits) for item, part in pairs)
    if origin is dict:
        return isinstance(value, Mapping)
    if kind is int:
        least, most = limits or (-LARGEST, LARGEST)
        return isinstance(value, Integral) and not isinstance(value, bool) and least <= value <= most  # type: ignore[operator]
    if kind is float:
        least, most = limits or FINITE
        return isinstance(value, Real) and not isinstance(value, bool) and least <= value <= most  # type: ignore[operator]
    return bool(kind is Any or isinstance(value, NoneType if kind is None else kind))


def describe(kind: Any, limits: Range | None = None) -> str:
    """Return what is allowed, in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(describe(item, limits) for item in inner)
    if origin is Literal:
        return " or ".join(repr(item) for item in inner)
    if origin in (list, tuple):
        parts = inner[:1] if origin is list or inner[-1] is Ellipsis else inner
        count = "a list" if len(parts) == 1 else f"a list of {len(parts)}"
        return f"{count}, each {describe(parts[0], limits)}"
    if kind in (int, float) and limits is not None:
        least, most = (f"{limit:,}" if isinstance(limit, int) else f"{limit:g}" for limit in limits)
        return f"{WORDS[kind]} {f'above 0, at most {most}' if limits[0] == ABOVE_0 else f'from {least} to {most}'}"
    return "an object" if origin is dict else WORDS.get(kind, "null" if kind is None else str(kind))
