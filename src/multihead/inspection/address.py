"""A head's address: `stack.layer.kind.head`, as in `encoder.2.self.3` or `decoder.0.cross.5`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from multihead.attention import MultiHeadAttention
from multihead.models import TransformerBlock

Address = str | tuple[int, int]


def attentions(model: nn.Module) -> dict[str, MultiHeadAttention]:
    """Every attention of the model by its address without the head: `encoder.2.self`.

    Attentions that stand outside our blocks are numbered in their order: `attention.0.self`.
    """
    found: dict[str, MultiHeadAttention] = {}
    inside: set[int] = set()
    for module in model.modules():
        if isinstance(module, TransformerBlock):
            for kind, attention in (("self", module.attention), ("cross", module.cross)):
                if attention is not None:
                    if f"{module.address}.{kind}" in found:
                        raise ValueError(
                            f"two attentions are called {module.address}.{kind}; look at one part at a time"
                        )
                    found[f"{module.address}.{kind}"] = attention
                    inside.add(id(attention))
    bare = [m for m in model.modules() if isinstance(m, MultiHeadAttention) and id(m) not in inside]
    found |= {f"attention.{layer}.self": attention for layer, attention in enumerate(bare)}
    if not found:
        raise ValueError(f"{type(model).__name__} has no MultiHeadAttention to look at")
    return found


def numbers(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """The numbers of every attention's heads: 0, 1, 2 …, or those that pruning left."""
    kept = {
        f"{block.address}.{kind}": left
        for block in model.modules()
        if isinstance(block, TransformerBlock)
        for kind, left in (("self", block.kept_heads), ("cross", block.kept_cross_heads))
        if left is not None
    }
    return {name: kept.get(name, tuple(range(found.heads))) for name, found in attentions(model).items()}


def locate(address: Address, names: Mapping[str, Sequence[int]]) -> tuple[str, int]:
    """An address -> the attention's name and the head's place in it. `names`: attention -> its heads' numbers.

    (layer, head) is short for the self-attention of a model with one stack.
    """
    if isinstance(address, tuple):
        stacks = sorted({name.split(".")[0] for name in names})
        if len(stacks) > 1:
            raise ValueError(
                f"{address} could mean {' or '.join(stacks)}; write it as '{stacks[0]}.{address[0]}.self.…'"
            )
        address = f"{stacks[0]}.{address[0]}.self.{address[1]}"
    name, _, head = address.rpartition(".")
    if name not in names or not head.isdigit() or int(head) not in names[name]:
        every = [f"{one}.{number}" for one, mine in names.items() for number in mine]
        gone = name in names and head.isdigit() and int(head) < max(names[name])
        what = "was cut out" if gone else f"is none; an address is stack.layer.kind.head, here {every[0]} … {every[-1]}"
        raise ValueError(f"there is no head {address!r}: it {what}")
    return name, names[name].index(int(head))
