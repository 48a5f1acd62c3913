"""What heads and feed-forward units give on average. Cut out, they can leave it behind, in the bias of the projection
that they fed: a head that mostly gives the same is then no loss, and the smaller model costs no more for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from multihead.attention import Attended
from multihead.heads.cut import Means
from multihead.heads.judge import Example, work
from multihead.models import Block, Model
from multihead.tasks import Batch, Task
from multihead.watch import attentions


class Averages:
    """Of one model, on all that it reads."""

    def __init__(self, model: Model) -> None:
        self.model, self.attentions = model, attentions(model)
        self.blocks = {m.address: m for m in model.modules() if isinstance(m, Block)}
        self.sums: dict[str, Tensor | float] = {}
        self.counts: dict[str, int] = {}
        self.batch: Batch = {}

    @torch.no_grad()
    def measure(self, task: Task, rows: Sequence[Example]) -> Means:
        """One pass over the rows, as in training."""
        taps = {name: self._tap(name) for name in self.attentions}
        for name, attention in self.attentions.items():
            attention.taps.append(taps[name])
        hooks = [b.feed_forward.down.register_forward_pre_hook(self._hook(name)) for name, b in self.blocks.items()]
        self.model.eval()
        try:
            for _, self.batch in work(task, rows).batches:
                task.loss(self.model, self.batch)
        finally:
            for name, attention in self.attentions.items():
                attention.taps.remove(taps[name])
            for hook in hooks:
                hook.remove()
        return {name: torch.as_tensor(total / self.counts[name]).float() for name, total in self.sums.items()}

    def _add(self, name: str, given: Tensor) -> None:
        """given: [B, T, …]; padding does not count."""
        keep = self.batch.get("target_keep" if name.startswith("decoder") else "keep")
        known = keep is not None and keep.shape == given.shape[:2]
        rows = (given[keep] if known else given.flatten(0, 1)).double()
        self.sums[name] = self.sums.get(name, 0.0) + rows.sum(0)
        self.counts[name] = self.counts.get(name, 0) + len(rows)

    def _tap(self, name: str) -> Callable[[Attended], Tensor]:
        def take(attended: Attended) -> Tensor:
            self._add(name, attended.mixed.transpose(1, 2))
            return attended.mixed

        return take

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def take(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            self._add(name, inputs[0])

        return take


def averages(model: Model, task: Task, rows: Sequence[Example]) -> Means:
    return Averages(model).measure(task, rows)
