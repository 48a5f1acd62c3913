"""Gradient importance of each part: mean |d loss / d gate|, with a gate of 1 on every head's output (Michel et al.
2019) and, likewise, on every feed-forward unit and every key or value column. One forward and backward pass for all.
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
    """Gates on one model; `measure` may be called repeatedly."""

    def __init__(
        self,
        model: TaskModel,
        *,
        fine: bool = False,
        keys: bool = False,
        units: bool = False,
        means: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Put a gate on every head; fine: on each of its value columns. keys, units: on each key column, on each unit.
        means: mean output of a part, by attention [H, W] and block [F], of keys [G * K]; a gate then scales only the
        deviation from it."""
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
        """Return d loss / d gate for each input, [inputs, gates], of an attention (its heads, or all their columns,
        concatenated), of its keys or a block."""
        return torch.cat(self.found[name])

    def heads(self) -> dict[str, float]:
        """Return mean |d loss / d gate| of a gate on each head, by address."""
        return {
            f"{name}.{number}": value
            for name, head_numbers in self.numbers.items()
            for number, value in zip(
                head_numbers,
                self.rows(name).unflatten(1, (len(head_numbers), -1)).sum(2).abs().mean(0).tolist(),
                strict=True,
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

    def _apply_gate(self, name: str, activations: Tensor) -> Tensor:
        """Apply the gate to activations [B, T, F]."""
        self.gates[name] = torch.ones(activations.shape[0], activations.shape[2], requires_grad=True)
        mean = self.means.get(name, torch.zeros(1))
        return mean + (activations - mean) * self.gates[name][:, None]


@contextmanager
def freeze_weights(model: nn.Module) -> Iterator[None]:
    """Disable weight gradients: only the gates need them."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
