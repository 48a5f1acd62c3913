"""How much a loss hangs on each part, by gradient: mean |d loss / d gate|, where a gate of 1 stands on every head's
output (Michel et al. 2019) and, likewise, on every unit of the feed-forward layers, on every column that heads compare
or carry. One pass forward and back for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from multihead.attention import AttentionRecord
from multihead.inspection import attentions, numbers
from multihead.models import TaskModel, TransformerBlock
from multihead.pruning.compensation import KEYS
from multihead.pruning.evaluation import EncodedRow, make_batches
from multihead.tasks import Task


class HeadGates:
    """Gates on one model; `measure` as often as wanted."""

    def __init__(
        self,
        model: TaskModel,
        *,
        fine: bool = False,
        keys: bool = False,
        units: bool = False,
        means: Mapping[str, Tensor] | None = None,
    ) -> None:
        """A gate on every head; fine: on each column that it carries. keys, units: on each column that is compared, on
        each unit. means: what a part gives on average, by attention [H, W] and block [F], of keys [G * K]; a gate then
        asks about what it gives beyond that."""
        self.model, self.attentions, self.numbers = model, attentions(model), numbers(model)
        self.blocks = {m.address: m for m in model.modules() if isinstance(m, TransformerBlock)} if units else {}
        self.means, self.fine, self.keys = means or {}, fine, keys
        self.gates: dict[str, Tensor] = {}
        self.found: dict[str, list[Tensor]] = {}

    def measure(self, task: Task, rows: Sequence[EncodedRow], batch_tokens: int = 4096) -> None:
        self.model.eval()
        with self._attach_gates(), freeze_weights(self.model), torch.enable_grad():
            for _, batch in make_batches(task, rows, batch_tokens).batches:
                self.gates = {}
                total, _ = task.loss(self.model, batch)
                names = list(self.gates)
                for name, gradient in zip(names, torch.autograd.grad(total, list(self.gates.values())), strict=True):
                    self.found.setdefault(name, []).append(gradient.flatten(1))
        self.gates = {}

    def rows(self, name: str) -> Tensor:
        """[inputs, gates] of an attention (its heads, or all their columns, side by side), of its keys or a block:
        d loss / d gate, for each input."""
        return torch.cat(self.found[name])

    def heads(self) -> dict[str, float]:
        """By address: mean |d loss / d gate| of a gate on the whole head."""
        return {
            f"{name}.{number}": value
            for name, mine in self.numbers.items()
            for number, value in zip(
                mine, self.rows(name).unflatten(1, (len(mine), -1)).sum(2).abs().mean(0).tolist(), strict=True
            )
        }

    @contextmanager
    def _attach_gates(self) -> Iterator[None]:
        taps = {name: self._tap(name) for name in self.attentions}
        for name, attention in self.attentions.items():
            attention.taps.append(taps[name])
        handles = [
            block.feed_forward.down.register_forward_pre_hook(self._hook(name)) for name, block in self.blocks.items()
        ]
        if self.keys:
            handles += [a.k.register_forward_hook(self._key_hook(name)) for name, a in self.attentions.items()]
        try:
            yield
        finally:
            for name, attention in self.attentions.items():
                attention.taps.remove(taps[name])
            for handle in handles:
                handle.remove()

    def _tap(self, name: str) -> Callable[[AttentionRecord], Tensor]:
        def gate(attended: AttentionRecord) -> Tensor:
            B, H, _, W = attended.mixed.shape
            self.gates[name] = torch.ones(B, H, W if self.fine else 1, requires_grad=True)
            mean = self.means.get(name, torch.zeros(1, 1))[None, :, None]
            return mean + (attended.mixed - mean) * self.gates[name][:, :, None]

        return gate

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...]]:
        def gate(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (self._apply_gate(name, inputs[0]),)

        return gate

    def _key_hook(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        return lambda module, inputs, output: self._apply_gate(name + KEYS, output)

    def _apply_gate(self, name: str, given: Tensor) -> Tensor:
        """given: [B, T, F]"""
        self.gates[name] = torch.ones(given.shape[0], given.shape[2], requires_grad=True)
        mean = self.means.get(name, torch.zeros(1))
        return mean + (given - mean) * self.gates[name][:, None]


@contextmanager
def freeze_weights(model: nn.Module) -> Iterator[None]:
    """No gradient of the weights: only the gates are asked about."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in wanted:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in wanted:
            parameter.requires_grad_(True)
