"""The native layout, for models of no public family: config.json holds ModelConfigs, tensors have our names."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from torch import nn

from multihead.io.config_ranges import RANGES
from multihead.io.type_checks import check_value, read_value, show
from multihead.models.config import FORMER_FIELDS, ModelConfig, field_types
from multihead.models.crf import CRFReadout
from multihead.models.families.convert import LoadPlan, body_config
from multihead.models.families.spec import BodyConfig, Json, ReadoutSpec, TensorName
from multihead.models.readouts import ClassifierReadout, LMReadout, TaskModel

OWN = "multihead"  # model_type
ARCHITECTURE = "Multihead"
KINDS: dict[str, type[ClassifierReadout] | type[LMReadout] | None] = {
    "classes": ClassifierReadout,
    "chain": CRFReadout,
    "vocabulary": LMReadout,
    "none": None,
}


# The options of each readout, and their types.
OPTIONS: dict[str, dict[str, Any]] = {
    "classes": {
        "over": Literal["tokens", "first", "last", "mean"],
        "hidden": Literal["tanh", "relu", "gelu"] | None,
        "bias": bool,
    },
    "chain": {"bias": bool},
    "vocabulary": {"bias": bool, "transform": bool, "scale": float},
    "none": {},
}


def native_config(model: TaskModel) -> Json:
    """Return the config.json of a model in the native layout."""
    encoder, decoder, shared = body_config(model.body)
    return {
        "model_type": OWN,
        "architectures": [ARCHITECTURE],
        "encoder": None if encoder is None else asdict(encoder),
        "decoder": None if decoder is None else asdict(decoder),
        "shared": shared,
        "readout": readout_options(model.readout),
    }


def native_plan(config: Json) -> LoadPlan:
    """Return the load plan of a native config.json."""
    sides = [_model_config(config, side) for side in ("encoder", "decoder")]
    options = dict(read_value(config, "readout", dict[str, Any] | None, None) or {"kind": "none"})
    kind = options.pop("kind", "none")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"readout: kind is {show(kind)}; known: {', '.join(KINDS)}")
    for name, value in options.items():
        if name not in OPTIONS[kind]:
            raise ValueError(
                f"readout: {name!r} is not an option of {kind!r}; known: {', '.join(OPTIONS[kind]) or 'none'}"
            )
        check_value(f"readout: {name}", value, OPTIONS[kind][name])
    shape = BodyConfig(sides[0], sides[1], bool(read_value(config, "shared", bool | None, None)))
    last = shape.decoder or shape.encoder
    if last is None:
        raise ValueError("encoder and decoder are both missing; add one of them")
    if (KINDS[kind] is LMReadout or shape.decoder is not None) and last.stem != "tokens":
        raise ValueError("a decoder or language model needs a token stem (stem: tokens)")
    return LoadPlan(shape, ReadoutSpec(KINDS[kind], options), config, lambda ours, prefix, shape: TensorName(ours))


def readout_options(readout: nn.Module) -> Json:
    """Return the kind and options of a readout."""
    if isinstance(readout, CRFReadout):
        return {"kind": "chain", "bias": readout.scores.bias is not None}
    if isinstance(readout, ClassifierReadout):
        bias = readout.scores.bias is not None
        return {"kind": "classes", "over": readout.over, "hidden": readout.hidden, "bias": bias}
    if isinstance(readout, LMReadout):
        return {
            "kind": "vocabulary",
            "bias": readout.bias is not None,
            "transform": readout.transform is not None,
            "scale": readout.scale,
        }
    if isinstance(readout, nn.Identity):
        return {"kind": "none"}
    raise ValueError(
        f"{type(readout).__name__} cannot be saved as a readout; known: ClassifierReadout, CRFReadout, LMReadout"
    )


def _model_config(config: Json, side: str) -> ModelConfig | None:
    fields = read_value(config, side, dict[str, Any] | None, None)
    if fields is None:
        return None
    fields = {FORMER_FIELDS.get(name, name): value for name, value in fields.items()}
    for name, value in fields.items():
        if name not in field_types():
            raise ValueError(f"{side}: {name!r} is not a field of ModelConfig; known: {', '.join(field_types())}")
        check_value(f"{side}: {name}", value, field_types()[name], RANGES.get(name))
    try:
        return ModelConfig(**{name: _tuples(value) for name, value in fields.items()})
    except ValueError as error:  # fields that do not go together
        raise ValueError(f"{side}: {error}") from None


def _tuples(value: Any) -> Any:
    """Convert JSON lists to tuples, as the frozen config has them."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
