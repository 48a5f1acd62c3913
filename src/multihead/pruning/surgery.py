"""Removal of heads, columns of heads and feed-forward units from a model, to a smaller dense one, and their
restoration.

An ablated head outputs nothing, so its rows of the q, k, v projections and its columns of the output projection can be
removed; likewise a unit, and single columns of a head's keys (q and k) or values (v). Every attention keeps at least
one
head: the block structure of the file, the KV cache and `watch` is preserved, and the last head costs little. Heads that
share keys are removed together, and all heads of an attention keep equal widths.
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

ColumnsByGroup = tuple[Numbers, ...]  # columns, for every remaining group of heads that share keys


@dataclass(frozen=True)
class PruningPlan:
    """Parts that remain: head numbers by attention (`encoder.2.self`), unit indices by block (`encoder.2`), and by
    attention the columns of keys (and queries) and of values, equally many for every head. Unnamed parts are
    unchanged."""

    heads: dict[str, Numbers] = field(default_factory=dict)
    units: dict[str, Numbers] = field(default_factory=dict)
    keys: dict[str, ColumnsByGroup] = field(default_factory=dict)
    values: dict[str, ColumnsByGroup] = field(default_factory=dict)

    def touches(self, attention: str) -> bool:
        return any(attention in part for part in (self.heads, self.keys, self.values))


def make_plan(model: TaskModel, off: Iterable[str], units: Mapping[str, Numbers] | None = None) -> PruningPlan:
    """Plan the removal of these heads, and of all but these units; of heads that share keys, all or none."""
    left = {name: list(remaining) for name, remaining in numbers(model).items()}
    for address in off:
        name, _ = locate(address, left)
        left[name].remove(int(address.rpartition(".")[2]))
    before = numbers(model)
    for name, remaining in left.items():
        if not remaining:
            raise ValueError(f"{name} would have no head left; keep at least one head of each attention")
        group = _group(model, name)
        torn = next(
            (n for n in remaining if not {m for m in before[name] if m // group == n // group} <= {*remaining}), None
        )
        if torn is not None:
            raise ValueError(f"{name}.{torn} shares its keys with {group - 1} more heads; prune all of them or none")
    heads = {name: tuple(remaining) for name, remaining in left.items() if tuple(remaining) != before[name]}
    return PruningPlan(heads, dict(units or {}))


def apply_plan(
    model: TaskModel, plan: PruningPlan, moments: MomentsByName | None = None
) -> tuple[TaskModel, dict[str, Tensor]]:
    """Return the smaller model, and the removed slices by parameter name.

    moments: of heads and units: the remaining parts then compensate, by least squares, for the removed ones. Without
    them the smaller model equals the full one with those parts ablated.
    """
    smaller = _shell(model)
    removed: dict[str, Tensor] = {}
    for block in _blocks(smaller):
        config = _config(model, block)
        for name, place, attention in _places(block):
            if not plan.touches(name):
                continue
            before = numbers(model)[name]
            head_numbers = plan.heads.get(name, before)
            stay = [before.index(n) for n in head_numbers]
            keys, values = plan.keys.get(name), plan.values.get(name)
            lines = _lines(attention, stay, keys, values)
            K, W = widths_of(attention)
            widths = (len(keys[0]) if keys else K, len(values[0]) if values else W)
            new = make_attention(config, config.memory_dim if place == "cross" else None, head_numbers, widths)
            removed |= _narrow(attention, new, lines, f"{block.address}.{place}")
            if moments is not None:
                gone = removed[f"{block.address}.{place}.out.weight"]
                compensate(new.out, gone, lines["out.weight"][1], moments[name])
                if keys:
                    compensate_keys(attention, new, stay, keys, moments[name + KEYS])
            setattr(block, place, new.train(attention.training))
            if name in plan.heads:
                setattr(block, "kept_cross_heads" if place == "cross" else "kept_heads", head_numbers)
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
    """Restore the heads and units of a pruned model: the removed slices, or (None) zeros, which give the same
    predictions in a shape that families have. whole: the configs before pruning, by stack."""
    larger = _shell(model)
    for block in _blocks(larger):
        stack, layer = block.address.split(".")
        config = whole[stack]
        for name, place, attention in _places(block):
            if not plan.touches(name):
                continue
            crossing = place == "cross"
            by_layer = config.kept_cross_heads if crossing else config.kept_heads
            widths = config.cross_head_widths if crossing else config.head_widths
            original = None if by_layer is None else by_layer[int(layer)]
            before = original or tuple(range(config.heads))
            stay = [before.index(n) for n in plan.heads.get(name, before)]
            memory, wide = config.memory_dim if crossing else None, None if widths is None else widths[int(layer)]
            new = make_attention(config, memory, original, wide)
            lines = _lines(new, stay, plan.keys.get(name), plan.values.get(name))
            _widen(attention, new, lines, f"{block.address}.{place}", removed)
            setattr(block, place, new.train(attention.training))
            setattr(block, "kept_cross_heads" if crossing else "kept_heads", original)
        if block.address in plan.units:
            inner = config.inner or 4 * config.dim if config.ffn_widths is None else config.ffn_widths[int(layer)]
            _thicken(block, inner, list(plan.units[block.address]), removed)
    for body in _bodies(larger):
        body.config = whole[_stack(body)]
    return larger


def plan_of_model(whole: Mapping[str, ModelConfig], model: TaskModel) -> PruningPlan:
    """Return the heads that remain, from the pruned model itself; its units must be known from elsewhere."""
    known = numbers(model)
    heads = {}
    for name, current in known.items():
        stack, layer, kind = name.split(".")
        by_layer = whole[stack].kept_heads if kind == "self" else whole[stack].kept_cross_heads
        before = tuple(range(whole[stack].heads)) if by_layer is None else by_layer[int(layer)]
        if before != current:
            heads[name] = current
    return PruningPlan(heads)


def configs(model: TaskModel) -> dict[str, ModelConfig]:
    """Return the configs by stack."""
    return {_stack(body): body.config for body in _bodies(model)}


def _lines(
    attention: MultiHeadAttention, stay: list[int], keys: ColumnsByGroup | None, values: ColumnsByGroup | None
) -> dict[str, tuple[int, Tensor]]:
    """Map each parameter to its axis of heads, and the lines on it that belong to the heads at these indices."""
    K, W = widths_of(attention)
    size = attention.heads // attention.kv_heads
    groups = sorted({place // size for place in stay})
    full = {"key": tuple(range(K)), "value": tuple(range(W)), "head": (0,)}
    columns = {
        "key": dict(zip(groups, keys or [full["key"]] * len(groups), strict=True)),
        "value": dict(zip(groups, values or [full["value"]] * len(groups), strict=True)),
        "head": dict.fromkeys(groups, full["head"]),
    }
    lines_of = {}
    for name, _ in attention.named_parameters():
        part = name.split(".")[0]
        kind = {"q": "key", "k": "key", "v": "value", "out": "value", "head_scale": "head"}.get(part)
        if kind is None or name == "out.bias":  # q and k norms and the output bias are shared by all heads
            continue
        width, shared = len(full[kind]), part in ("k", "v")
        lines = [
            place * width + column
            for place in (groups if shared else stay)
            for column in columns[kind][place if shared else place // size]
        ]
        lines_of[name] = (1 if part == "out" else 0, torch.tensor(lines, dtype=torch.long))
    return lines_of


def _narrow(
    old: MultiHeadAttention, new: MultiHeadAttention, lines: dict[str, tuple[int, Tensor]], where: str
) -> dict[str, Tensor]:
    removed = {}
    for name, parameter in old.named_parameters():
        data = parameter.data
        if name in lines:
            axis, remaining = lines[name]
            removed[f"{where}.{name}"] = data.index_select(axis, other_columns(data.shape[axis], remaining))
            data = data.index_select(axis, remaining)
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
            axis, remaining = lines[name]
            size = new.get_parameter(name).shape[axis]
            data = _spread(data, axis, size, remaining, None if removed is None else removed[f"{where}.{name}"])
        set_parameter(new, name, data)


def _thin(block: TransformerBlock, stay: list[int]) -> dict[str, Tensor]:
    removed, layer = {}, block.feed_forward
    remaining = torch.tensor(stay, dtype=torch.long)
    for name, parameter in list(layer.named_parameters()):
        if (axis := _axis(name)) is not None:
            rest = other_columns(parameter.shape[axis], remaining)
            removed[f"{block.address}.feed_forward.{name}"] = parameter.data.index_select(axis, rest)
            set_parameter(layer, name, parameter.data.index_select(axis, remaining))
    _sizes(layer)
    return removed


def _thicken(block: TransformerBlock, inner: int, stay: list[int], removed: Mapping[str, Tensor] | None) -> None:
    layer, remaining = block.feed_forward, torch.tensor(stay, dtype=torch.long)
    for name, parameter in list(layer.named_parameters()):
        if (axis := _axis(name)) is not None:
            slices = None if removed is None else removed[f"{block.address}.feed_forward.{name}"]
            set_parameter(layer, name, _spread(parameter.data, axis, inner, remaining, slices))
    _sizes(layer)


def _axis(name: str) -> int | None:
    """Return the axis of a feed-forward parameter that indexes units."""
    return None if name == "down.bias" else int(name.startswith("down"))


def _spread(data: Tensor, axis: int, size: int, indices: Tensor, rest: Tensor | None) -> Tensor:
    """Place data's lines at `indices`, the others from `rest` or 0."""
    shape = list(data.shape)
    shape[axis] = size
    out = data.new_zeros(shape).index_copy(axis, indices, data)
    return out if rest is None else out.index_copy(axis, other_columns(size, indices), rest.to(data.dtype))


def _sizes(layer: nn.Module) -> None:
    for linear in layer.modules():
        if isinstance(linear, nn.Linear):
            linear.out_features, linear.in_features = linear.weight.shape


def _shell(model: TaskModel) -> TaskModel:
    """Copy the modules of a model; parameters are shared until they are replaced."""
    shared = {id(parameter): parameter for parameter in model.parameters()}
    taps = [module for module in model.modules() if getattr(module, "taps", None)]
    if taps:
        raise ValueError("the model is being watched; prune it outside of `with watch(…)` and `with ablate(…)`")
    return deepcopy(model, dict(shared))


def _describe(model: TaskModel) -> None:
    """Update configs to the current blocks."""
    for body in _bodies(model):
        blocks = [block for block in body.stack.blocks if isinstance(block, TransformerBlock)]
        config = copy(body.config)
        every = tuple(range(config.heads))
        head_numbers = tuple(block.kept_heads or every for block in blocks)
        crossed = tuple(block.kept_cross_heads or every for block in blocks)
        wide, crossed_wide = (
            tuple(map(widths_of, group))
            for group in ([b.attention for b in blocks], [b.cross for b in blocks if b.cross is not None])
        )
        inners = tuple(block.feed_forward.up.out_features for block in blocks)
        full, widths = config.inner or 4 * config.dim, (config.head_width, config.value_width)
        body.config = replace(
            config,
            kept_heads=head_numbers if any(value != every for value in head_numbers) else None,
            kept_cross_heads=crossed if config.memory_dim and any(value != every for value in crossed) else None,
            head_widths=wide if any(value != widths for value in wide) else None,
            cross_head_widths=crossed_wide if any(value != widths for value in crossed_wide) else None,
            ffn_widths=inners if any(value != full for value in inners) else None,
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
    """Return (`encoder.2.self`, `attention`, the attention itself) of a block."""
    places = [(f"{block.address}.self", "attention", block.attention)]
    return places if block.cross is None else [*places, (f"{block.address}.cross", "cross", block.cross)]


def _blocks(model: TaskModel) -> list[TransformerBlock]:
    return [block for body in _bodies(model) for block in body.stack.blocks if isinstance(block, TransformerBlock)]


def _config(model: TaskModel, block: TransformerBlock) -> ModelConfig:
    return configs(model)[block.address.split(".")[0]]


def _group(model: TaskModel, name: str) -> int:
    config = configs(model)[name.split(".")[0]]
    return config.heads // (config.kv_heads or config.heads)
