"""The parts of a decoder, made ready for decoding, and kept for the next texts as long as its weights are the same.

To make them takes as long as some steps (weights are joined and copied), and most texts are short. Large models are
not kept: a second copy of them is dear, and of their time it saves little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from multihead.decode.parts import Function, Layer, affine, layer_of, norm_of, readout_of, tree, unobserved
from multihead.decode.steps import Prompt
from multihead.models import Decoder

LARGEST = 2**24  # weights of a decoder that is kept

Stamp = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    layers: list[Layer]
    recalls: Function | None  # memory [N, D] -> keys and values of every layer's cross-attention, side by side
    norm: Function
    readout: Function


_KEPT: WeakKeyDictionary[Decoder, tuple[Stamp, Parts]] = WeakKeyDictionary()


def parts_of(prompt: Prompt) -> Parts:
    stamp = _stamp(prompt)
    if stamp is None:
        return _made(prompt, kept=False)
    found = _KEPT.get(prompt.decoder)
    if found is None or found[0] != stamp:
        found = _KEPT[prompt.decoder] = (stamp, _made(prompt, kept=True))
    return found[1]


def _made(prompt: Prompt, kept: bool) -> Parts:
    stack = prompt.decoder.stack
    blocks: list[Any] = list(stack.blocks)
    crossing = [linear for block in blocks if block.cross is not None for linear in (block.cross.k, block.cross.v)]
    return Parts(
        [layer_of(block) for block in blocks],
        affine(*crossing) if crossing else None,
        norm_of(stack.norm),
        readout_of(prompt.readout, turned=kept),
    )


def _stamp(prompt: Prompt) -> Stamp | None:
    """What changes when a part does; None: these are not kept.

    Most parts are the model's own tensors. Of those that are copied, torch counts the writes, but not those through
    `.data`, nor those of others who share the memory: hence the sums, which take as long as half a step.
    """
    modules = [*tree(prompt.decoder), *tree(prompt.readout)]
    weights = _weights(modules)
    if not all(weight.is_cpu for weight in weights) or sum(weight.numel() for weight in weights) > LARGEST:
        return None
    copied = _weights(_copied(prompt))
    if any(weight.is_inference() for weight in copied):
        return None
    with torch.inference_mode():
        sums = [(weight._version, float(weight.sum())) for weight in copied]
    scales = [(id(module), module.__dict__.get("scale")) for module in modules]
    return unobserved(prompt.readout), scales, [weight.data_ptr() for weight in weights], sums


def _copied(prompt: Prompt) -> Iterator[nn.Module]:
    yield prompt.readout
    for block in prompt.decoder.stack.blocks:
        for attention in (block.attention, block.cross):
            if attention is not None:
                yield from (attention.q, attention.k, attention.v)  # type: ignore[misc, union-attr]


def _weights(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    return [weight for module in modules for weight in module._parameters.values() if weight is not None]
