"""Data validation before training: issues that would spoil a run or its scores.

| code | level |
|---|---|
| nothing usable | stop |
| rejected rows, broken tags | stop above 10 % of the rows, else warn |
| unseen labels: in valid or test, never in train | stop |
| overlap: valid or test inputs that occur in train, exactly or up to case and space | stop above 20 %, else warn |
| overlap with inputs that a teacher labels | warn |
| shared passages: valid or test, or held-out examples, have more than half of their 5-grams in train | warn |
| label conflicts: equal inputs, different labels | warn (a note where labels are numbers on a scale) |
| encoding: U+FFFD, UTF-8 read as latin-1, 锟斤拷 | warn |
| duplicates: equal input and label, more than 10 % | warn, else note |
| labels alike: up to case and space | warn |
| labels missing: classes named NaN, N/A, null and similar | warn |
| imbalance: a class of fewer than 10 rows, or 50 times rarer than the most common | warn |
| empty rows; tolerated slips (I- after O) | note |
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multihead.data.overlap import NgramSet
from multihead.data.readers.read import DataReader
from multihead.data.readers.record import Record, RowIssues
from multihead.data.split_statistics import SplitStatistics, collect_statistics, input_text
from multihead.data.splits import fold_text
from multihead.tasks.spec import SPECS

REJECTED, OVERLAP, DUPLICATES = 0.1, 0.2, 0.1
FEW, RARE = 10, 50
SHOWN = 3
LEVELS = ("stop", "warn", "note")
# Spellings of a missing value; lower-case "none" is more often a class.
MISSING = re.compile("nan|n/a|#n/a|<na>|null|(?-i:None|NA)", re.IGNORECASE)
TAG_CODES = ("broken tag sequence", "unknown tag prefix", "I- opens an entity", "empty tag", "empty token")


@dataclass(frozen=True, slots=True)
class DataIssue:
    """One issue; `examples` are places with the beginning of the text: file:line: text."""

    level: str
    code: str
    message: str
    file: str | None = None
    line: int | None = None
    examples: tuple[str, ...] = ()
    rows: tuple[tuple[str, int], ...] = ()  # (side, row number) of the examples, until their texts are fetched


def check(
    train: Iterable[Record],
    valid: Iterable[Record] | None = None,
    test: Iterable[Record] | None = None,
    *,
    task: str,
    hold_out: bool = True,
    scores: bool | None = None,
    unlabelled: Iterable[Record] | None = None,
) -> list[DataIssue]:
    """Return the issues, most severe first. Each split is read once, and once more where examples are shown.

    scores: labels are numbers on a scale, or classes; None: decided from the labels.
    unlabelled: inputs that a teacher labels.
    """
    if task not in SPECS:
        raise ValueError(f"unknown task {task!r}; use one of: {', '.join(SPECS)}")
    named = {"train": train, "valid": valid, "test": test, "unlabelled": unlabelled}
    splits = {name: rows for name, rows in named.items() if rows is not None}
    sides, findings = {}, []
    for name, rows in splits.items():
        sides[name] = collect_statistics(name, rows, task, scores)
        findings += _reader_issues(sides[name], rows) + _check_split(sides[name])
    for name in ("valid", "test"):
        if name in sides:
            findings += _find_unseen_labels(sides["train"], sides[name]) + _overlap(sides["train"], sides[name])
            findings += _passages(sides[name].passages, name, sides["train"].passages, sides["train"].held)
            if "unlabelled" in sides:  # soft labels of a teacher on evaluation inputs are leakage too
                overlaps = _overlap(sides["unlabelled"], sides[name])
                findings += [replace(finding, level="warn") for finding in overlaps]
    if "valid" not in sides and hold_out:
        findings += _passages(sides["train"].held, "the tenth of train that is held out", sides["train"].passages)
    if "valid" in sides and "test" in sides:
        findings += _overlap(sides["valid"], sides["test"])
    findings = _with_examples(findings, splits, task)
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def find_rejected(name: str, rows: DataReader) -> list[DataIssue]:
    """Return the rows that the reader rejected, after all rows were read; training stops at the same level as
    `check`.
    """
    findings = []
    for code, count in rows.rejected.reasons.items():
        level = "note" if code == "empty line" else "stop" if count > REJECTED * rows.rows else "warn"
        kind = "broken tags" if code in TAG_CODES else "empty rows" if "empty" in code else "rejected rows"
        message = f"{name}: {count:,} of {rows.rows:,} rows are not used: {code}"
        findings.append(_add_places(DataIssue(level, kind, message), rows.rejected, code))
    return findings


def raise_rejected(name: str, rows: DataReader) -> None:
    """Raise ValueError where so many rows were rejected that `check` stops; all rows must have been read."""
    stop = next((finding for finding in find_rejected(name, rows) if finding.level == "stop"), None)
    if stop is not None:
        first = f"; the first: {stop.examples[0]}" if stop.examples else ""
        raise ValueError(f"{stop.message}{first}; fix or remove the rows (multihead check lists them)")


def _reader_issues(side: SplitStatistics, rows: Iterable[Record]) -> list[DataIssue]:
    """Return what the reader rejected or tolerated."""
    findings = []
    if isinstance(rows, DataReader):
        findings += find_rejected(side.name, rows)
        for code, count in rows.repaired.reasons.items():
            name = "broken tags" if code in TAG_CODES else "tolerated"
            findings.append(
                _add_places(DataIssue("note", name, f"{side.name}: {count:,} × {code}"), rows.repaired, code)
            )
    if not side.rows:
        findings.append(DataIssue("stop", "nothing usable", f"{side.name}: not one usable row"))
    return findings


def _add_places(finding: DataIssue, ledger: RowIssues, code: str) -> DataIssue:
    """Return the finding with the places of this code that the ledger still lists."""
    faults = [fault for fault in ledger if fault.code == code][:SHOWN]
    if not faults:
        return finding
    return replace(finding, file=faults[0].file, line=faults[0].line, examples=tuple(map(str, faults)))


def _check_split(side: SplitStatistics) -> list[DataIssue]:
    """Return the issues of one split by itself."""
    findings = []
    if side.faulty:
        file, line, _ = side.faults[0]
        examples = tuple(f"{file}:{line}: {text}" for file, line, text in side.faults)[:SHOWN]
        message = f"{side.name}: {side.faulty:,} rows with broken characters; read the source with its own encoding"
        findings.append(DataIssue("warn", "encoding", message, file, line, examples))
    findings += _find_repeats(side) + _find_similar_labels(side) + _find_missing_labels(side)
    if side.name == "train" and side.labels and not side.is_continuous:
        findings += _imbalance(side)
    return findings


def _find_repeats(side: SplitStatistics) -> list[DataIssue]:
    """Find equal inputs: duplicates with equal labels, conflicts with different ones."""
    if not side.rows:
        return []
    findings = []
    loose, answer = side.column("loose"), side.column("answer")
    order = np.lexsort((answer, loose))
    same_text = loose[order][1:] == loose[order][:-1]
    same_label = answer[order][1:] == answer[order][:-1]
    copies = order[1:][same_text & same_label]
    if len(copies):
        share = len(copies) / side.rows
        message = f"{side.name}: {len(copies):,} rows ({share:.1%}) repeat an earlier one"
        rows = tuple((side.name, int(row)) for row in np.sort(copies)[:SHOWN])
        findings.append(DataIssue("warn" if share > DUPLICATES else "note", "duplicates", message, rows=rows))
    clashes = np.flatnonzero(same_text & ~same_label)
    if len(clashes) and side.labels:
        texts = len(np.unique(loose[order][clashes]))
        message = f"{side.name}: {texts:,} inputs have different labels"
        rows = tuple((side.name, int(order[i + step])) for i in clashes[:SHOWN] for step in (0, 1))
        level = "note" if side.is_continuous else "warn"
        findings.append(DataIssue(level, "label conflicts", message, rows=rows))
    return findings


def _find_similar_labels(side: SplitStatistics) -> list[DataIssue]:
    """Find labels that differ only in spelling: Good and good."""
    named: dict[str, list[str]] = {}
    for label in side.labels:
        named.setdefault(fold_text(label), []).append(label)
    alike = [sorted(labels) for labels in named.values() if len(labels) > 1]
    if not alike:
        return []
    shown = "; ".join(", ".join(map(repr, labels)) for labels in alike[:SHOWN])
    file, line = max(side.first[label] for label in alike[0])
    message = f"{side.name}: {len(alike):,} labels have several spellings, which are separate classes: {shown}"
    return [DataIssue("warn", "labels alike", message, file, line)]


def _find_missing_labels(side: SplitStatistics) -> list[DataIssue]:
    """Find labels that may mean a missing value; a class can have such a name, and the rows are used."""
    named = {label: n for label, n in side.labels.items() if MISSING.fullmatch(label)}
    if not named or SPECS[side.task].tags_words:
        return []
    file, line = side.first[next(iter(named))]
    shown = ", ".join(f"{label!r} ({count:,} rows)" for label, count in named.items())
    message = f"{side.name}: {shown} may mean a missing label, but is used as a class; remove such rows"
    return [DataIssue("warn", "labels missing", message, file, line)]


def _imbalance(side: SplitStatistics) -> list[DataIssue]:
    most, least = side.labels.most_common(1)[0], min(side.labels.items(), key=lambda item: item[1])
    rare = [label for label, count in side.labels.items() if count < FEW or count * RARE < most[1]]
    if len(side.labels) == 1 and not SPECS[side.task].tags_words:  # one entity type is a task of its own
        return [DataIssue("warn", "imbalance", f"train: every row has the label {most[0]!r}")]
    if not rare:
        return []
    message = (
        f"train: {len(rare)} of {len(side.labels)} classes are rare; {least[0]!r} has {least[1]:,} rows, "
        f"{most[0]!r} {most[1]:,}; weigh the classes or gather more"
    )
    file, line = side.first[least[0]]
    return [DataIssue("warn", "imbalance", message, file, line, tuple(rare[:SHOWN]))]


def _find_unseen_labels(train: SplitStatistics, side: SplitStatistics) -> list[DataIssue]:
    if train.is_continuous or train.many:
        return []
    unseen = Counter({label: count for label, count in side.labels.items() if label not in train.labels})
    if not unseen:
        return []
    shown = ", ".join(f"{label!r} ({count:,})" for label, count in unseen.most_common(20))
    file, line = side.first[next(iter(unseen))]
    message = f"{side.name}: labels that do not occur in train: {shown}; train has {', '.join(list(train.labels)[:20])}"
    return [DataIssue("stop", "unseen labels", message, file, line)]


def _overlap(known: SplitStatistics, side: SplitStatistics) -> list[DataIssue]:
    """Find inputs of `side` that occur in `known`."""
    if not side.rows or not known.rows:
        return []
    exact: NDArray[np.bool_] = np.isin(side.column("exact"), known.column("exact"))
    loose: NDArray[np.bool_] = np.isin(side.column("loose"), known.column("loose"))
    if not loose.any():
        return []
    share = loose.mean()
    message = (
        f"{side.name}: {int(loose.sum()):,} of {side.rows:,} inputs ({share:.1%}) also occur in {known.name}: "
        f"{int(exact.sum()):,} exactly, {int((loose & ~exact).sum()):,} up to case and white space"
    )
    rows = tuple((side.name, int(row)) for row in np.flatnonzero(loose)[:SHOWN])
    return [DataIssue("stop" if share > OVERLAP else "warn", "overlap", message, rows=rows)]


def _passages(side: NgramSet, name: str, *known: NgramSet) -> list[DataIssue]:
    message = side.warning(name, *known)
    return [DataIssue("warn", "shared passages", message)] if message else []


def _with_examples(findings: list[DataIssue], splits: dict[str, Iterable[Record]], task: str) -> list[DataIssue]:
    """Read the splits again, only as far as needed for the examples to show."""
    selected = {row for finding in findings for row in finding.rows}
    records: dict[tuple[str, int], Record] = {}
    for name, rows in splits.items():
        last = max((row for side, row in selected if side == name), default=-1)
        counts = (rows.used, rows.rejected, rows.repaired) if isinstance(rows, DataReader) else None
        for row, record in enumerate(rows if last >= 0 else ()):
            if (name, row) in selected:
                records[name, row] = record
            if row == last:
                break
        if isinstance(rows, DataReader) and counts is not None:  # the counts of the full pass, not of this one
            rows.used, rows.rejected, rows.repaired = counts
    return [
        _add_examples(finding, [records[row] for row in finding.rows if row in records], task) for finding in findings
    ]


def _add_examples(finding: DataIssue, records: list[Record], task: str) -> DataIssue:
    if not records:  # none needed, or an iterator that cannot be read again
        return replace(finding, rows=())
    inputs, label = SPECS[task].text_columns, SPECS[task].label
    examples = []
    for record in records:
        answer = f" -> {record.values.get(label)}"[:60] if label else ""
        text = input_text(record.values, inputs).replace("\x1f", " | ").replace("\n", " ").strip()
        examples.append(f"{record.file}:{record.line}: {text[:80]}{answer}")
    first = records[0]
    return replace(finding, file=first.file, line=first.line, examples=tuple(examples), rows=())
