"""Values from foreign files, checked against a type and a range before anything is made of them.

A type is a Python annotation (`int | None`, `list[int]`, `Literal["a", "b"]`); a range is the smallest and the largest
number that is allowed, inside lists too.
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

LARGEST = 2**53  # of whole numbers where no range is given: beyond, JSON readers disagree on them
FINITE: Range = (-sys.float_info.max, sys.float_info.max)  # neither infinite nor NaN, which no range holds
ABOVE_0 = math.ulp(0.0)  # the least of a range that begins right above 0
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: "null"}

_shown = Repr()
_shown.maxlevel, _shown.maxstring, _shown.maxother, _shown.maxlong = 2, 60, 60, 40


def check_value(name: str, value: Any, kind: Any, limits: Range | None = None) -> None:
    """Raise a ValueError that names the field, its value and what is allowed, unless the value is of that kind."""
    if not is_kind(value, kind, limits):
        raise ValueError(f"{name} is {show(value)}; allowed is {describe(kind, limits)}")


def read_value(source: Mapping[str, Any], name: str, kind: Any, default: Any, limits: Range | None = None) -> Any:
    """The field of an object, checked; the default where it is missing."""
    value = source.get(name, default)
    check_value(name, value, kind, limits)
    return value


def show(value: Any) -> str:
    """A value in an error: short, however long or deep it is."""
    return _shown.repr(value)


def is_kind(value: Any, kind: Any, limits: Range | None = None) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(is_kind(value, one, limits) for one in inner)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            return False
        if origin is list or inner[-1] is Ellipsis:
            return all(is_kind(one, inner[0], limits) for one in value)
        pairs = zip(value, inner, strict=False)
        return len(value) == len(inner) and all(is_kind(one, part, limits) for one, part in pairs)
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
    """What is allowed, in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(describe(one, limits) for one in inner)
    if origin is Literal:
        return " or ".join(repr(one) for one in inner)
    if origin in (list, tuple):
        parts = inner[:1] if origin is list or inner[-1] is Ellipsis else inner
        count = "a list" if len(parts) == 1 else f"a list of {len(parts)}"
        return f"{count}, each {describe(parts[0], limits)}"
    if kind in (int, float) and limits is not None:
        least, most = (f"{limit:,}" if isinstance(limit, int) else f"{limit:g}" for limit in limits)
        return f"{WORDS[kind]} {f'above 0, at most {most}' if limits[0] == ABOVE_0 else f'from {least} to {most}'}"
    return "an object" if origin is dict else WORDS.get(kind, "null" if kind is None else str(kind))
