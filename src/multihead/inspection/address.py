"""Addresses of heads: `stack.layer.kind.head`, as in `encoder.2.self.3` or `decoder.0.cross.5`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from multihead.attention import MultiHeadAttention
from multihead.models import TransformerBlock

Address = str | tuple[int, int]


def attentions(model: nn.Module) -> dict[str, MultiHeadAttention]:
    """Return every attention of the model by its address without the head: `encoder.2.self`.

    Attentions outside of our blocks are numbered in order: `attention.0.self`.
    """
    by_address: dict[str, MultiHeadAttention] = {}
    inside: set[int] = set()
    for module in model.modules():
        if isinstance(module, TransformerBlock):
            for kind, attention in (("self", module.attention), ("cross", module.cross)):
                if attention is not None:
                    if f"{module.address}.{kind}" in by_address:
                        raise ValueError(
                            f"two attentions have the address {module.address}.{kind}; inspect one part at a time"
                        )
                    by_address[f"{module.address}.{kind}"] = attention
                    inside.add(id(attention))
    bare = [m for m in model.modules() if isinstance(m, MultiHeadAttention) and id(m) not in inside]
    by_address |= {f"attention.{layer}.self": attention for layer, attention in enumerate(bare)}
    if not by_address:
        raise ValueError(f"{type(model).__name__} has no MultiHeadAttention to inspect")
    return by_address


def numbers(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the head numbers of every attention: 0, 1, 2 …, or those that pruning retained."""
    retained = {
        f"{block.address}.{kind}": left
        for block in model.modules()
        if isinstance(block, TransformerBlock)
        for kind, left in (("self", block.kept_heads), ("cross", block.kept_cross_heads))
        if left is not None
    }
    return {name: retained.get(name, tuple(range(attention.heads))) for name, attention in attentions(model).items()}


def locate(address: Address, names: Mapping[str, Sequence[int]]) -> tuple[str, int]:
    """Return the attention's name and the head's index of an address. `names`: attention -> its heads' numbers.

    (layer, head) is short for the self-attention of a model with one stack.
    """
    if isinstance(address, tuple):
        stacks = sorted({name.split(".")[0] for name in names})
        if len(stacks) > 1:
            raise ValueError(
                f"{address} is ambiguous: {' or '.join(stacks)}; write it as '{stacks[0]}.{address[0]}.self.…'"
            )
        address = f"{stacks[0]}.{address[0]}.self.{address[1]}"
    name, _, head = address.rpartition(".")
    if name not in names or not head.isdigit() or int(head) not in names[name]:
        every = [f"{name_}.{number}" for name_, heads in names.items() for number in heads]
        gone = name in names and head.isdigit() and int(head) < max(names[name])
        what = "it was pruned" if gone else f"addresses are stack.layer.kind.head, here {every[0]} … {every[-1]}"
        raise ValueError(f"unknown head {address!r}; {what}")
    return name, names[name].index(int(head))
