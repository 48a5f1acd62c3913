"""Which heads each task uses, where several share one trunk: how much its loss hangs on each of them, by gradient."""

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

OWN = 2.0  # times as much as any other task: then a head is this task's


@dataclass(frozen=True)
class HeadUsage:
    """shares: by task, of all that its loss hangs on heads, the part of each [heads]; they sum to 1."""

    addresses: list[str]
    shares: dict[str, NDArray[np.float64]]

    def owner(self, place: int) -> str | None:
        """The task that uses the head at this place far more than the others do."""
        first, second = sorted(self.shares, key=lambda task: -self.shares[task][place])[:2]
        most, next_ = self.shares[first][place], self.shares[second][place]
        return first if most > 0 and most >= OWN * next_ else None

    def shared_usage(self) -> dict[tuple[str, str], float]:
        """By two tasks: how much of what they use is the same, 0 to 1."""
        pairs = combinations(self.shares, 2)
        return {(a, b): float(np.minimum(self.shares[a], self.shares[b]).sum()) for a, b in pairs}


def measure_head_usage(tasks: Mapping[str, tuple[Pipeline, Iterable[Values]]]) -> HeadUsage:
    """By name: the model, opened for one of its tasks, and rows of that task with their answers."""
    if len(tasks) < 2:
        raise ValueError(f"{', '.join(tasks) or 'nothing'}: at least two tasks are compared")
    found: dict[str, dict[str, float]] = {}
    for name, (loaded, rows) in tasks.items():
        task, gates = loaded.make_task(), HeadGates(loaded.model)
        gates.measure(task, encode_rows(task, rows))
        found[name] = gates.heads()
    addresses = list(next(iter(found.values())))
    worth = {name: np.array([mine[address] for address in addresses]) for name, mine in found.items()}
    return HeadUsage(addresses, {name: mine / max(mine.sum(), 1e-30) for name, mine in worth.items()})
