"""The contestants: one self-attention with its four projections, batch first, fp32, all of the same weights.

Every peer is built from ours, weights copied, so that all are seen to compute the same before they are timed.
Ours has biases, zero at first; x-transformers has none: a difference lost in the noise (2 %) when measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from multihead.attention import MultiHeadAttention

Mode = Literal["forward", "training"]
MODES: tuple[Mode, ...] = ("forward", "training")
DIM, HEADS = 512, 8
TOKENS = 2048  # in a batch; longer texts come alone


class BuiltBaseline(NamedTuple):
    module: nn.Module
    call: Callable[[Tensor], Tensor]  # [B, T, D] -> [B, T, D]


@dataclass(frozen=True)
class Baseline:
    """tables: how many [B, H, T, T] it holds at its peak, forward and training (measured); 0 = fused."""

    name: str
    build: Callable[[MultiHeadAttention], BuiltBaseline]
    tables: tuple[float, float] = (0, 0)
    needs: str = ""  # the module of an optional package

    @property
    def is_installed(self) -> bool:
        return not self.needs or find_spec(self.needs) is not None

    @property
    def package(self) -> str:
        """As pip knows it."""
        return self.needs.replace("_", "-") or "torch"

    def bytes(self, mode: Mode, length: int) -> int:
        """What its tables need."""
        return int(self.tables[MODES.index(mode)] * HEADS * cells(length) * 4)


def batch(length: int) -> int:
    return max(1, TOKENS // length)


def cells(length: int) -> int:
    """Scores of one head over the batch."""
    return batch(length) * length * length


def reference(dim: int = DIM, heads: int = HEADS) -> MultiHeadAttention:
    """The attention whose weights all contestants hold."""
    torch.manual_seed(0)
    return MultiHeadAttention(dim, heads)


def ours(like: MultiHeadAttention) -> BuiltBaseline:
    module = MultiHeadAttention(like.dim, like.heads)
    module.load_state_dict(like.state_dict())
    return BuiltBaseline(module, module)


def torch_peer(weights: bool) -> Callable[[MultiHeadAttention], BuiltBaseline]:
    """need_weights=True is the default, and averages the weights over the heads."""

    def build(like: MultiHeadAttention) -> BuiltBaseline:
        peer = nn.MultiheadAttention(like.dim, like.heads, batch_first=True)
        projections = like.q, like.k, like.v
        with torch.no_grad():
            peer.in_proj_weight.copy_(torch.cat([linear.weight for linear in projections]))
            peer.in_proj_bias.copy_(torch.cat([linear.bias for linear in projections]))
        peer.out_proj.load_state_dict(like.out.state_dict())
        return BuiltBaseline(peer, lambda x: peer(x, x, x, need_weights=weights)[0])

    return build


def x_transformers(like: MultiHeadAttention) -> BuiltBaseline:
    from x_transformers.x_transformers import Attention

    peer: Any = Attention(like.dim, dim_head=like.dim // like.heads, heads=like.heads, flash=True)
    for theirs, own in zip((peer.to_q, peer.to_k, peer.to_v, peer.to_out), _linears(like), strict=True):
        theirs.load_state_dict({"weight": own.weight})
    return BuiltBaseline(peer, peer)


def bert(kernel: Literal["sdpa", "eager"]) -> Callable[[MultiHeadAttention], BuiltBaseline]:
    """BERT's self-attention and the dense layer behind it, without the residual and norm that follow."""

    def build(like: MultiHeadAttention) -> BuiltBaseline:
        from transformers import BertConfig
        from transformers.models.bert.modeling_bert import BertSelfAttention

        config = BertConfig(hidden_size=like.dim, num_attention_heads=like.heads, attention_probs_dropout_prob=0.0)
        config._attn_implementation = kernel
        peer, out = BertSelfAttention(config), nn.Linear(like.dim, like.dim)
        for theirs, own in zip((peer.query, peer.key, peer.value, out), _linears(like), strict=True):
            theirs.load_state_dict(own.state_dict())
        return BuiltBaseline(nn.ModuleList([peer, out]), lambda x: out(peer(x)[0]))

    return build


def keras(like: MultiHeadAttention) -> BuiltBaseline:
    os.environ.setdefault("KERAS_BACKEND", "torch")  # read once, when keras is imported
    import keras

    if keras.backend.backend() != "torch":
        raise ValueError(f"Keras runs on {keras.backend.backend()}; set KERAS_BACKEND=torch")
    width = like.dim // like.heads
    peer: Any = keras.layers.MultiHeadAttention(like.heads, width)
    peer.build((None, None, like.dim), (None, None, like.dim))
    shapes = [(like.dim, like.heads, width), (like.heads, width)] * 3 + [
        (like.heads, width, like.dim),
        (like.dim,),
    ]
    tensors = [t for own in _linears(like) for t in (own.weight.T, own.bias)]
    peer.set_weights([t.detach().reshape(shape).numpy() for t, shape in zip(tensors, shapes, strict=True)])
    return BuiltBaseline(peer, lambda x: peer(x, x))


def _linears(like: MultiHeadAttention) -> tuple[nn.Linear, ...]:
    return like.q, like.k, like.v, like.out


OURS, AGAIN, TORCH_DEFAULT = "ours", "ours again", "torch.nn, weights"
CONTESTANTS = (
    Baseline(OURS, ours),
    Baseline(AGAIN, ours),
    Baseline("torch.nn", torch_peer(weights=False), (1.1, 0)),  # in eval it takes a path of its own, not fused
    Baseline(TORCH_DEFAULT, torch_peer(weights=True), (1.3, 3.1)),
    Baseline("x-transformers", x_transformers, needs="x_transformers"),
    Baseline("BERT sdpa", bert("sdpa"), needs="transformers"),
    Baseline("BERT eager", bert("eager"), (2.0, 3.1), needs="transformers"),
    Baseline("Keras", keras, needs="keras"),
)


def job(built: BuiltBaseline, mode: Mode, length: int) -> Callable[[], object]:
    """One forward pass without gradients, or one training step, of a batch of this length."""
    draw = torch.Generator().manual_seed(length)
    x, gradient = (torch.randn(batch(length), length, DIM, generator=draw) for _ in range(2))
    module, call = built
    if mode == "forward":
        module.eval()
        return torch.no_grad()(lambda: call(x))
    module.train()
    x.requires_grad_()
    learned = [x, *module.parameters()]

    def step() -> None:
        for tensor in learned:
            tensor.grad = None
        call(x).backward(gradient)

    return step
