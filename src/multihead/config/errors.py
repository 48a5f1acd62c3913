"""Error messages for run files: the place, the key, its value, and what was expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from multihead.config.run_config import SECTIONS, RunConfig
from multihead.config.toml import KeyPath, format_toml
from multihead.tasks.sections import Section

FOREIGN = {  # names of our keys in other tools
    "learning_rate": "train.lr",
    "batch_size": "train.batch_tokens",
    "max_steps": "train.steps",
    "max_grad_norm": "train.clip",
    "label_smoothing": "train.smoothing",
    "output_dir": "out",
}
EXPECTED = {  # by pydantic's error type
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text in quotes",
    "string_too_short": "a text that is not empty",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "string_pattern_mismatch": "a name of letters, digits, - and _",
}
LIMITS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
SHOWN = 60  # characters shown of a wrong value


def explain(error: ValidationError, raw: Mapping[str, Any], where: Callable[[KeyPath], str]) -> str:
    """Return one line for each wrong key; `where` returns the prefix of the line."""
    lines: dict[KeyPath, str] = {}
    expected: dict[KeyPath, list[str]] = {}  # a union-typed key has one fault per type
    for fault in error.errors(include_url=False):
        place: KeyPath = fault["loc"]
        if fault["type"] == "value_error":  # our own validators: the message starts with the key
            key, _, rest = str(fault["ctx"]["error"]).partition(" ")
            path = place if key == "it" or place[-1:] == (key,) else (*place, *key.split("."))
            lines[path] = f"{format_path(path)} {rest}"
        elif fault["type"] == "extra_forbidden":
            lines[place] = f"unknown key {format_path(place)}; {suggestion(place)}"
        elif fault["type"] == "missing":
            lines[place] = f"{format_path(place)} is missing"
        else:
            path, value = _known_part(place, raw)
            item = f" (item {place[-1]})" if len(place) > len(path) + 1 else ""  # inside a list or table of a union
            expected.setdefault(path, []).append(_expected_value(fault, path) + item)
            shown = format_toml(value) if len(format_toml(value)) <= SHOWN else f"{format_toml(value)[:SHOWN]} …"
            lines[path] = f"{format_path(path)} is {shown}; expected {' or '.join(dict.fromkeys(expected[path]))}"
    return "\n".join(where(path) + line for path, line in lines.items())


def format_path(path: KeyPath) -> str:
    """Format a key path: train.lr; tasks[0].data.train."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def suggestion(path: KeyPath) -> str:
    """Suggest a known key for an unknown one: from the same table, or another one."""
    table: type[Section] = RunConfig
    for part in path[:-1]:
        table = SECTIONS.get(str(part), table)
    name = str(path[-1])
    here = _names(table)
    everywhere = [f"{section}.{key}" for section, section_class in SECTIONS.items() for key in _names(section_class)]
    elsewhere = [key for key in (*_names(RunConfig), *everywhere) if key.rpartition(".")[2] == name]
    near = [FOREIGN[name]] if name in FOREIGN else elsewhere or get_close_matches(name, here, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(here)}"


def _names(table: type[Section]) -> list[str]:
    return [field.alias or name for name, field in table.model_fields.items()]


def _known_part(place: KeyPath, raw: Any) -> tuple[KeyPath, Any]:
    """Strip pydantic's names of union branches, which are not keys; return the path and the value there."""
    for depth, part in enumerate(place):
        inside = part in raw if isinstance(raw, Mapping) else isinstance(raw, list | tuple) and isinstance(part, int)
        if not inside:
            return place[:depth], raw
        raw = raw[part]
    return place, raw


def _expected_value(fault: Mapping[str, Any], path: KeyPath) -> str:
    context = fault.get("ctx", {})
    for sign in LIMITS:
        if sign in context:
            return _range(sign, context[sign], path)
    return str(context.get("expected") or EXPECTED.get(fault["type"], fault["msg"]))


def _range(sign: str, limit: float, path: KeyPath) -> str:
    """Return both ends of the range that a limit belongs to: at least 1 and at most 1024."""
    table: type[Section] = RunConfig
    names = [str(part) for part in path if not isinstance(part, int)]
    for name in names[:-1]:
        table = SECTIONS.get(name, table)
    field = table.model_fields.get(names[-1])
    groups = [] if field is None else [field.metadata, *_nested_annotations(field.annotation)]
    limits = next((group for group in map(_limits, groups) if group.get(sign) == limit), {sign: limit})
    return " and ".join(f"{LIMITS[name]} {_number(value)}" for name, value in limits.items())


def _nested_annotations(kind: Any) -> Iterator[list[Any]]:
    """Yield the annotations inside a type: of each branch of a union, of the items of a list or table."""
    inner = get_args(kind)
    if get_origin(kind) is Annotated:
        yield [limit for part in inner[1:] for limit in (part.metadata if isinstance(part, FieldInfo) else [part])]
    for part in inner:
        yield from _nested_annotations(part)


def _limits(annotations: Sequence[Any]) -> dict[str, float]:
    return {sign: getattr(part, sign) for sign in LIMITS for part in annotations if hasattr(part, sign)}


def _number(value: float) -> str:
    return format_toml(int(value)) if value == int(value) else format_toml(value)
