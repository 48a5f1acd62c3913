"""Forward pass that can resume at any layer: a change deep in a model costs only the layers after it.

While the model processes a batch, the input of every block and the output of every attention are stored. With some
heads off, the first changed block starts from there, with its stored attention output; the blocks before it do not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from multihead.attention import AttentionRecord
from multihead.attention.multihead import merge
from multihead.inspection import ablate, attentions, locate, numbers
from multihead.models import EncoderDecoder, TaskModel, TransformerBlock


class PartialForward:
    """Blocks of a model in execution order, and their recorded inputs."""

    def __init__(self, model: TaskModel) -> None:
        self.model = model
        body = model.body
        self.stacks = [body.encoder.stack, body.decoder.stack] if isinstance(body, EncoderDecoder) else [body.stack]
        self.blocks = [block for stack in self.stacks for block in stack.blocks if isinstance(block, TransformerBlock)]
        self.first = {f"{block.address}.{kind}": i for i, block in enumerate(self.blocks) for kind in ("self", "cross")}
        self.attentions, self.numbers = attentions(model), numbers(model)
        self.given: list[tuple[Any, ...]] = []
        self.mixed: dict[str, Tensor] = {}
        self.calls = 0  # calls of the body in the last full pass
        self.ran = 0  # blocks run over all passes, times their tokens

    @torch.inference_mode()
    def run_whole(self, call: Callable[[], Any]) -> Any:
        """Run the unchanged model: the result of `call`."""
        self.given, self.mixed, self.calls = [], {}, 0
        handles = [self.model.body.register_forward_pre_hook(self._count)]
        handles += [block.register_forward_pre_hook(self._take) for block in self.blocks]
        taps = {name: self._tap(name) for name in self.attentions}
        for name, attention in self.attentions.items():
            attention.taps.append(taps[name])
        try:
            return call()
        finally:
            for handle in handles:
                handle.remove()
            for name, attention in self.attentions.items():
                attention.taps.remove(taps[name])
            self.ran += self._area()

    @torch.inference_mode()
    def run_without(self, heads: Sequence[str], call: Callable[[], Any]) -> Any:
        """Return the result of `call` with these heads off. It must use the batch of the last `run_whole`.

        A task that runs the body more than once (two texts, token-by-token generation) is run in full.
        """
        if self.calls != 1 or len(self.given) != len(self.blocks):
            self.ran += self._area()
            with ablate(self.model, heads):
                return call()
        off: dict[str, list[int]] = {}
        for address in heads:
            name, place = locate(address, self.numbers)
            off.setdefault(name, []).append(place)
        hidden = self._resume(off)
        with replace_forward(self.model.body, lambda *inputs, **options: hidden):
            return call()

    def _resume(self, off: dict[str, list[int]]) -> Tensor:
        """Return the last hidden states, recomputed from the first changed block."""
        start = min(self.first[name] for name in off)
        split = len(self.stacks[0].blocks) if len(self.stacks) > 1 else len(self.blocks)
        memory: Tensor | None = None
        x: Tensor = self.given[start][0]
        for i in range(start, len(self.blocks)):
            block, inputs = self.blocks[i], list(self.given[i])
            if i == split and start < split:  # the encoder affects the decoder through the memory alone
                memory, x = self.stacks[0].norm(x), inputs[0]
            if memory is not None:
                inputs[3] = memory
            own_heads = {name: places for name, places in off.items() if self.first[name] == i}
            x = self._block(block, x, inputs[1:], own_heads, fresh=i == start)
            self.ran += x.shape[0] * x.shape[1]
        return self.stacks[-1].norm(x)

    def _block(
        self, block: TransformerBlock, x: Tensor, rest: list[Any], off: dict[str, list[int]], fresh: bool
    ) -> Tensor:
        if not off:
            return block(x, *rest)
        if not fresh:
            with self._silence_heads(off):
                return block(x, *rest)
        # In the first changed block, the attention output is known. If both attentions of a block change, the
        # cross-attention depends on the other and is recomputed.
        first = max(off)  # "….self" before "….cross"
        attention, mixed = self.attentions[first], self.mixed[first].clone()
        mixed[:, off[first]] = 0
        out = attention.out(merge(mixed, attention.value_dims))
        others = {name: places for name, places in off.items() if name != first}
        with replace_forward(attention, lambda *inputs, **options: out), self._silence_heads(others):
            return block(x, *rest)

    @contextmanager
    def _silence_heads(self, off: dict[str, list[int]]) -> Iterator[None]:
        taps = {name: _silencer(places) for name, places in off.items()}
        for name, tap in taps.items():
            self.attentions[name].taps.insert(0, tap)
        try:
            yield
        finally:
            for name, tap in taps.items():
                self.attentions[name].taps.remove(tap)

    def _area(self) -> int:
        """Return the tokens processed by the blocks in the last full pass, summed over the blocks."""
        return sum(inputs[0].shape[0] * inputs[0].shape[1] for inputs in self.given)

    def _count(self, body: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.calls += 1

    def _take(self, block: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.given.append(inputs)

    def _tap(self, name: str) -> Callable[[AttentionRecord], Tensor]:
        def keep(attended: AttentionRecord) -> Tensor:
            self.mixed[name] = attended.mixed
            return attended.mixed

        return keep


def _silencer(places: list[int]) -> Callable[[AttentionRecord], Tensor]:
    def silence(attended: AttentionRecord) -> Tensor:
        mixed = attended.mixed.clone()
        mixed[:, places] = 0
        return mixed

    return silence


@contextmanager
def replace_forward(module: nn.Module, forward: Callable[..., Tensor]) -> Iterator[None]:
    """Replace a module's forward temporarily."""
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
