"""Statistics of one split (train, valid or test) in bounded memory: hashes and counts, no texts.

28 bytes per row, and at most 40 MB for passages; at ten million rows two different texts share a hash with a
probability of 3 in a million.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multihead.data.overlap import NgramSet
from multihead.data.readers.record import Record
from multihead.data.readers.tag_schemes import split_tag
from multihead.data.splits import fold_text, is_valid
from multihead.tasks.spec import SPECS

TOGETHER = (("tokens",), ("source",), ("context",), ("text",), ("text_a", "text_b"), ("conversation",))
MOST_LABELS = 10_000  # distinct labels that are counted
# UTF-8 read as latin-1 or cp1252 ("Ã©", "â€™", "ä¸­"), and what GBK makes of U+FFFD
MOJIBAKE = re.compile("[ÃÂ][\u0080-\u00bf]|â(?:€.|\u0080.)|ï¿½|[äåæçèé][\u0080-\u00bf]{2}|锟斤拷|烫烫烫|ï»¿")
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")


def input_text(values: Mapping[str, Any], roles: Iterable[str]) -> str:
    """Return an example's input as one string."""
    parts = (values[role] for role in (("conversation",) if "conversation" in values else roles))
    return "\x1f".join(part if isinstance(part, str) else " ".join(map(_part_text, part)) for part in parts)


def _part_text(part: Any) -> str:
    return f"{part['role']}: {part['content']}" if isinstance(part, Mapping) else str(part)


def split_key(values: Mapping[str, Any]) -> str:
    """Return the text that decides on the split of an example: equal inputs, or questions on one text, stay
    together.
    """
    return input_text(values, next((roles for roles in TOGETHER if roles[0] in values), ()))


def row_labels(value: Any, task: str) -> list[str]:
    """Return the labels of one example: entity types for tags, the members of a multi-label list, else the label."""
    if SPECS[task].tags_words:
        return sorted({split_tag(tag)[1] or tag for tag in value if tag != "O"})
    return [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


@dataclass(slots=True)
class SplitStatistics:
    """The result of `collect_statistics`. Positions in the arrays are the order of the rows."""

    name: str
    task: str
    scores: bool | None = None  # whether labels are numbers on a scale; None: decided from the labels
    rows: int = 0
    exact: array[int] = field(default_factory=lambda: array("Q"))
    loose: array[int] = field(default_factory=lambda: array("Q"))  # of the folded text
    answer: array[int] = field(default_factory=lambda: array("Q"))  # of the label or the written text
    labels: Counter[str] = field(default_factory=Counter)
    first: dict[str, tuple[str, int]] = field(default_factory=dict)  # label -> file and line of its first occurrence
    many: bool = False  # more labels than are counted
    faulty: int = 0
    faults: list[tuple[str, int, str]] = field(default_factory=list)  # file, line, what
    passages: NgramSet = field(default_factory=NgramSet)
    held: NgramSet = field(default_factory=NgramSet)  # of the examples held out of train where there is no valid file

    def column(self, name: str) -> NDArray[np.uint64]:
        return np.frombuffer(getattr(self, name), dtype=np.uint64) if self.rows else np.empty(0, np.uint64)

    @property
    def is_continuous(self) -> bool:
        """Whether the labels are numbers on a scale rather than classes, which only some tasks support."""
        if self.scores is not None:
            return self.scores
        numbers = SPECS[self.task].numeric_labels and all(NUMBER.fullmatch(label) for label in self.labels)
        return numbers and (self.many or len(self.labels) > 20 or any("." in label for label in self.labels))


def collect_statistics(name: str, rows: Iterable[Record], task: str, scores: bool | None = None) -> SplitStatistics:
    """Read one split once and return its statistics."""
    inputs, label_role = SPECS[task].text_columns, SPECS[task].label
    side = SplitStatistics(name, task, scores)
    for record in rows:
        values = record.values
        text = input_text(values, inputs)
        side.rows += 1
        side.exact.append(_hash(text))
        side.loose.append(_hash(fold_text(text)))
        label = values.get(label_role) if label_role else values.get("target", values.get("answers"))
        side.answer.append(_hash(repr(label)))
        if label_role and label is not None:
            _count(side, row_labels(label, task), record)
        if "\ufffd" in text or MOJIBAKE.search(text):
            side.faulty += 1
            if len(side.faults) < 5:
                side.faults.append((record.file, record.line, _around(text)))
        if "of" not in values:  # the end of a single long document is held out
            out = name == "train" and is_valid(split_key(values))
            (side.held if out else side.passages).add(text)
    return side


def _count(side: SplitStatistics, labels: list[str], record: Record) -> None:
    for label in labels:
        if label in side.labels or len(side.labels) < MOST_LABELS:
            side.labels[label] += 1
            side.first.setdefault(label, (record.file, record.line))
        else:
            side.many = True


def _around(text: str) -> str:
    match = re.search("\ufffd", text) or MOJIBAKE.search(text)
    at = match.start() if match else 0
    return text[max(0, at - 20) : at + 20]
