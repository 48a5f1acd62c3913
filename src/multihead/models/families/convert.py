"""Apply a family's tables to tensors, in both directions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from multihead.models.embeddings import TokenEmbedding
from multihead.models.families.shapes import Sizes, body_shapes, stored_shape
from multihead.models.families.spec import BodyConfig, Json, ModelFamily, ReadoutSpec, TensorName, readout_place
from multihead.models.meta_init import MetaInit
from multihead.models.readouts import ClassifierReadout, LMReadout, TaskModel
from multihead.models.transformer import Decoder, Encoder, EncoderDecoder

# Names in files from before 2019.
OLD = ((re.compile(r"LayerNorm\.gamma$"), "LayerNorm.weight"), (re.compile(r"LayerNorm\.beta$"), "LayerNorm.bias"))


@dataclass(frozen=True)
class LoadPlan:
    """How a config.json becomes a model: its shape, its readout, and the names of its tensors."""

    shape: BodyConfig
    readout: ReadoutSpec
    config: Json
    place: Callable[[str, str, BodyConfig], TensorName]  # our name, the body's prefix and the shape -> theirs
    prefixes: tuple[str, ...] = ("",)  # that the body's tensors may have; the first is used in export
    harmless: tuple[str, ...] = ()
    alone: str = ""  # the architecture that is the body without a readout


def make_plan(family: ModelFamily, config: Json, suffix: str) -> LoadPlan:
    """Return the plan of one of a family's architectures."""
    readout = family.readouts[suffix]
    shape = family.read(config, readout.only)

    def place(ours: str, prefix: str, shape: BodyConfig) -> TensorName:
        room, _, name = ours.partition(".")
        if room == "readout":
            return readout_place(readout, name, prefix, shape)
        return family.place(f"{readout.only}.{name}" if readout.only else name, prefix, shape)

    prefixes = (family.prefix, "") if readout.kind else ("", family.prefix)
    harmless = list(family.harmless)
    if readout.kind is None:  # the file may also hold a readout: its tensors are harmless
        theirs = (part for spec in family.readouts.values() for part in spec.tensors.values())
        names = {name for part in theirs for name in ((part,) if isinstance(part, str) else (part.name, *part.also))}
        harmless += [re.escape(name.removeprefix("{body}")) + r"(\.\w+)?" for name in sorted(names)]
    if readout.only:
        harmless.append(rf"{'decoder' if readout.only == 'encoder' else 'encoder'}\..*")
    return LoadPlan(shape, readout, config, place, prefixes, tuple(harmless), alone=f"{family.title}Model")


def construct(plan: LoadPlan, classes: int = 0) -> TaskModel:
    """Return a new model of a plan, with random weights."""
    encoder, decoder, shared = plan.shape
    body: Encoder | Decoder | EncoderDecoder
    if encoder and decoder:
        body = EncoderDecoder(encoder, decoder, shared)
    elif encoder:
        body = Encoder(encoder)
    elif decoder:
        body = Decoder(decoder)
    else:
        raise ValueError("neither encoder nor decoder")
    last = body.decoder if isinstance(body, EncoderDecoder) else body
    options = {name: value(plan.config) if callable(value) else value for name, value in plan.readout.options.items()}
    if plan.readout.kind is LMReadout:
        table = cast(TokenEmbedding, last.stem).embedding.weight if last.config.tied else None
        return TaskModel(body, LMReadout(last.config, cast(nn.Parameter | None, table), **options))
    if plan.readout.kind is not None and issubclass(plan.readout.kind, ClassifierReadout):
        kind = plan.readout.kind
        return TaskModel(
            body, kind(last.config.dim, plan.readout.classes or classes, dropout=last.config.dropout, **options)
        )
    return TaskModel(body, nn.Identity())


def check_shapes(plan: LoadPlan, sizes: Sizes, where: str) -> None:
    """Compare every size in the config of a body with the tensors of a file, by their shapes alone.

    A tied tensor may be stored under the other tensor's name; `load_tensors` finds it, or reports what is missing.
    """
    known = {_current_name(name): name for name in sizes}
    prefix = _prefix(plan, known, where)
    for ours, shape in body_shapes(plan.shape):
        part = plan.place(f"body.{ours}", prefix, plan.shape)
        stored = next((name for name in (part.name, *part.also) if name in known), None)
        if stored is not None:
            _check_shape(where, known[stored], sizes[known[stored]], stored_shape(shape, part))
        elif not ours.endswith("embedding.weight"):
            raise ValueError(f"{where}: tensor {part.name!r} is missing")
        else:
            _check_tied(plan, prefix, {name: sizes[old] for name, old in known.items()}, where, shape)


def _check_tied(plan: LoadPlan, prefix: str, sizes: Sizes, where: str, shape: list[int]) -> None:
    """Check an embedding table without a tensor of its own against the readout's, or the other side's."""
    places = ["readout.weight"] if plan.readout.kind is LMReadout else []
    places += [f"body.{side}.stem.embedding.weight" for side in ("encoder", "decoder") if plan.shape.shared]
    parts = [plan.place(name, prefix, plan.shape) for name in places]
    stored = next((name for part in parts for name in (part.name, *part.also) if name in sizes), None)
    if stored is None:
        raise ValueError(f"{where}: the embedding table is missing")
    _check_shape(where, stored, sizes[stored], shape)


def load_tensors(
    plan: LoadPlan, tensors: Mapping[str, Tensor], where: str, dtype: torch.dtype | None = None
) -> tuple[TaskModel, dict[str, Tensor]]:
    """Return the model with these weights, memory-mapped from their file, and the harmless tensors it does not need.

    Nothing is initialized: modules are made without storage, then assigned their tensors.
    """
    known = {_current_name(name): name for name in tensors}
    prefix = _prefix(plan, known, where)
    plan = _has_own_readout(plan, prefix, {name: tensors[old] for name, old in known.items()})
    with MetaInit():
        model = construct(plan, _classes(plan, prefix, known, tensors, where))
    used: set[str] = set()
    for names, parameter in _groups(model):
        part, others = _parts(plan, names, prefix)
        stored = [name for name in (part.name, *others) if name in known]
        if not stored:
            hint = _hint(plan) if names[0].startswith("readout.") else ""
            raise ValueError(f"{where}: tensor {part.name!r} is missing{hint}")
        theirs = tensors[known[stored[0]]]
        _check(where, known[stored[0]], theirs, stored_shape(parameter.shape, part))
        for alias in stored[1:]:
            if not _same(theirs, tensors[known[alias]]):
                raise ValueError(
                    f"{where}: tensor {known[alias]!r} differs from {known[stored[0]]!r}, which it is tied to"
                )
        ours = _slice_tensor(theirs, part)
        new = nn.Parameter(ours if dtype is None else ours.to(dtype))
        for name in names:
            module, _, leaf = name.rpartition(".")
            model.get_submodule(module)._parameters[leaf] = new
        used.update(stored)
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    return model.eval(), _leftovers(
        plan,
        {name: tensors[old] for name, old in known.items() if name not in used},
        where,
    )


def export_tensors(plan: LoadPlan, model: TaskModel) -> dict[str, Tensor]:
    """Return the model's tensors under the family's names, tied ones once."""
    groups: dict[str, tuple[TensorName, list[Tensor]]] = {}
    for names, parameter in _groups(model):
        part, _ = _parts(plan, names, plan.prefixes[0])
        groups.setdefault(part.name, (part, []))[1].append(parameter.detach())
    return {name: _join_parts(part, tensors) for name, (part, tensors) in groups.items()}


def body_config(body: nn.Module) -> BodyConfig:
    """Return the configuration of a body."""
    if isinstance(body, EncoderDecoder):
        return BodyConfig(body.encoder.config, body.decoder.config, body.shared)
    if isinstance(body, Encoder):
        return BodyConfig(body.config, None, False)
    if isinstance(body, Decoder):
        return BodyConfig(None, body.config, False)
    raise ValueError(f"{type(body).__name__} is not a supported body; use Encoder, Decoder or EncoderDecoder")


def _groups(model: TaskModel) -> Iterator[tuple[list[str], nn.Parameter]]:
    """Yield every parameter once, with all its names."""
    names: dict[int, tuple[list[str], nn.Parameter]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), ([], parameter))[0].append(name)
    yield from names.values()


def _parts(plan: LoadPlan, names: list[str], prefix: str) -> tuple[TensorName, list[str]]:
    """Return the name of a parameter in the file, and its alternative names."""
    parts = [plan.place(name, prefix, plan.shape) for name in names]
    others = dict.fromkeys(name for part in parts for name in (part.name, *part.also))
    return parts[0], [name for name in others if name != parts[0].name]


def _prefix(plan: LoadPlan, known: Mapping[str, str], where: str) -> str:
    """Return the body's prefix in this file: the prefix of its embeddings."""
    side = plan.shape.encoder or plan.shape.decoder
    path = "body.encoder.stem" if plan.shape.encoder and plan.shape.decoder else "body.stem"
    kind = "tokens" if side is None else side.stem
    anchor = {"tokens": "embedding.weight", "patches": "patches.weight", "audio": "first.weight"}[kind]
    for prefix in plan.prefixes:
        part = plan.place(f"{path}.{anchor}", prefix, plan.shape)
        if any(name in known for name in (part.name, *part.also)):
            return prefix
    for prefix in filter(None, plan.prefixes):  # tied embeddings may be stored under the readout's name only
        if any(name.startswith(prefix) for name in known):
            return prefix
    expected = plan.place(f"{path}.{anchor}", plan.prefixes[0], plan.shape).name
    raise ValueError(f"{where}: tensor {expected!r} is missing")


def _has_own_readout(plan: LoadPlan, prefix: str, tensors: Mapping[str, Tensor]) -> LoadPlan:
    """Return the plan untied where a file holds a separate readout although its config ties it (T5 1.1)."""
    encoder, decoder, shared = plan.shape
    last = decoder or encoder
    if plan.readout.kind is not LMReadout or last is None or not last.tied:
        return plan
    readout_weight = tensors.get(plan.place("readout.weight", prefix, plan.shape).name)
    path = "body.decoder.stem" if encoder and decoder else "body.stem"
    stem = plan.place(f"{path}.embedding.weight", prefix, plan.shape)
    table = next((tensors[name] for name in (stem.name, *stem.also) if name in tensors), None)
    if readout_weight is None or table is None or _same(readout_weight, table):
        return plan
    new = replace(last, tied=False)
    return replace(plan, shape=BodyConfig(encoder, new, shared) if decoder else BodyConfig(new, None, shared))


def _classes(plan: LoadPlan, prefix: str, known: Mapping[str, str], tensors: Mapping[str, Tensor], where: str) -> int:
    """Return the number of classes in the file."""
    if plan.readout.kind is None or not issubclass(plan.readout.kind, ClassifierReadout):
        return 0
    name = plan.place("readout.scores.weight", prefix, plan.shape).name
    if name not in known:
        raise ValueError(f"{where}: tensor {name!r} is missing{_hint(plan)}")
    scores = tensors[known[name]]
    if scores.dim() != 2 or not len(scores):
        raise ValueError(
            f"{where}: tensor {known[name]!r} is {list(scores.shape)}, a classifier's weight is [classes, width]"
        )
    return len(scores)


def _hint(plan: LoadPlan) -> str:
    return f"; load(…, architecture={plan.alone!r}) loads the body only" if plan.alone else ""


def _leftovers(plan: LoadPlan, rest: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Return the unused tensors, if all of them are known to be harmless."""
    pattern = re.compile(
        "|".join(f"(?:{p})" for prefix in plan.prefixes for p in (re.escape(prefix) + h for h in plan.harmless))
        or r"(?!)"
    )
    strange = [name for name in rest if not pattern.fullmatch(name)]
    if strange:
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        raise ValueError(f"{where}: tensor {strange[0]!r}{more} is not part of this architecture; nothing was loaded")
    return dict(rest)


def _current_name(name: str) -> str:
    for pattern, new in OLD:
        name = pattern.sub(new, name)
    return name


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and (a.data_ptr() == b.data_ptr() or torch.equal(a, b))


def _check_shape(where: str, name: str, theirs: Sequence[int], want: list[int]) -> None:
    if list(theirs) != want:
        raise ValueError(f"{where}: tensor {name!r} is {list(theirs)}, config.json requires {want}")


def _check(where: str, name: str, theirs: Tensor, want: list[int]) -> None:
    _check_shape(where, name, theirs.shape, want)
    if not theirs.is_floating_point():
        raise ValueError(f"{where}: tensor {name!r} is {theirs.dtype}; weights must be floating-point")


def _slice_tensor(theirs: Tensor, part: TensorName) -> Tensor:
    """Return our tensor from theirs; copy only where it is transposed."""
    ours = (
        theirs[None, None]
        if part.flat
        else theirs[0]
        if part.lead
        else theirs.t()
        if part.flipped and theirs.dim() == 2
        else theirs
    )
    return ours.chunk(part.of)[part.index].contiguous()


def _join_parts(part: TensorName, tensors: list[Tensor]) -> Tensor:
    """Return their tensor from ours; the parts of a fused one come in the order of our modules: q, k, v."""
    ours = torch.cat(tensors) if part.of > 1 else tensors[0]
    if part.flat:
        return ours.flatten()
    return ours[None] if part.lead else ours.t() if part.flipped and ours.dim() == 2 else ours
