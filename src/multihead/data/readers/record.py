"""The output of every reader: a record, a rejected row with its place, or a reported repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

LISTED = 100  # rejected rows stored in full; all of them are counted


@dataclass(frozen=True, slots=True)
class Record:
    """One row: its values by role or column name, and its place."""

    values: dict[str, Any]
    file: str
    line: int

    @property
    def placed(self) -> dict[str, Any]:
        """The values with their file and line."""
        return {**self.values, "file": self.file, "line": self.line}


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that is not used. `code` groups equal faults; `reason` describes this one."""

    file: str
    line: int
    reason: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class RepairedRow:
    """Something tolerated in a row that is used, and reported. It is not a row of its own."""

    file: str
    line: int
    reason: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


Row = Record | RejectedRow | RepairedRow


@dataclass(slots=True)
class RowIssues(Sequence[RejectedRow | RepairedRow]):
    """The first hundred faults in full (for indexing and iteration), and counts of all of them."""

    listed: list[RejectedRow | RepairedRow] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, fault: RejectedRow | RepairedRow) -> None:
        self.reasons[fault.code] += 1
        if len(self.listed) < LISTED:
            self.listed.append(fault)

    @property
    def total(self) -> int:
        return self.reasons.total()

    def __len__(self) -> int:
        return len(self.listed)

    @overload
    def __getitem__(self, index: int) -> RejectedRow | RepairedRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[RejectedRow | RepairedRow]: ...
    def __getitem__(self, index: int | slice) -> RejectedRow | RepairedRow | list[RejectedRow | RepairedRow]:
        return self.listed[index]

    def __iter__(self) -> Iterator[RejectedRow | RepairedRow]:
        return iter(self.listed)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Known properties of a file. None: detect it."""

    columns: Mapping[str, str] | None = None  # role -> the file's column name, or its number from 1
    encoding: str = "utf-8"
    delimiter: str | None = None
    header: bool | None = None
    quoting: bool | None = None
    scheme: str | None = None  # IOB1, BIO, BILOU, BMES, plain
    gold: bool = True  # False: for prediction, questions need no answers


FileFacts = dict[str, Any]  # detected properties of a file: format, delimiter, header, columns, scheme …
