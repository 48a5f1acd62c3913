"""The result of every metric: numbers with a unit, a direction and a confidence interval."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Unit = Literal["share", "percent", "correlation", "number"]  # 0 to 1; 0 to 100; -1 to 1; any


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """A confidence interval. nan, nan: no replicate was defined."""

    low: float
    high: float
    level: float = 0.95


@dataclass(frozen=True, slots=True)
class Score:
    """One number. nan: undefined (documented where it can happen); a share of nothing is 0, not nan."""

    value: float
    unit: Unit = "share"
    better: Literal["higher", "lower"] = "higher"
    interval: ConfidenceInterval | None = None
    signature: str | None = None  # how it was computed, where variants exist (sacreBLEU's)

    def __format__(self, form: str) -> str:
        """Format the value and its interval: `f"{score:.2f}"` -> 86.21 [85.55, 86.87]."""
        if self.interval is None:
            return format(self.value, form)
        return f"{self.value:{form}} [{self.interval.low:{form}}, {self.interval.high:{form}}]"


@dataclass(frozen=True, slots=True)
class BootstrapSample:
    """The sample that replicates were drawn from: equal if two systems were weighted on the same samples."""

    seed: int
    replicates: int
    samples: int
    fingerprint: int  # of the sample indices, in any order


class Metric(Protocol):
    """A streaming metric: add batches, merge other processes' metrics, read the result at any time."""

    @property
    def add(self) -> Callable[..., None]:
        """Add batches of gold and predicted; `index`: the samples' numbers in the dataset, the same in every
        process.
        """

    @property
    def bootstrap_sample(self) -> BootstrapSample: ...

    def merge(self, other: Self) -> None:
        """Add everything that `other` counted; `other` is unchanged."""

    def result(self) -> dict[str, Score]: ...

    def replicates(self) -> dict[str, Floats]:
        """Return bootstrap replicates [R] of the entries of `result` with an interval; empty with replicates=0."""


def to_json(value: Any) -> Any:
    """Convert dataclasses, tuples, arrays and dicts of them to JSON values; nan and infinities become None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
