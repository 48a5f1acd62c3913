"""Means and covariances of head outputs and feed-forward units. When parts are pruned, their mean goes to the bias of
the projection that they fed, and the part that the remaining ones predict goes to its weights. The smaller model costs
no more for it, and loses much less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from multihead.attention import AttentionRecord
from multihead.attention.multihead import merge
from multihead.inspection import attentions
from multihead.models import TaskModel, TransformerBlock
from multihead.pruning.compensation import KEYS, Moments
from multihead.pruning.evaluation import EncodedRow, make_batches
from multihead.tasks import Batch, Task

WIDEST = 4096  # for wider layers only the mean is stored: the covariance would take more memory than the model


class ActivationStats:
    """Moments of one model's inputs to each attention's output projection and each block's second layer; with `keys`,
    also of the keys of every attention."""

    def __init__(self, model: TaskModel, keys: bool = False) -> None:
        self.model, self.attentions, self.keys = model, attentions(model), keys
        self.blocks = {m.address: m for m in model.modules() if isinstance(m, TransformerBlock)}
        self.counts: dict[str, int] = {}
        self.sums: dict[str, Tensor] = {}
        self.squares: dict[str, Tensor] = {}
        self.batch: Batch = {}

    @torch.no_grad()
    def measure(self, task: Task, rows: Sequence[EncodedRow]) -> dict[str, Moments]:
        """Measure in one pass over the rows, as in training."""
        taps = {name: self._tap(name) for name in self.attentions}
        for name, attention in self.attentions.items():
            attention.taps.append(taps[name])
        hooks = [b.feed_forward.down.register_forward_pre_hook(self._hook(name)) for name, b in self.blocks.items()]
        if self.keys:
            hooks += [a.k.register_forward_hook(self._key_hook(name)) for name, a in self.attentions.items()]
        self.model.eval()
        try:
            for _, self.batch in make_batches(task, rows).batches:
                task.loss(self.model, self.batch)
        finally:
            for name, attention in self.attentions.items():
                attention.taps.remove(taps[name])
            for hook in hooks:
                hook.remove()
        return {name: self._moment(name) for name in self.sums}

    def _moment(self, name: str) -> Moments:
        count = self.counts[name]
        mean, square = self.sums[name] / count, self.squares.get(name)
        return Moments(mean, None if square is None else square / count - torch.outer(mean, mean), count)

    def _add(self, name: str, activations: Tensor) -> None:
        """Add activations [B, T, F]; padding does not count."""
        target = name.startswith("decoder") and not name.endswith(".cross" + KEYS)
        keep = self.batch.get("target_keep" if target else "keep")
        known = keep is not None and keep.shape == activations.shape[:2]
        rows = (activations[keep] if known else activations.flatten(0, 1)).float()
        width = rows.shape[1]
        if name not in self.sums:
            self.counts[name], self.sums[name] = 0, torch.zeros(width, dtype=torch.double)
            if width <= WIDEST:
                self.squares[name] = torch.zeros(width, width, dtype=torch.double)
        self.counts[name] += len(rows)
        self.sums[name] += rows.sum(0, dtype=torch.double)
        if name in self.squares:
            self.squares[name] += rows.T @ rows

    def _tap(self, name: str) -> Callable[[AttentionRecord], Tensor]:
        def take(attended: AttentionRecord) -> Tensor:
            self._add(name, merge(attended.mixed, self.attentions[name].value_dims))
            return attended.mixed

        return take

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def take(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            self._add(name, inputs[0])

        return take

    def _key_hook(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def take(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            self._add(name + KEYS, output)

        return take


def measure_moments(model: TaskModel, task: Task, rows: Sequence[EncodedRow], keys: bool = False) -> dict[str, Moments]:
    return ActivationStats(model, keys).measure(task, rows)
