"""Cutting heads, columns of heads and feed-forward units out of a model, into a smaller dense one, and putting them
back.

A head that is switched off mixes nothing, so its rows of the q, k, v projections and its columns of the output
projection can go; a unit that is off likewise, and so can single columns of what a head compares (q and k) or carries
(v). Every attention keeps at least one head: a block then stays a block, in the file, in the cache and under `watch`,
and the last head costs little. Heads that share keys go together, and all heads of an attention stay equally wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from multihead.attention import MultiHeadAttention
from multihead.inspection import locate, numbers
from multihead.models import Decoder, Encoder, EncoderDecoder, ModelConfig, TaskModel, TransformerBlock
from multihead.models.block import make_attention
from multihead.pruning.compensation import (
    KEYS,
    MomentsByName,
    Numbers,
    compensate,
    compensate_keys,
    other_columns,
    set_parameter,
)

ColumnsByGroup = tuple[Numbers, ...]  # columns, for every group of heads that share keys and stay


@dataclass(frozen=True)
class PruningPlan:
    """What stays: numbers of heads by attention (`encoder.2.self`), places of units by block (`encoder.2`), and by
    attention the columns of keys (and queries) and of values, equally many for every head. What is not named stays
    whole."""

    heads: dict[str, Numbers] = field(default_factory=dict)
    units: dict[str, Numbers] = field(default_factory=dict)
    keys: dict[str, ColumnsByGroup] = field(default_factory=dict)
    values: dict[str, ColumnsByGroup] = field(default_factory=dict)

    def touches(self, attention: str) -> bool:
        return any(attention in part for part in (self.heads, self.keys, self.values))


def make_plan(model: TaskModel, off: Iterable[str], units: Mapping[str, Numbers] | None = None) -> PruningPlan:
    """A cut that takes these heads, and all but these units, out; of heads that share keys, all or none."""
    left = {name: list(mine) for name, mine in numbers(model).items()}
    for address in off:
        name, _ = locate(address, left)
        left[name].remove(int(address.rpartition(".")[2]))
    before = numbers(model)
    for name, mine in left.items():
        if not mine:
            raise ValueError(f"{name} would have no head left; at least one of an attention's heads stays")
        group = _group(model, name)
        torn = next((n for n in mine if not {m for m in before[name] if m // group == n // group} <= {*mine}), None)
        if torn is not None:
            raise ValueError(
                f"{name}.{torn} shares its keys with {group - 1} more heads; they are cut out together, or not"
            )
    heads = {name: tuple(mine) for name, mine in left.items() if tuple(mine) != before[name]}
    return PruningPlan(heads, dict(units or {}))


def apply_plan(
    model: TaskModel, plan: PruningPlan, moments: MomentsByName | None = None
) -> tuple[TaskModel, dict[str, Tensor]]:
    """The smaller model, and the slices that were taken out, by the names of the parameters they belong to.

    moments: how the heads and units go together: what is left then takes over, by least squares, what it can of what
    goes. Without them the smaller model is the whole one with those parts switched off.
    """
    smaller = _shell(model)
    removed: dict[str, Tensor] = {}
    for block in _blocks(smaller):
        config = _config(model, block)
        for name, place, attention in _places(block):
            if not plan.touches(name):
                continue
            before = numbers(model)[name]
            kept = plan.heads.get(name, before)
            stay = [before.index(n) for n in kept]
            keys, values = plan.keys.get(name), plan.values.get(name)
            lines = _lines(attention, stay, keys, values)
            K, W = widths_of(attention)
            widths = (len(keys[0]) if keys else K, len(values[0]) if values else W)
            new = make_attention(config, config.memory_dim if place == "cross" else None, kept, widths)
            removed |= _narrow(attention, new, lines, f"{block.address}.{place}")
            if moments is not None:
                gone = removed[f"{block.address}.{place}.out.weight"]
                compensate(new.out, gone, lines["out.weight"][1], moments[name])
                if keys:
                    compensate_keys(attention, new, stay, keys, moments[name + KEYS])
            setattr(block, place, new.train(attention.training))
            if name in plan.heads:
                setattr(block, "kept_cross_heads" if place == "cross" else "kept_heads", kept)
        if block.address in plan.units:
            stay = list(plan.units[block.address])
            removed |= _thin(block, stay)
            if moments is not None:
                gone = removed[f"{block.address}.feed_forward.down.weight"]
                compensate(block.feed_forward.down, gone, torch.tensor(stay), moments[block.address])
    _describe(smaller)
    return smaller, removed


def restore_parts(
    model: TaskModel, whole: Mapping[str, ModelConfig], plan: PruningPlan, removed: Mapping[str, Tensor] | None
) -> TaskModel:
    """A pruned model with its heads and units back in place: the slices that were removed, or (None) zeros, which give
    the same answers in a shape that families have. whole: the configs before the cut, by stack."""
    larger = _shell(model)
    for block in _blocks(larger):
        stack, layer = block.address.split(".")
        config = whole[stack]
        for name, place, attention in _places(block):
            if not plan.touches(name):
                continue
            crossing = place == "cross"
            kept = config.kept_cross_heads if crossing else config.kept_heads
            widths = config.cross_head_widths if crossing else config.head_widths
            mine = None if kept is None else kept[int(layer)]
            before = mine or tuple(range(config.heads))
            stay = [before.index(n) for n in plan.heads.get(name, before)]
            memory, wide = config.memory_dim if crossing else None, None if widths is None else widths[int(layer)]
            new = make_attention(config, memory, mine, wide)
            lines = _lines(new, stay, plan.keys.get(name), plan.values.get(name))
            _widen(attention, new, lines, f"{block.address}.{place}", removed)
            setattr(block, place, new.train(attention.training))
            setattr(block, "kept_cross_heads" if crossing else "kept_heads", mine)
        if block.address in plan.units:
            inner = config.inner or 4 * config.dim if config.ffn_widths is None else config.ffn_widths[int(layer)]
            _thicken(block, inner, list(plan.units[block.address]), removed)
    for body in _bodies(larger):
        body.config = whole[_stack(body)]
    return larger


def plan_of_model(whole: Mapping[str, ModelConfig], model: TaskModel) -> PruningPlan:
    """The heads that stayed, as the pruned model itself says; its units must be known from elsewhere."""
    known = numbers(model)
    heads = {}
    for name, mine in known.items():
        stack, layer, kind = name.split(".")
        kept = whole[stack].kept_heads if kind == "self" else whole[stack].kept_cross_heads
        before = tuple(range(whole[stack].heads)) if kept is None else kept[int(layer)]
        if before != mine:
            heads[name] = mine
    return PruningPlan(heads)


def configs(model: TaskModel) -> dict[str, ModelConfig]:
    """By stack."""
    return {_stack(body): body.config for body in _bodies(model)}


def _lines(
    attention: MultiHeadAttention, stay: list[int], keys: ColumnsByGroup | None, values: ColumnsByGroup | None
) -> dict[str, tuple[int, Tensor]]:
    """parameter -> its axis that heads stand on, and which of its lines belong to the heads at these places"""
    K, W = widths_of(attention)
    size = attention.heads // attention.kv_heads
    groups = sorted({place // size for place in stay})
    whole = {"key": tuple(range(K)), "value": tuple(range(W)), "head": (0,)}
    columns = {
        "key": dict(zip(groups, keys or [whole["key"]] * len(groups), strict=True)),
        "value": dict(zip(groups, values or [whole["value"]] * len(groups), strict=True)),
        "head": dict.fromkeys(groups, whole["head"]),
    }
    found = {}
    for name, _ in attention.named_parameters():
        part = name.split(".")[0]
        kind = {"q": "key", "k": "key", "v": "value", "out": "value", "head_scale": "head"}.get(part)
        if kind is None or name == "out.bias":  # norms of q and k, the output's bias: all heads share them
            continue
        width, shared = len(whole[kind]), part in ("k", "v")
        lines = [
            place * width + column
            for place in (groups if shared else stay)
            for column in columns[kind][place if shared else place // size]
        ]
        found[name] = (1 if part == "out" else 0, torch.tensor(lines, dtype=torch.long))
    return found


def _narrow(
    old: MultiHeadAttention, new: MultiHeadAttention, lines: dict[str, tuple[int, Tensor]], where: str
) -> dict[str, Tensor]:
    removed = {}
    for name, parameter in old.named_parameters():
        data = parameter.data
        if name in lines:
            axis, mine = lines[name]
            removed[f"{where}.{name}"] = data.index_select(axis, other_columns(data.shape[axis], mine))
            data = data.index_select(axis, mine)
        set_parameter(new, name, data)
    return removed


def _widen(
    old: MultiHeadAttention,
    new: MultiHeadAttention,
    lines: dict[str, tuple[int, Tensor]],
    where: str,
    removed: Mapping[str, Tensor] | None,
) -> None:
    for name, parameter in old.named_parameters():
        data = parameter.data
        if name in lines:
            axis, mine = lines[name]
            size = new.get_parameter(name).shape[axis]
            data = _spread(data, axis, size, mine, None if removed is None else removed[f"{where}.{name}"])
        set_parameter(new, name, data)


def _thin(block: TransformerBlock, stay: list[int]) -> dict[str, Tensor]:
    removed, layer = {}, block.feed_forward
    mine = torch.tensor(stay, dtype=torch.long)
    for name, parameter in list(layer.named_parameters()):
        if (axis := _axis(name)) is not None:
            rest = other_columns(parameter.shape[axis], mine)
            removed[f"{block.address}.feed_forward.{name}"] = parameter.data.index_select(axis, rest)
            set_parameter(layer, name, parameter.data.index_select(axis, mine))
    _sizes(layer)
    return removed


def _thicken(block: TransformerBlock, inner: int, stay: list[int], removed: Mapping[str, Tensor] | None) -> None:
    layer, mine = block.feed_forward, torch.tensor(stay, dtype=torch.long)
    for name, parameter in list(layer.named_parameters()):
        if (axis := _axis(name)) is not None:
            slices = None if removed is None else removed[f"{block.address}.feed_forward.{name}"]
            set_parameter(layer, name, _spread(parameter.data, axis, inner, mine, slices))
    _sizes(layer)


def _axis(name: str) -> int | None:
    """On which axis of a feed-forward parameter the units stand."""
    return None if name == "down.bias" else int(name.startswith("down"))


def _spread(data: Tensor, axis: int, size: int, mine: Tensor, rest: Tensor | None) -> Tensor:
    """data's lines at `mine`, the others from `rest` or 0"""
    shape = list(data.shape)
    shape[axis] = size
    out = data.new_zeros(shape).index_copy(axis, mine, data)
    return out if rest is None else out.index_copy(axis, other_columns(size, mine), rest.to(data.dtype))


def _sizes(layer: nn.Module) -> None:
    for linear in layer.modules():
        if isinstance(linear, nn.Linear):
            linear.out_features, linear.in_features = linear.weight.shape


def _shell(model: TaskModel) -> TaskModel:
    """The same model in new modules; parameters are shared until they are replaced."""
    shared = {id(parameter): parameter for parameter in model.parameters()}
    taps = [module for module in model.modules() if getattr(module, "taps", None)]
    if taps:
        raise ValueError("the model is being watched; cut it outside of `with watch(…)` and `with ablate(…)`")
    return deepcopy(model, dict(shared))


def _describe(model: TaskModel) -> None:
    """Configs that say what the blocks now are."""
    for body in _bodies(model):
        blocks = [block for block in body.stack.blocks if isinstance(block, TransformerBlock)]
        config = copy(body.config)
        every = tuple(range(config.heads))
        kept = tuple(block.kept_heads or every for block in blocks)
        crossed = tuple(block.kept_cross_heads or every for block in blocks)
        wide, crossed_wide = (
            tuple(map(widths_of, found))
            for found in ([b.attention for b in blocks], [b.cross for b in blocks if b.cross is not None])
        )
        inners = tuple(block.feed_forward.up.out_features for block in blocks)
        whole, widths = config.inner or 4 * config.dim, (config.head_width, config.value_width)
        body.config = replace(
            config,
            kept_heads=kept if any(mine != every for mine in kept) else None,
            kept_cross_heads=crossed if config.memory_dim and any(mine != every for mine in crossed) else None,
            head_widths=wide if any(mine != widths for mine in wide) else None,
            cross_head_widths=crossed_wide if any(mine != widths for mine in crossed_wide) else None,
            ffn_widths=inners if any(mine != whole for mine in inners) else None,
        )
        for layer, block in enumerate(blocks):
            block.kept_heads = None if body.config.kept_heads is None else body.config.kept_heads[layer]
            block.kept_cross_heads = (
                None if body.config.kept_cross_heads is None else body.config.kept_cross_heads[layer]
            )


def _bodies(model: TaskModel) -> list[Encoder | Decoder]:
    body = model.body
    return [body.encoder, body.decoder] if isinstance(body, EncoderDecoder) else [body]


def _stack(body: Encoder | Decoder) -> str:
    return "encoder" if isinstance(body, Encoder) else "decoder"


def widths_of(attention: MultiHeadAttention) -> tuple[int, int]:
    return attention.key_dims[0], attention.value_dims[0]


def _places(block: TransformerBlock) -> list[tuple[str, str, MultiHeadAttention]]:
    """(`encoder.2.self`, `attention`, the attention itself) of a block"""
    found = [(f"{block.address}.self", "attention", block.attention)]
    return found if block.cross is None else [*found, (f"{block.address}.cross", "cross", block.cross)]


def _blocks(model: TaskModel) -> list[TransformerBlock]:
    return [block for body in _bodies(model) for block in body.stack.blocks if isinstance(block, TransformerBlock)]


def _config(model: TaskModel, block: TransformerBlock) -> ModelConfig:
    return configs(model)[block.address.split(".")[0]]


def _group(model: TaskModel, name: str) -> int:
    config = configs(model)[name.split(".")[0]]
    return config.heads // (config.kv_heads or config.heads)
