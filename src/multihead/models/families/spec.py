"""The specification of a model family: its config.json fields, tensor names and readouts.

Everything is data. A table only maps *our* names to theirs; `ModelFamily.read`, `ModelFamily.write` and `convert.py`
apply it in both directions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from multihead.io.config_ranges import COUNT, RANGES
from multihead.io.type_checks import describe, read_value, show
from multihead.models.config import ModelConfig, field_types
from multihead.models.readouts import ClassifierReadout, LMReadout

Json = dict[str, Any]
REQUIRED: Any = object()

# their names of activations; of several, the first is used in export
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True)
class ConfigField:
    """A field of config.json; `into` converts their value to ours, `back` ours to theirs.

    kind: the type of their value where it differs from our field's.
    """

    name: str
    default: Any = REQUIRED
    into: Callable[[Any, Json], Any] = lambda theirs, config: theirs
    back: Callable[[Any, ModelConfig], Any] = lambda ours, model: ours
    kind: Any = None

    def read(self, config: Json, ours: str) -> Any:
        """Return our value after checking theirs; ours: the ModelConfig field that it becomes."""
        kind, limits = (field_types()[ours] if self.kind is None else self.kind), RANGES.get(ours)
        if self.default is REQUIRED and self.name not in config:
            raise ValueError(f"{self.name} is missing; allowed is {describe(kind, limits)}")
        return self.into(read_value(config, self.name, kind, self.default, limits), config)


def activation_key(name: str, default: str) -> ConfigField:
    """Return a field that names an activation."""
    return ConfigField(
        name, default, lambda theirs, config: activation(name, theirs), lambda ours, model: activation_name(ours), str
    )


def activation(name: str, theirs: str) -> str:
    if theirs not in ACTIVATIONS:
        raise ValueError(f"{name} is {show(theirs)}, which is not supported; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[theirs]


def activation_name(ours: str) -> str:
    return next(theirs for theirs, name in ACTIVATIONS.items() if name == ours)


# Embeddings are multiplied by the square root of the width, or not at all.
EMBED_SCALE = ConfigField(
    "scale_embedding",
    False,
    lambda yes, config: read_count(config, "d_model") ** 0.5 if yes else 1.0,
    lambda scale, model: scale != 1.0,
    bool,
)


def read_count(config: Json, name: str, default: int | None = None) -> int:
    """Return a size in config.json that another field depends on."""
    return int(read_value(config, name, int, default, (0, COUNT)))


@dataclass(frozen=True)
class TensorName:
    """Where our tensor is in theirs: under this name, as part `index` of `of` along the outputs."""

    name: str
    index: int = 0
    of: int = 1
    flipped: bool = False  # matrices are stored [in, out]
    lead: bool = False  # stored with a first axis of 1
    flat: bool = False  # stored as [D] what is [1, 1, D] here
    also: tuple[str, ...] = ()  # other names of the same tensor, in some files


TensorNames = Mapping[str, str | TensorName]  # ours -> theirs; of a tensor, or of a module for all that is in it


@dataclass(frozen=True)
class ReadoutSpec:
    """The readout of one architecture. In tensor names, {body} is the body's prefix."""

    kind: type[ClassifierReadout] | type[LMReadout] | None = None  # None: the body alone
    options: Mapping[str, Any] = field(default_factory=dict)  # for `kind`; a function takes config.json
    tensors: TensorNames = field(default_factory=dict)
    untied: TensorNames = field(default_factory=dict)  # other names where the readout is not tied to the embeddings
    classes: int | None = None  # None: as many as there are labels
    only: str | None = None  # "encoder": the file has no decoder


class BodyConfig(NamedTuple):
    """The body that a config.json describes."""

    encoder: ModelConfig | None
    decoder: ModelConfig | None
    shared: bool  # encoder and decoder share one embedding table


@dataclass(frozen=True)
class ModelFamily:
    """One public model family. An architecture's name is `title` plus a key of `readouts`."""

    title: str
    prefix: str  # of the body's tensors in files that also hold a readout
    tensors: TensorNames
    readouts: Mapping[str, ReadoutSpec]
    encoder: Mapping[str, Any] | None = None  # field of ModelConfig -> ConfigField, or a constant
    decoder: Mapping[str, Any] | None = None
    shared: ConfigField | bool = False
    variants: tuple[tuple[Callable[[BodyConfig], bool], TensorNames], ...] = ()  # other names for some shapes
    demands: Mapping[str, Any] = field(default_factory=dict)  # another value means different mathematics: raises
    harmless: tuple[str, ...] = ()  # patterns of tensors in some files that are not needed
    constants: Mapping[str, Any] = field(default_factory=dict)  # further entries of config.json

    def read(self, config: Json, only: str | None = None) -> BodyConfig:
        """Return the body's configuration from config.json; `only`: one side of an encoder-decoder."""
        for name, value in self.demands.items():
            if config.get(name, value) != value:
                raise ValueError(f"{name} is {show(config[name])}, which is not supported, only {value!r}")
        sides: dict[str, ModelConfig | None] = {}
        for side, fields in (("encoder", self.encoder), ("decoder", self.decoder)):
            use = fields is not None and only in (None, side)
            sides[side] = _model_config(fields or {}, config) if use else None
        encoder, decoder = sides["encoder"], sides["decoder"]
        if encoder and decoder:
            decoder = replace(decoder, memory_dim=encoder.dim)
        shared = self.shared.read(config, "tied") if isinstance(self.shared, ConfigField) else self.shared
        return BodyConfig(encoder, decoder, bool(shared and encoder and decoder))

    def write(self, shape: BodyConfig, before: Json | None = None) -> Json:
        """Return config.json for a body, on top of `before`; fields with the same meaning stay unchanged."""
        config = {**self.constants, **(before or {})}
        described = dict(zip(("encoder", "decoder"), self._described_configs(before), strict=True))
        for side, model, fields in (("encoder", shape[0], self.encoder), ("decoder", shape[1], self.decoder)):
            for name, key in (fields or {}).items():
                if model is not None and isinstance(key, ConfigField):
                    known, new = described[side], _resolve_defaults(model)
                    old = None if known is None else _resolve_defaults(known)
                    if old is None or getattr(old, name) != getattr(new, name):
                        config[key.name] = key.back(getattr(new, name), new)
        if isinstance(self.shared, ConfigField):
            config[self.shared.name] = shape.shared
        return config

    def _described_configs(self, config: Json | None) -> tuple[ModelConfig | None, ModelConfig | None]:
        """Return the configs in config.json, or None where it is incomplete."""
        try:
            return self.read(config or {})[:2]
        except ValueError:
            return None, None

    def fits(self, shape: BodyConfig, config: Json, only: str | None = None) -> bool:
        """Return whether config.json describes everything about the shape that affects outputs."""
        try:
            described = self.read(config, only)
        except ValueError:
            return False
        return all(
            (a is None) == (b is None) and (a is None or b is None or inference_fields(a) == inference_fields(b))
            for a, b in zip(described[:2], shape[:2], strict=True)
        ) and (described.shared == shape.shared)

    def place(self, ours: str, prefix: str, shape: BodyConfig) -> TensorName:
        """Return the name in the file of our body tensor (its name without "body.")."""
        names = dict(self.tensors)
        for applies, others in self.variants:
            if applies(shape):
                names |= others
        return _lookup(names, ours, prefix, prefix)


def difference(family: ModelFamily, config: Json, shape: BodyConfig) -> str:
    """Return the first property of a shape that a family's config.json cannot express."""
    described = family.read(config)
    for side, a, b in (("encoder", described.encoder, shape.encoder), ("decoder", described.decoder, shape.decoder)):
        if a is None or b is None:
            if a is not b:
                return f"it has {'no' if b is None else 'an'} {side}"
            continue
        a, b = inference_fields(a), inference_fields(b)
        for name in ("stem", "positions", *a.__dataclass_fields__):
            if getattr(a, name) != getattr(b, name):
                return f"{side}: {name} = {getattr(b, name)!r}, not {getattr(a, name)!r}"
    return f"encoder and decoder have {'one embedding table' if shape.shared else 'two embedding tables'}"


def readout_place(readout: ReadoutSpec, ours: str, prefix: str, shape: BodyConfig) -> TensorName:
    """Return the name in the file of our readout tensor (its name without "readout.")."""
    last = shape.decoder or shape.encoder
    tied = last is not None and last.tied
    return _lookup(readout.tensors if tied else {**readout.tensors, **readout.untied}, ours, prefix, "")


def _lookup(names: TensorNames, ours: str, body: str, before: str) -> TensorName:
    layer = re.search(r"blocks\.(\d+)\.", ours)
    name = ours if layer is None else ours.replace(layer[0], "blocks.{i}.")
    module, _, leaf = name.rpartition(".")
    entry, tail = (names[name], "") if name in names else (names.get(module), f".{leaf}")
    if entry is None:
        raise ValueError(f"tensor {ours} is not part of this family")
    part = TensorName(entry) if isinstance(entry, str) else entry

    def full(theirs: str) -> str:
        return before + theirs.format(i=layer and layer[1], body=body) + tail

    return replace(part, name=full(part.name), also=tuple(full(name) for name in part.also))


def _model_config(fields: Mapping[str, Any], config: Json) -> ModelConfig:
    values = {name: key.read(config, name) if isinstance(key, ConfigField) else key for name, key in fields.items()}
    try:
        return ModelConfig(**values)
    except ValueError as error:  # fields that do not fit together, by our names; add theirs
        theirs = {name: key.name for name, key in fields.items() if isinstance(key, ConfigField)}
        named = [f"{name} is {theirs[name]}" for name in theirs if re.search(rf"\b{name}\b", str(error))]
        raise ValueError(f"{error} ({', '.join(named)} here)" if named else str(error)) from None


def _resolve_defaults(model: ModelConfig) -> ModelConfig:
    """Return the config with every None that stands for a default replaced by it."""
    width = model.head_width
    return replace(
        model,
        kv_heads=model.kv_heads or model.heads,
        key_dim=width,
        value_dim=model.value_dim or width,
        inner=model.inner or 4 * model.dim,
        final_norm=model.norm_first if model.final_norm is None else model.final_norm,
        scale=width**-0.5 if model.scale is None else model.scale,
    )


def inference_fields(model: ModelConfig) -> ModelConfig:
    """Return the config without fields that affect no output: dropout, and fields of absent parts."""
    plain, drop = ModelConfig(), ["dropout", "attention_dropout", "pad", "tied"]
    if model.stem != "tokens":
        drop += ["vocab", "token_types", "embed_scale"]
    if model.stem == "audio":
        drop += ["embed_norm"]
    if model.stem == "patches":
        drop += ["max_length"]
    else:
        drop += ["image", "patch", "channels", "patch_bias", "interpolate"]
    if model.stem != "audio":
        drop += ["mels"]
    if model.positions not in ("learned", "sinusoidal"):
        drop += ["max_length"]
    if model.positions != "learned":
        drop += ["position_offset"]
    if model.positions != "rotary":
        drop += ["rotary_theta", "rotary_scaling"]
    if model.positions != "relative":
        drop += ["relative_buckets", "relative_farthest"]
    return replace(_resolve_defaults(model), **{name: getattr(plain, name) for name in drop})
