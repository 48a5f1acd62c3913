"""Cache of a decoder's prepared weights, reused for later texts while the weights are unchanged.

Preparing them takes as long as some steps (weights are concatenated and copied), and most texts are short. For very
large models a second copy is too expensive: they are not cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from multihead.generation.fast.cross_attention import CrossAttentionWeights
from multihead.generation.fast.layers import (
    FastLayer,
    Function,
    fuse_linears,
    has_no_hooks,
    make_layer,
    make_norm,
    make_readout,
    submodules,
)
from multihead.generation.incremental import Prompt
from multihead.kernels.packed_linear import is_packable, max_packed_bytes
from multihead.models import Decoder

Stamp = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    layers: list[FastLayer]
    remembers: Function | None  # memory [N, D] -> keys and values of every layer's cross-attention, concatenated
    recalls: CrossAttentionWeights | None
    norm: Function
    readout: Function


_CACHE: WeakKeyDictionary[Decoder, tuple[Stamp, DecoderWeights]] = WeakKeyDictionary()


def decoder_weights(prompt: Prompt) -> DecoderWeights:
    stamp = _stamp(prompt)
    if stamp is None:
        return _prepare_weights(prompt, reused=False)
    cached = _CACHE.get(prompt.decoder)
    if cached is None or cached[0] != stamp:
        cached = _CACHE[prompt.decoder] = (stamp, _prepare_weights(prompt, reused=True))
    return cached[1]


def _prepare_weights(prompt: Prompt, reused: bool) -> DecoderWeights:
    stack = prompt.decoder.stack
    blocks: list[Any] = list(stack.blocks)
    crossing = [block.cross for block in blocks if block.cross is not None]
    return DecoderWeights(
        [make_layer(block, reused) for block in blocks],
        fuse_linears(*(linear for cross in crossing for linear in (cross.k, cross.v)), reused=reused)
        if crossing
        else None,
        CrossAttentionWeights(crossing) if crossing else None,
        make_norm(stack.norm),
        make_readout(prompt.readout, reused),
    )


def _stamp(prompt: Prompt) -> Stamp | None:
    """Return a fingerprint of the weights; None: these are not cached.

    Most parts are the model's own tensors. Of the copied ones, torch counts the writes, but not those through `.data`,
    nor those of others that share the memory: hence the sums, which take as long as half a step.
    """
    modules = [*submodules(prompt.decoder), *submodules(prompt.readout)]
    weights = _weights(modules)
    if not all(weight.is_cpu for weight in weights) or sum(weight.nbytes for weight in weights) > max_packed_bytes():
        return None
    copied = _weights(_copied_weights(prompt))
    if any(weight.is_inference() for weight in copied):
        return None
    with torch.inference_mode():
        sums = [(weight._version, float(weight.sum())) for weight in copied]
    scales = [(id(module), module.__dict__.get("scale")) for module in modules]
    return has_no_hooks(prompt.readout), scales, [weight.data_ptr() for weight in weights], sums


def _copied_weights(prompt: Prompt) -> Iterator[nn.Module]:
    yield prompt.readout
    for block in prompt.decoder.stack.blocks:
        joined = [(part.q, part.k, part.v) for part in (block.attention, block.cross) if part is not None]  # type: ignore[union-attr]
        some = {linear for linears in joined for linear in linears}
        some |= set() if block.cross is None else {block.cross.out}  # type: ignore[union-attr]
        yield from (
            module
            for module in submodules(block)
            if module in some or (isinstance(module, nn.Linear) and is_packable(module.weight))
        )


def _weights(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    return [weight for module in modules for weight in module._parameters.values() if weight is not None]
