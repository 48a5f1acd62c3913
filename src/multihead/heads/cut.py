"""Cutting heads and feed-forward units out of a model, into a smaller dense one, and putting them back.

A head that is switched off mixes nothing, so its rows of the q, k, v projections and its columns of the output
projection can go; a unit that is off likewise. Every attention keeps at least one head: a block then stays a block,
in the file, in the cache and under `watch`, and the last head costs little. Heads that share keys go together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from multihead.attention import MultiHeadAttention
from multihead.models import Block, Decoder, Encoder, EncoderDecoder, Model, ModelConfig
from multihead.models.block import attention_of
from multihead.watch import locate, numbers

Numbers = tuple[int, ...]
RIDGE = 1e-2  # of the mean variance: what few data seem to say is not believed too much


@dataclass(frozen=True)
class Moment:
    """Of what goes into a projection: mean [F], and covariance [F, F] where it is known."""

    mean: Tensor
    spread: Tensor | None = None


Moments = Mapping[str, Moment]  # by attention (its heads' outputs side by side), by block (its units)


@dataclass(frozen=True)
class Cut:
    """What stays: numbers of heads by attention (`encoder.2.self`), places of units by block (`encoder.2`).
    What is not named stays whole."""

    heads: dict[str, Numbers] = field(default_factory=dict)
    units: dict[str, Numbers] = field(default_factory=dict)


def cut_of(model: Model, off: Iterable[str], units: Mapping[str, Numbers] | None = None) -> Cut:
    """A cut that takes these heads out; of heads that share keys, all or none."""
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
    return Cut(heads, dict(units or {}))


def cut(model: Model, plan: Cut, moments: Moments | None = None) -> tuple[Model, dict[str, Tensor]]:
    """The smaller model, and the slices that were taken out, by the names of the parameters they belong to.

    moments: how the heads and units go together: what is left then takes over, by least squares, what it can of what
    goes. Without them the smaller model is the whole one with those parts switched off.
    """
    smaller = _shell(model)
    removed: dict[str, Tensor] = {}
    for block in _blocks(smaller):
        for kind, place in (("self", "attention"), ("cross", "cross")):
            name, attention = f"{block.address}.{kind}", getattr(block, place)
            if attention is None or name not in plan.heads:
                continue
            before = numbers(model)[name]
            stay = [before.index(n) for n in plan.heads[name]]
            config = _config(model, block)
            new = attention_of(config, config.memory_dim if kind == "cross" else None, plan.heads[name])
            removed |= _narrow(attention, new, stay, f"{block.address}.{place}")
            if moments is not None:
                mine = _lines(attention, stay)["out.weight"][1]
                _take_over(new.out, removed[f"{block.address}.{place}.out.weight"], mine, moments[name])
            setattr(block, place, new.train(attention.training))
            setattr(block, "kept" if kind == "self" else "cross_kept", plan.heads[name])
        if block.address in plan.units:
            stay = list(plan.units[block.address])
            removed |= _thin(block, stay)
            if moments is not None:
                gone = removed[f"{block.address}.feed_forward.down.weight"]
                _take_over(block.feed_forward.down, gone, torch.tensor(stay), moments[block.address])
    _describe(smaller)
    return smaller, removed


def filled(model: Model, whole: Mapping[str, ModelConfig], plan: Cut, removed: Mapping[str, Tensor] | None) -> Model:
    """A pruned model with its heads and units back in place: the slices that were removed, or (None) zeros, which give
    the same answers in a shape that families have. whole: the configs before the cut, by stack."""
    larger = _shell(model)
    for block in _blocks(larger):
        stack, layer = block.address.split(".")
        config = whole[stack]
        for kind, place in (("self", "attention"), ("cross", "cross")):
            name, attention = f"{block.address}.{kind}", getattr(block, place)
            if attention is None or name not in plan.heads:
                continue
            kept = config.kept if kind == "self" else config.cross_kept
            before = tuple(range(config.heads)) if kept is None else kept[int(layer)]
            stay = [before.index(n) for n in plan.heads[name]]
            new = attention_of(config, config.memory_dim if kind == "cross" else None, None if kept is None else before)
            _widen(attention, new, stay, f"{block.address}.{place}", removed)
            setattr(block, place, new.train(attention.training))
            setattr(block, "kept" if kind == "self" else "cross_kept", None if kept is None else before)
        if block.address in plan.units:
            inner = config.inner or 4 * config.dim if config.inners is None else config.inners[int(layer)]
            _thicken(block, inner, list(plan.units[block.address]), removed)
    for body in _bodies(larger):
        body.config = whole[_stack(body)]
    return larger


def plan_from(whole: Mapping[str, ModelConfig], model: Model) -> Cut:
    """The heads that stayed, as the pruned model itself says; its units must be known from elsewhere."""
    known = numbers(model)
    heads = {}
    for name, mine in known.items():
        stack, layer, kind = name.split(".")
        kept = whole[stack].kept if kind == "self" else whole[stack].cross_kept
        before = tuple(range(whole[stack].heads)) if kept is None else kept[int(layer)]
        if before != mine:
            heads[name] = mine
    return Cut(heads)


def configs(model: Model) -> dict[str, ModelConfig]:
    """By stack."""
    return {_stack(body): body.config for body in _bodies(model)}


def _lines(attention: MultiHeadAttention, stay: list[int]) -> dict[str, tuple[int, Tensor]]:
    """parameter -> its axis that heads stand on, and which of its lines belong to the heads at these places"""
    K, W = attention.key_dims[0], attention.value_dims[0]
    group = attention.heads // attention.kv_heads
    groups = sorted({place // group for place in stay})
    found = {}
    for name, _ in attention.named_parameters():
        part = name.split(".")[0]
        width = {"q": K, "k": K, "v": W, "out": W, "head_scale": 1}.get(part)
        if width is None or name == "out.bias":  # norms of q and k, the output's bias: all heads share them
            continue
        places = groups if part in ("k", "v") else stay
        lines = torch.tensor([place * width + i for place in places for i in range(width)], dtype=torch.long)
        found[name] = (1 if part == "out" else 0, lines)
    return found


def _narrow(old: MultiHeadAttention, new: MultiHeadAttention, stay: list[int], where: str) -> dict[str, Tensor]:
    removed, lines = {}, _lines(old, stay)
    for name, parameter in old.named_parameters():
        data = parameter.data
        if name in lines:
            axis, mine = lines[name]
            removed[f"{where}.{name}"] = data.index_select(axis, _rest(data.shape[axis], mine))
            data = data.index_select(axis, mine)
        _put(new, name, data)
    return removed


def _widen(
    old: MultiHeadAttention,
    new: MultiHeadAttention,
    stay: list[int],
    where: str,
    removed: Mapping[str, Tensor] | None,
) -> None:
    lines = _lines(new, stay)
    for name, parameter in old.named_parameters():
        data = parameter.data
        if name in lines:
            axis, mine = lines[name]
            size = new.get_parameter(name).shape[axis]
            data = _spread(data, axis, size, mine, None if removed is None else removed[f"{where}.{name}"])
        _put(new, name, data)


def _thin(block: Block, stay: list[int]) -> dict[str, Tensor]:
    removed, layer = {}, block.feed_forward
    mine = torch.tensor(stay, dtype=torch.long)
    for name, parameter in list(layer.named_parameters()):
        if (axis := _axis(name)) is not None:
            rest = _rest(parameter.shape[axis], mine)
            removed[f"{block.address}.feed_forward.{name}"] = parameter.data.index_select(axis, rest)
            _put(layer, name, parameter.data.index_select(axis, mine))
    _sizes(layer)
    return removed


def _thicken(block: Block, inner: int, stay: list[int], removed: Mapping[str, Tensor] | None) -> None:
    layer, mine = block.feed_forward, torch.tensor(stay, dtype=torch.long)
    for name, parameter in list(layer.named_parameters()):
        if (axis := _axis(name)) is not None:
            slices = None if removed is None else removed[f"{block.address}.feed_forward.{name}"]
            _put(layer, name, _spread(parameter.data, axis, inner, mine, slices))
    _sizes(layer)


def _axis(name: str) -> int | None:
    """On which axis of a feed-forward parameter the units stand."""
    return None if name == "down.bias" else int(name.startswith("down"))


def _spread(data: Tensor, axis: int, size: int, mine: Tensor, rest: Tensor | None) -> Tensor:
    """data's lines at `mine`, the others from `rest` or 0"""
    shape = list(data.shape)
    shape[axis] = size
    out = data.new_zeros(shape).index_copy(axis, mine, data)
    return out if rest is None else out.index_copy(axis, _rest(size, mine), rest.to(data.dtype))


def _take_over(projection: nn.Linear, gone: Tensor, mine: Tensor, moment: Moment) -> None:
    """The inputs at `mine` stand for what the columns that are gone would have added: as far as they foretell it, and
    its mean. A projection without a bias cannot hold a mean; there, products about zero are foretold."""
    rest = _rest(len(moment.mean), mine)
    mean, spread = moment.mean.double(), moment.spread
    added = torch.zeros(len(rest), len(mine), dtype=torch.double)  # [gone, left]
    if spread is not None:
        spread = spread.double() if projection.bias is not None else spread.double() + torch.outer(mean, mean)
        inner = spread[mine][:, mine]
        inner.diagonal().add_(RIDGE * inner.diagonal().mean() + 1e-12)
        added = torch.linalg.solve(inner, spread[mine][:, rest]).T
    weight, columns = projection.weight.data, gone.double()
    _put(projection, "weight", (weight.double() + columns @ added).to(weight.dtype))
    if projection.bias is not None:
        bias = projection.bias.data
        _put(projection, "bias", (bias.double() + columns @ (mean[rest] - added @ mean[mine])).to(bias.dtype))


def _rest(size: int, mine: Tensor) -> Tensor:
    others = torch.ones(size, dtype=torch.bool)
    others[mine] = False
    return others.nonzero()[:, 0]


def _put(module: nn.Module, name: str, data: Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    module.get_submodule(path)._parameters[leaf] = nn.Parameter(data.contiguous())


def _sizes(layer: nn.Module) -> None:
    for linear in layer.modules():
        if isinstance(linear, nn.Linear):
            linear.out_features, linear.in_features = linear.weight.shape


def _shell(model: Model) -> Model:
    """The same model in new modules; parameters are shared until they are replaced."""
    shared = {id(parameter): parameter for parameter in model.parameters()}
    taps = [module for module in model.modules() if getattr(module, "taps", None)]
    if taps:
        raise ValueError("the model is being watched; cut it outside of `with watch(…)` and `with ablate(…)`")
    return deepcopy(model, dict(shared))


def _describe(model: Model) -> None:
    """Configs that say what the blocks now are."""
    for body in _bodies(model):
        blocks = [block for block in body.stack.blocks if isinstance(block, Block)]
        config = copy(body.config)
        every = tuple(range(config.heads))
        kept = tuple(block.kept or every for block in blocks)
        crossed = tuple(block.cross_kept or every for block in blocks)
        inners = tuple(block.feed_forward.up.out_features for block in blocks)
        whole = config.inner or 4 * config.dim
        body.config = replace(
            config,
            kept=kept if any(mine != every for mine in kept) else None,
            cross_kept=crossed if config.memory_dim and any(mine != every for mine in crossed) else None,
            inners=inners if any(mine != whole for mine in inners) else None,
        )
        for layer, block in enumerate(blocks):
            block.kept = None if body.config.kept is None else body.config.kept[layer]
            block.cross_kept = None if body.config.cross_kept is None else body.config.cross_kept[layer]


def _bodies(model: Model) -> list[Encoder | Decoder]:
    body = model.body
    return [body.encoder, body.decoder] if isinstance(body, EncoderDecoder) else [body]


def _stack(body: Encoder | Decoder) -> str:
    return "encoder" if isinstance(body, Encoder) else "decoder"


def _blocks(model: Model) -> list[Block]:
    return [block for body in _bodies(model) for block in body.stack.blocks if isinstance(block, Block)]


def _config(model: Model, block: Block) -> ModelConfig:
    return configs(model)[block.address.split(".")[0]]


def _group(model: Model, name: str) -> int:
    config = configs(model)[name.split(".")[0]]
    return config.heads // (config.kv_heads or config.heads)
