"""Head usage by task in a multi-task model: gradient importance of each head for each task's loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from multihead.inference import Pipeline
from multihead.pruning.evaluation import encode_rows
from multihead.pruning.gradient_importance import HeadGates
from multihead.tasks import Values

OWNER_RATIO = 2.0  # ratio to every other task above which a head belongs to a task


@dataclass(frozen=True)
class HeadUsage:
    """Head usage. shares: by task, each head's part of the total importance [heads]; they sum to 1."""

    addresses: list[str]
    shares: dict[str, NDArray[np.float64]]

    def owner(self, place: int) -> str | None:
        """Return the task that uses the head at this index far more than the others."""
        first, second = sorted(self.shares, key=lambda task: -self.shares[task][place])[:2]
        most, next_ = self.shares[first][place], self.shares[second][place]
        return first if most > 0 and most >= OWNER_RATIO * next_ else None

    def shared_usage(self) -> dict[tuple[str, str], float]:
        """Return for each pair of tasks the overlap of their usage, 0 to 1."""
        pairs = combinations(self.shares, 2)
        return {(a, b): float(np.minimum(self.shares[a], self.shares[b]).sum()) for a, b in pairs}


def measure_head_usage(tasks: Mapping[str, tuple[Pipeline, Iterable[Values]]]) -> HeadUsage:
    """Measure head usage. tasks: by name, the model loaded for that task, and labeled rows of the task."""
    if len(tasks) < 2:
        raise ValueError(f"{', '.join(tasks) or 'nothing'}: pass at least two tasks to compare")
    importance: dict[str, dict[str, float]] = {}
    for name, (loaded, rows) in tasks.items():
        task, gates = loaded.make_task(), HeadGates(loaded.model)
        gates.measure(task, encode_rows(task, rows))
        importance[name] = gates.heads()
    addresses = list(next(iter(importance.values())))
    worth = {name: np.array([values[address] for address in addresses]) for name, values in importance.items()}
    return HeadUsage(addresses, {name: values / max(values.sum(), 1e-30) for name, values in worth.items()})
