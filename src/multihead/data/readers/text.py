"""Formats of one row per line: plain text, `text TAB label`, `sentence@label`, `label text`, pairs, parallel files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from multihead.data.readers.columns import find_fault, pick_columns
from multihead.data.readers.headers import HEADER_WORDS
from multihead.data.readers.lines import count_lines, iterate_lines
from multihead.data.readers.record import FileFacts, ReadOptions, Record, RejectedRow, Row


def read_plain_text(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Yield every line as a text."""
    roles = pick_columns(options.columns, ["text"], f"{path}:1")
    facts.update(columns=roles)
    for line, text in iterate_lines(path, options.encoding):
        if not text.strip():
            yield RejectedRow(str(path), line, "an empty line", "empty line")
        else:
            yield _make_record(dict.fromkeys(roles, text), path, line)


def read_labeled(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Read `text TAB label` or `sentence@label`: split at the last delimiter; a text may hold @ but no tab."""
    first = next((text for _, text in iterate_lines(path, options.encoding) if text.strip()), "")
    delimiter = options.delimiter or ("\t" if "\t" in first else "@")
    delimiter = {"tab": "\t", "comma": ","}.get(delimiter, delimiter)
    roles = pick_columns(options.columns, ["text", "label"], f"{path}:1")
    _check_no_header(first.split(delimiter), path)
    facts.update(delimiter=delimiter, columns=roles)
    for line, row in iterate_lines(path, options.encoding):
        text, mark, label = row.rpartition(delimiter)
        if not row.strip():
            yield RejectedRow(str(path), line, "an empty line", "empty line")
        elif not mark or (delimiter == "\t" and "\t" in text):
            reason = f"{row.count(delimiter) + 1} fields instead of 2 (text{delimiter!r}label)"
            yield RejectedRow(str(path), line, reason, "wrong number of fields")
        else:
            values = {"text": text, "label": label.strip()}
            yield _make_record({role: values[name] for role, name in roles.items()}, path, line)


def read_label_first(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Read `label text`, as in TREC and fastText (`__label__x text`); `coarse` is the label before its first colon."""
    first = next((text for _, text in iterate_lines(path, options.encoding) if text.strip()), "")
    delimiter = options.delimiter or ("\t" if "\t" in first else " ")
    delimiter = {"tab": "\t", "space": " "}.get(delimiter, delimiter)
    roles = pick_columns(options.columns, ["label", "text", "coarse"], f"{path}:1")
    facts.update(delimiter=delimiter, columns=roles)
    for line, row in iterate_lines(path, options.encoding):
        label, mark, text = row.partition(delimiter)
        label = label.strip().removeprefix("__label__")
        if not row.strip():
            yield RejectedRow(str(path), line, "an empty line", "empty line")
        elif not mark:
            yield RejectedRow(
                str(path), line, f"1 field instead of 2 (label{delimiter!r}text)", "wrong number of fields"
            )
        else:
            values = {"label": label, "text": text, "coarse": label.partition(":")[0]}
            yield _make_record({role: values[name] for role, name in roles.items()}, path, line)


def read_pairs(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Read `source TAB target`; further columns are named by their number ("3": the attribution of Tatoeba)."""
    first = next((text for _, text in iterate_lines(path, options.encoding) if text.strip()), "")
    width = first.count("\t") + 1
    names = ["source", "target", *(str(i + 3) for i in range(width - 2))]
    roles = pick_columns(options.columns, names, f"{path}:1")
    _check_no_header(first.split("\t"), path)
    facts.update(delimiter="\t", columns=roles)
    for line, row in iterate_lines(path, options.encoding):
        cells = row.split("\t")
        if not row.strip():
            yield RejectedRow(str(path), line, "an empty line", "empty line")
        elif len(cells) != width or width < 2:
            reason = f"{len(cells)} fields instead of {max(width, 2)}, cut at tabs"
            yield RejectedRow(str(path), line, reason, "wrong number of fields")
        else:
            values = dict(zip(names, cells, strict=True))
            yield _make_record({role: values[name] for role, name in roles.items()}, path, line)


def read_parallel(paths: tuple[Path, Path], options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Read two files: line n of the first is the source of line n of the second. Different lengths raise before the
    first row.
    """
    counts = [count_lines(path, options.encoding) for path in paths]
    if counts[0] != counts[1]:
        short, long = sorted(range(2), key=lambda i: counts[i])
        raise ValueError(
            f"{paths[long]}:{counts[short] + 1}: the first line without a partner: {paths[short]} has "
            f"{counts[short]:,} lines, {paths[long]} has {counts[long]:,}; align the files line by line"
        )
    roles = pick_columns(options.columns, ["source", "target"], f"{paths[0]}:1")
    facts.update(columns=roles, partner=str(paths[1]))
    file_of = dict(zip(("source", "target"), paths, strict=True))
    streams = (iterate_lines(path, options.encoding) for path in paths)
    for (line, source), (_, target) in zip(*streams, strict=True):
        if not source.strip() and not target.strip():
            yield RejectedRow(str(paths[0]), line, "an empty line in both files", "empty line")
            continue
        values = {"source": source, "target": target}
        row = _make_record({role: values[name] for role, name in roles.items()}, paths[0], line)
        if isinstance(row, RejectedRow):
            name = next(name for role, name in roles.items() if find_fault({role: values[name]}))
            row = replace(row, file=str(file_of[name]))  # the one of the two that is at fault
        yield row


def _check_no_header(cells: list[str], path: Path) -> None:
    """Raise ValueError for a header, which these formats do not have and which would become an example."""
    if len(cells) > 1 and all(cell.strip().casefold() in HEADER_WORDS for cell in cells):
        raise ValueError(f"{path}:1: the first line is a header, which this format does not have; leave the format out")


def _make_record(values: dict[str, str], path: Path, line: int) -> Row:
    if fault := find_fault(values):
        return RejectedRow(str(path), line, fault[1], fault[0])
    return Record(dict(values), str(path), line)


def looks_labeled(path: Path, encoding: str) -> bool:
    """Return whether every line ends in `@label`, with few labels of one word."""
    head = [text for _, text in islice(iterate_lines(path, encoding), 200) if text.strip()]
    labels = {text.rpartition("@")[2].strip() for text in head}
    return all("@" in text for text in head) and len(labels) <= 20 and all(label.isidentifier() for label in labels)
