"""How much a loss hangs on each part, by gradient: mean |d loss / d gate|, where a gate of 1 stands on every head's
output (Michel et al. 2019) and, likewise, on every unit of the feed-forward layers, on every column that heads compare
or carry. One pass forward and back for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from multihead.attention import Attended
from multihead.heads.fold import KEYS
from multihead.heads.judge import Example, work
from multihead.models import Block, Model
from multihead.tasks import Task
from multihead.watch import attentions, numbers

HEADS = ".heads"  # behind an attention's name: all columns of a head together


class Gates:
    """Gates on one model; `measure` as often as wanted, then `heads()`, `units()` …: means over the inputs."""

    def __init__(
        self, model: Model, units: bool = False, means: Mapping[str, Tensor] | None = None, columns: bool = False
    ) -> None:
        """means: what a part gives on average, by attention [H, W] and block [F], of keys [G * K]; a gate then asks
        about what it gives beyond that."""
        self.model, self.attentions, self.numbers = model, attentions(model), numbers(model)
        self.blocks = {m.address: m for m in model.modules() if isinstance(m, Block)} if units else {}
        self.means, self.columns = means or {}, columns
        self.gates: dict[str, Tensor] = {}
        self.sums: dict[str, Tensor] = {}
        self.inputs = 0

    def measure(self, task: Task, rows: Sequence[Example], batch_tokens: int = 4096) -> None:
        self.model.eval()
        with self._gated(), no_weights(self.model), torch.enable_grad():
            for _, batch in work(task, rows, batch_tokens).batches:
                self.gates = {}
                total, _ = task.loss(self.model, batch)
                names = list(self.gates)
                for name, gradient in zip(names, torch.autograd.grad(total, list(self.gates.values())), strict=True):
                    self._count(name, gradient)
                    if name in self.attentions:  # [B, H, W]: a head is all of its columns together
                        self._count(name + HEADS, gradient.sum(-1))
                self.inputs += len(batch["tokens"])
        self.gates = {}

    def _count(self, name: str, gradient: Tensor) -> None:
        found = gradient.abs().sum(0).double()
        self.sums[name] = self.sums.get(name, torch.zeros_like(found)) + found

    def heads(self) -> dict[str, float]:
        """By address."""
        return {
            f"{name}.{number}": value / max(self.inputs, 1)
            for name, mine in self.numbers.items()
            for number, value in zip(mine, self.sums[name + HEADS].tolist(), strict=True)
        }

    def units(self) -> dict[str, NDArray[np.float64]]:
        """By block, `encoder.2`: one number per unit of its feed-forward layer."""
        return {name: (self.sums[name] / max(self.inputs, 1)).numpy() for name in self.blocks}

    def values(self) -> dict[str, NDArray[np.float64]]:
        """By attention [G, W]: of each column that heads carry; heads that share it together."""
        return {
            name: self.sums[name].view(a.kv_heads, -1, a.value_dims[0]).sum(1).numpy() / max(self.inputs, 1)
            for name, a in self.attentions.items()
        }

    def keys(self) -> dict[str, NDArray[np.float64]]:
        """By attention [G, K]: of each column that heads compare."""
        return {
            name: self.sums[name + KEYS].view(a.kv_heads, -1).numpy() / max(self.inputs, 1)
            for name, a in self.attentions.items()
        }

    @contextmanager
    def _gated(self) -> Iterator[None]:
        taps = {name: self._tap(name) for name in self.attentions}
        for name, attention in self.attentions.items():
            attention.taps.append(taps[name])
        handles = [
            block.feed_forward.down.register_forward_pre_hook(self._hook(name)) for name, block in self.blocks.items()
        ]
        if self.columns:
            handles += [a.k.register_forward_hook(self._asked(name)) for name, a in self.attentions.items()]
        try:
            yield
        finally:
            for name, attention in self.attentions.items():
                attention.taps.remove(taps[name])
            for handle in handles:
                handle.remove()

    def _tap(self, name: str) -> Callable[[Attended], Tensor]:
        def gate(attended: Attended) -> Tensor:
            B, H, _, W = attended.mixed.shape
            self.gates[name] = torch.ones(B, H, W, requires_grad=True)
            mean = self.means.get(name, torch.zeros(1, 1))[None, :, None]
            return mean + (attended.mixed - mean) * self.gates[name][:, :, None]

        return gate

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...]]:
        def gate(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (self._weighed(name, inputs[0]),)

        return gate

    def _asked(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        return lambda module, inputs, output: self._weighed(name + KEYS, output)

    def _weighed(self, name: str, given: Tensor) -> Tensor:
        """given: [B, T, F]"""
        self.gates[name] = torch.ones(given.shape[0], given.shape[2], requires_grad=True)
        mean = self.means.get(name, torch.zeros(1))
        return mean + (given - mean) * self.gates[name][:, None]


@contextmanager
def no_weights(model: nn.Module) -> Iterator[None]:
    """No gradient of the weights: only the gates are asked about."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in wanted:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in wanted:
            parameter.requires_grad_(True)
