"""Parts of a decoder's layers as plain functions of rows [N, D], for one decoding step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from multihead.attention import MultiHeadAttention
from multihead.kernels.packed_linear import is_packable, is_worth_packing, pack, packed_matmul
from multihead.models import Decoder, FeedForward, LMReadout, TokenEmbedding, TransformerBlock, TransformerStack

if TYPE_CHECKING:
    from multihead.generation.incremental import Prompt

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class FastLayer:
    norm_first: bool
    qkv: Function  # -> queries, keys and values, concatenated
    out: Function
    norm: Function
    cross_q: Function | None  # the cross-attention's queries
    cross_out: Function
    cross_norm: Function
    ffn: Function
    feed_norm: Function


def is_supported(prompt: Prompt) -> bool:
    """Whether every part of the decoder is supported here, and no hooks are attached (watch, ablate)."""
    decoder = prompt.decoder
    if prompt.memory_keep is not None and not bool(prompt.memory_keep.any(dim=1).all()):
        return False  # empty memory: the model's own attention handles it
    if (
        type(decoder) is not Decoder
        or type(decoder.stem) is not TokenEmbedding
        or type(decoder.stack) is not TransformerStack
    ):
        return False
    if type(decoder.stem.embedding) is not nn.Embedding or torch.is_autocast_enabled(prompt.tokens.device.type):
        return False
    blocks: list[Any] = list(decoder.stack.blocks)
    attentions = [part for block in blocks for part in (block.attention, block.cross) if part is not None]
    position = decoder.stack.position
    return (
        bool(blocks)
        and (position is None or not position.heads or position.heads == blocks[0].attention.heads)  # none was pruned
        and all(type(block) is TransformerBlock and _is_plain_feed_forward(block.feed_forward) for block in blocks)
        and len({(a.heads, a.kv_heads, a.key_dims, a.value_dims, a.scale) for a in attentions}) == 1
        and all(_is_plain_attention(attention) for attention in attentions)
        and all((block.cross is None) == (prompt.memory is None) for block in blocks)
        and all(has_no_hooks(module) for module in submodules(decoder))
    )


def _is_plain_attention(attention: MultiHeadAttention) -> bool:
    return (
        type(attention) is MultiHeadAttention
        and _are_plain_linear(attention.q, attention.k, attention.v, attention.out)
        and len({*attention.key_dims, *attention.value_dims}) == 1
        and attention.head_scale is None
        and isinstance(attention.q_norm, nn.Identity)
        and not attention.taps
    )


def _is_plain_feed_forward(forward: nn.Module) -> bool:
    return type(forward) is FeedForward and _are_plain_linear(
        forward.up, forward.down, *([] if forward.gate is None else [forward.gate])
    )


def _are_plain_linear(*parts: nn.Module) -> bool:
    """Whether all are plain nn.Linear: an adapter or a quantized layer has weights too, but computes something else."""
    return all(type(part) is nn.Linear for part in parts)


def submodules(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and all its descendants; `modules()` takes three times as long for names that are not needed."""
    yield module
    for part in module._modules.values():
        if part is not None:
            yield from submodules(part)


def has_no_hooks(module: nn.Module) -> bool:
    return not module._forward_hooks and not module._forward_pre_hooks


def make_layer(block: Any, reused: bool) -> FastLayer:
    attention, cross = block.attention, block.cross
    return FastLayer(
        block.norm_first,
        fuse_linears(attention.q, attention.k, attention.v, reused=reused, scale=attention.scale),
        fuse_linears(attention.out, reused=reused),
        make_norm(block.attention_norm),
        None if cross is None else fuse_linears(cross.q, reused=reused, scale=cross.scale),
        identity if cross is None else fuse_linears(cross.out, reused=reused),
        identity if cross is None else make_norm(block.cross_norm),
        _make_feed_forward(block.feed_forward, reused),
        make_norm(block.feed_forward_norm),
    )


class FusedLinear:
    """Linear layer x [N, D] -> x W' + b [N, O]. Larger weights of a reused model are packed."""

    def __init__(self, weight: Tensor, bias: Tensor | None, reused: bool) -> None:
        self.weight, self.columns, self.bias = weight, weight.t(), bias
        self.packs = reused and is_packable(weight)

    def __call__(self, x: Tensor) -> Tensor:
        if self.packs and is_worth_packing(x.shape[0], self.weight):
            return packed_matmul(x, self.packed, self.bias)
        return torch.mm(x, self.columns) if self.bias is None else torch.addmm(self.bias, x, self.columns)

    @cached_property
    def packed(self) -> Tensor:
        return pack(self.weight)


def fuse_linears(*linears: nn.Linear, reused: bool, scale: float = 1.0) -> FusedLinear:
    """Fuse several linear layers into one product, outputs concatenated; the first one scaled by `scale`."""
    weights: list[Tensor] = [linear.weight for linear in linears]
    biases: list[Tensor | None] = [linear.bias for linear in linears]
    if any(bias is not None for bias in biases):
        biases = [w.new_zeros(len(w)) if b is None else b for w, b in zip(weights, biases, strict=True)]
    if scale != 1.0:
        first = biases[0]
        weights[0], biases[0] = weights[0] * scale, None if first is None else first * scale
    present = [bias for bias in biases if bias is not None]
    weight, bias = (None if not some else some[0] if len(some) == 1 else torch.cat(some) for some in (weights, present))
    assert weight is not None
    return FusedLinear(weight, bias, reused)


class FusedReadout(FusedLinear):
    """LM readout, hidden [N, D] -> logits [N, V]: most of a step's time in a small model. A zero bias (Marian's) is
    dropped."""

    def __init__(self, readout: LMReadout, reused: bool) -> None:
        bias = readout.bias if readout.bias is not None and bool(readout.bias.any()) else None
        super().__init__(readout.weight, bias, reused)
        self.scale = readout.scale

    def __call__(self, hidden: Tensor) -> Tensor:
        return super().__call__(hidden if self.scale == 1.0 else hidden * self.scale)


def make_readout(readout: nn.Module, reused: bool) -> Function:
    if type(readout) is LMReadout and readout.transform is None and has_no_hooks(readout):
        return FusedReadout(readout, reused)
    return readout


def _make_feed_forward(forward: FeedForward, reused: bool) -> Function:
    up, down = fuse_linears(forward.up, reused=reused), fuse_linears(forward.down, reused=reused)
    act: Any = torch.relu_ if isinstance(forward.activation, nn.ReLU) else forward.activation
    if forward.gate is None:
        return lambda x: down(act(up(x)))
    gate = fuse_linears(forward.gate, reused=reused)
    return lambda x: down(act(gate(x)).mul_(up(x)))


def make_norm(norm: nn.Module) -> Function:
    if isinstance(norm, nn.LayerNorm):
        shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps, False)
    return identity if isinstance(norm, nn.Identity) else norm


def identity(x: Tensor) -> Tensor:
    return x
