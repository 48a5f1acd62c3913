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
class Reject:
    """A row that is not used. `code` groups equal faults; `reason` says what is wrong here."""

    file: str
    line: int
    reason: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Repair:
    """Something tolerated in a row that is used: told, never hidden. It is not a row of its own."""

    file: str
    line: int
    reason: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


Row = Record | Reject | Repair


@dataclass(slots=True)
class Ledger(Sequence[Reject | Repair]):
    """The first hundred faults in full (they are what indexing and iterating show), and counts of all of them."""

    listed: list[Reject | Repair] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, fault: Reject | Repair) -> None:
        self.reasons[fault.code] += 1
        if len(self.listed) < LISTED:
            self.listed.append(fault)

    @property
    def total(self) -> int:
        return self.reasons.total()

    def __len__(self) -> int:
        return len(self.listed)

    @overload
    def __getitem__(self, index: int) -> Reject | Repair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Reject | Repair]: ...
    def __getitem__(self, index: int | slice) -> Reject | Repair | list[Reject | Repair]:
        return self.listed[index]

    def __iter__(self) -> Iterator[Reject | Repair]:
        return iter(self.listed)


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller knows about a file. None: look at the file."""

    columns: Mapping[str, str] | None = None  # role -> the file's column name, or its number from 1
    encoding: str = "utf-8"
    delimiter: str | None = None
    header: bool | None = None
    quoting: bool | None = None
    scheme: str | None = None  # IOB1, BIO, BILOU, BMES, plain
    gold: bool = True  # False: questions are to be answered, and need no answers


Found = dict[str, Any]  # what a reader saw in a file: format, delimiter, header, columns, scheme …
