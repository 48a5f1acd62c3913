"""Run files as text: parse with overrides, write in full, compare.

Paths under `data` are relative to the run file's directory; `from`, `out` and paths on the command line are relative to
the current directory. The copy that training writes to `out` has only absolute paths (`pin_paths`), so that it
describes the same run wherever it is started.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from multihead.config.errors import explain
from multihead.config.paths import FILES, check_place, follow_links, names_path, resolve_model, resolve_paths
from multihead.config.run_config import SECTIONS, RunConfig, TaskBlock
from multihead.config.toml import KeyPath, format_toml, line_of
from multihead.tasks.sections import Section

GROW = ("train.epochs", "train.steps")  # the only keys that may change when a run resumes, and only upwards


def read(source: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a run file from its path, or from its text (a string with a line break), with overrides such as
    train.lr=3e-5."""
    if not isinstance(source, str | Path):
        raise ValueError(f"expected the path or the text of a run file, not {type(source).__name__}")
    if isinstance(source, str) and "\n" in source:
        text, file, folder = source, "run file", ""
    else:
        text, file, folder = _text(Path(source)), str(source), os.path.dirname(os.path.abspath(source))
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r" \(at line (\d+), column \d+\)", str(error))
        at, what = (f":{line[1]}", str(error).replace(line[0], "")) if line else ("", str(error))
        raise ValueError(f"{file}{at}: invalid TOML: {what}") from None
    for table in (raw, *_tables(raw.get("tasks"))):
        for data in _tables(table.get("data")):
            data |= {name: resolve_paths(folder, data[name]) for name in FILES if name in data}
            data |= {name: resolve_model(folder, data[name]) for name in ("teacher",) if name in data}
    if "from" in raw:
        raw["from"] = resolve_model(folder, raw["from"])
    overridden = {override.partition("=")[0].replace(" ", "") for override in overrides}
    if len(overridden & set(GROW)) == 1:  # epochs or steps: an override replaces the other key of the file
        for train in _tables(raw.get("train")):
            train.pop("epochs", None)
            train.pop("steps", None)
    if any(override.partition("=")[2] for override in overrides if override.partition("=")[0].strip() == "from"):
        for section in ("tokenizer", "model"):  # likewise: an overriding model brings its own
            raw.pop(section, None)
    for override in overrides:
        _put(raw, override)
    run = _validate(raw, file, text, overrides)
    if folder and "out" not in overridden:
        check_place(Path(source), run)
    return run


def from_task(task: str, **sections: Any) -> RunConfig:
    """Build a run config from keyword sections: from_task("classify", data={"train": "x.csv"},
    from_="path/to/model")."""
    return _validate({"task": task} | {name.rstrip("_"): value for name, value in sections.items()})


def write(run: RunConfig) -> str:
    """Write all keys that are set, as TOML; `read` returns the same run."""
    lines = _format_keys(run, exclude=(*SECTIONS,))
    for part in run.sections:
        lines += ["", f"[{part}]", *_format_keys(getattr(run, part))]
    for block in run.tasks:
        lines += ["", "[[tasks]]", *_format_keys(block, exclude=(*SECTIONS,))]
        for part in _inside(block):
            lines += ["", f"[tasks.{part}]", *_format_keys(getattr(block, part))]
    return "\n".join(lines) + "\n"


def difference(old: RunConfig, new: RunConfig) -> list[str]:
    """Return the settings that prevent a resume: `train.lr: 5e-4 -> 3e-5`. More epochs or steps are allowed, and so are
    another `out`, which is where the old file was, and another spelling of the same path."""
    before, after = dict(_flat(old)), dict(_flat(new))
    lines = []
    for name in dict.fromkeys((*before, *after)):
        a, b = before.get(name), after.get(name)
        grown = name in GROW and a is not None and b is not None and b > a
        same = follow_links(a) == follow_links(b) if names_path(name) else a == b
        if not same and not grown and name != "out":
            lines.append(f"{name}: {format_toml(a)} -> {format_toml(b)}")
    return lines


def set_keys(part: Section) -> dict[str, Any]:
    """Return the keys of a section by their names in the file, without those that are unset."""
    values = {field.alias or name: getattr(part, name) for name, field in type(part).model_fields.items()}
    return {name: value for name, value in values.items() if value is not None and value != ""}


def _format_keys(part: Section, exclude: Sequence[str] = ()) -> list[str]:
    return [f"{name} = {format_toml(value)}" for name, value in set_keys(part).items() if name not in exclude]


def _flat(run: RunConfig) -> Iterator[tuple[str, Any]]:
    tables = [("", run), *((f"{part}.", getattr(run, part)) for part in run.sections)]
    for block in run.tasks:
        name = f"tasks.{block.name}."
        tables += [(name, block), *((f"{name}{part}.", getattr(block, part)) for part in _inside(block))]
    for prefix, table in tables:
        inner = SECTIONS if isinstance(table, RunConfig | TaskBlock) else ()
        yield from ((prefix + name, value) for name, value in set_keys(table).items() if name not in inner)
    if run.tasks:  # their order determines the random initialization
        yield "tasks", [block.name for block in run.tasks]


def _inside(block: TaskBlock) -> list[str]:
    """Return the sections of a block."""
    return ["data", *([block.own_section] if block.own_section else [])]


def _text(path: Path) -> str:
    if path.is_dir():
        hint = f"; did you mean {path / 'run.toml'}?" if (path / "run.toml").exists() else ""
        raise ValueError(f"{path}: is a directory; expected a run file{hint}")
    if not path.exists():
        raise ValueError(f"{path}: no such run file; create one: multihead init TASK > {path}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _tables(value: Any) -> list[dict[str, Any]]:
    """Return the tables in a value that should be one, or a list of them; validation reports anything else."""
    return [table for table in (value if isinstance(value, list) else [value]) if isinstance(table, dict)]


def _put(raw: dict[str, Any], override: str) -> None:
    """Set one dotted key. The value is parsed as TOML, or taken as a string: out=runs/b."""
    name, equals, value = override.partition("=")
    *tables, last = (part.strip() for part in name.split("."))
    if not equals or not all((*tables, last)):
        raise ValueError(f"override {override!r}: write key=value, such as train.lr=3e-5")
    blocks: list[dict[str, Any]] = []
    for part in tables:
        if blocks:  # tasks.NAME.data.train: the block of that name
            named = {block.get("name"): block for block in blocks}
            if part not in named:
                raise ValueError(f"override {override!r}: unknown task {part!r}; known: {_list(named)}")
            raw, blocks = named[part], []
            continue
        table = raw.setdefault(part, {})
        if part == "tasks" and isinstance(table, list):
            blocks = _tables(table)
        elif isinstance(table, dict):
            raw = table
        else:
            raise ValueError(f"override {override!r}: {part} is not a table")
    if blocks:
        raise ValueError(f"override {override!r}: name the task and its key, such as tasks.NAME.weight=2")
    raw[last] = _value(value)


def _list(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names))


def _path(raw: dict[str, Any], key: tuple[str, ...]) -> KeyPath:
    """Replace tasks.NAME by the block's index."""
    names = [block.get("name") for block in _tables(raw.get("tasks"))] if key[0] == "tasks" else []
    return (key[0], names.index(key[1]), *key[2:]) if len(key) > 1 and key[1] in names else key


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    plain = isinstance(parsed["value"], bool | int | float | str | list | dict)  # not a date: out=2026-01-01
    return parsed["value"] if plain and len(parsed) == 1 else text


def _validate(raw: dict[str, Any], file: str = "", text: str = "", overrides: Sequence[str] = ()) -> RunConfig:
    def where(path: KeyPath) -> str:
        line = line_of(text, path)
        for override in overrides:
            key = _path(raw, tuple(part.strip() for part in override.partition("=")[0].split(".")))
            if path[: len(key)] == key or (line is None and path == key[: len(path)]):
                return f"override {override!r}: "
        return f"{file}{f':{line}' if line else ''}: " if file else ""

    try:
        return RunConfig.model_validate(raw)
    except ValidationError as error:
        raise ValueError(explain(error, raw, where)) from None
