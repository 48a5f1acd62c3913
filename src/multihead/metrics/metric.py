"""What every score gives back: numbers with a unit, a direction and, where samples were kept count of, an
interval."""

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
    """One number. nan: undefined (said where it can happen); a share of nothing is 0, not nan."""

    value: float
    unit: Unit = "share"
    better: Literal["higher", "lower"] = "higher"
    interval: ConfidenceInterval | None = None
    signature: str | None = None  # how it was counted, where that is not one thing only (sacreBLEU's)

    def __format__(self, form: str) -> str:
        """`f"{score:.2f}"` -> 86.21 [85.55, 86.87]"""
        if self.interval is None:
            return format(self.value, form)
        return f"{self.value:{form}} [{self.interval.low:{form}}, {self.interval.high:{form}}]"


@dataclass(frozen=True, slots=True)
class BootstrapSample:
    """What replicates were drawn from: equal means that two systems were weighted on the same samples."""

    seed: int
    replicates: int
    samples: int
    fingerprint: int  # of the sample indices, in any order


class Metric(Protocol):
    """Streaming: add batches, merge what other processes added, read the result at any time."""

    @property
    def add(self) -> Callable[..., None]:
        """Batches of gold and predicted; `index`: the samples' numbers in the set, as every process counts
        them."""

    @property
    def bootstrap_sample(self) -> BootstrapSample: ...

    def merge(self, other: Self) -> None:
        """As if all that `other` saw had been added here; `other` is left as it is."""

    def result(self) -> dict[str, Score]: ...

    def replicates(self) -> dict[str, Floats]:
        """Bootstrap replicates [R] of the entries of `result` that have an interval; empty with
        replicates=0."""


def to_json(thing: Any) -> Any:
    """Dataclasses, tuples, arrays and dicts of them as JSON values; nan and infinities become None."""
    if is_dataclass(thing) and not isinstance(thing, type):
        return {field.name: to_json(getattr(thing, field.name)) for field in fields(thing)}
    if isinstance(thing, dict):
        return {str(key): to_json(value) for key, value in thing.items()}
    if isinstance(thing, np.ndarray | np.generic):
        return to_json(thing.tolist())
    if isinstance(thing, list | tuple):
        return [to_json(value) for value in thing]
    if isinstance(thing, float) and not math.isfinite(thing):
        return None
    return thing
