"""What every reader yields: a row that is used, a row that is refused with its place, or a repair that is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

LISTED = 100  # rejects kept in full; all of them are counted


@dataclass(frozen=True, slots=True)
class Record:
    """One row: its values by role or column name, and where it stands."""

    values: dict[str, Any]
    file: str
    line: int

    @property
    def placed(self) -> dict[str, Any]:
        """The values, with where they stand."""
        return {**self.values, "file": self.file, "line": self.line}


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that is not used. `code` groups equal faults; `reason` says what is wrong here."""

    file: str
    line: int
    reason: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class RepairedRow:
    """Something tolerated in a row that is used: told, never hidden. It is not a row of its own."""

    file: str
    line: int
    reason: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


Row = Record | RejectedRow | RepairedRow


@dataclass(slots=True)
class RowIssues(Sequence[RejectedRow | RepairedRow]):
    """The first hundred faults in full (they are what indexing and iterating show), and counts of all of them."""

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
    """What the caller knows about a file. None: look at the file."""

    columns: Mapping[str, str] | None = None  # role -> the file's column name, or its number from 1
    encoding: str = "utf-8"
    delimiter: str | None = None
    header: bool | None = None
    quoting: bool | None = None
    scheme: str | None = None  # IOB1, BIO, BILOU, BMES, plain
    gold: bool = True  # False: questions are to be answered, and need no answers


FileFacts = dict[str, Any]  # what a reader saw in a file: format, delimiter, header, columns, scheme …
