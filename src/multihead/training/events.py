"""Events that the training loop yields."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from multihead.metrics import Score
from multihead.training.loop import StepRecord


@dataclass(frozen=True)
class Resumed:
    step: int
    notes: list[str]  # faults of newer checkpoints


@dataclass(frozen=True)
class Evaluated:
    step: int
    scores: dict[str, Score]
    main: str
    best: bool
    mean_of: tuple[int, ...] = ()  # averaged checkpoints, instead of this step's weights
    mains: tuple[str, ...] = ()  # multi-task: the scores whose mean is the main score

    @property
    def what(self) -> str:
        return f"mean of steps {', '.join(map(str, self.mean_of))}" if self.mean_of else f"step {self.step}"


@dataclass(frozen=True)
class Saved:
    step: int
    path: Path


@dataclass(frozen=True)
class Note:
    """A decision that depends on the machine or the files, reported once."""

    text: str


Event = StepRecord | Resumed | Evaluated | Saved | Note


def format_duration(seconds: float) -> str:
    """Format a duration: less than a minute, about 12 min, about 3 h 05 min."""
    minutes = round(seconds / 60)
    if not minutes:
        return "less than a minute"
    return f"about {minutes} min" if minutes < 60 else f"about {minutes // 60} h {minutes % 60:02d} min"
