"""Our own layout, for models that are no family's: config.json holds our ModelConfigs, tensors have our names."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import nn

from multihead.models.config import ModelConfig
from multihead.models.crf import Chain
from multihead.models.families.table import Json, Part, Readout, Shape
from multihead.models.families.weights import Plan, shape_of
from multihead.models.readouts import Classes, Model, Vocabulary

OWN = "multihead"  # model_type
KINDS: dict[str, type[Classes] | type[Vocabulary] | None] = {
    "classes": Classes,
    "chain": Chain,
    "vocabulary": Vocabulary,
    "none": None,
}


def own_config(model: Model) -> Json:
    """What config.json says of a model in our layout."""
    encoder, decoder, shared = shape_of(model.body)
    return {
        "model_type": OWN,
        "architectures": ["Multihead"],
        "encoder": None if encoder is None else asdict(encoder),
        "decoder": None if decoder is None else asdict(decoder),
        "shared": shared,
        "readout": readout_options(model.readout),
    }


def own_plan(config: Json) -> Plan:
    sides = [_model_config(config.get(side)) for side in ("encoder", "decoder")]
    told = dict(config.get("readout") or {"kind": "none"})
    kind = told.pop("kind", "none")
    if kind not in KINDS:
        raise ValueError(f"readout {kind!r} is unknown; known: {', '.join(KINDS)}")
    shape = Shape(sides[0], sides[1], bool(config.get("shared")))
    return Plan(shape, Readout(KINDS[kind], told), config, lambda ours, prefix, shape: Part(ours))


def readout_options(readout: nn.Module) -> Json:
    """The kind of a readout and what it was built with."""
    if isinstance(readout, Chain):
        return {"kind": "chain", "bias": readout.scores.bias is not None}
    if isinstance(readout, Classes):
        bias = readout.scores.bias is not None
        return {"kind": "classes", "over": readout.over, "hidden": readout.hidden, "bias": bias}
    if isinstance(readout, Vocabulary):
        return {
            "kind": "vocabulary",
            "bias": readout.bias is not None,
            "transform": readout.transform is not None,
            "scale": readout.scale,
        }
    if isinstance(readout, nn.Identity):
        return {"kind": "none"}
    raise ValueError(f"a {type(readout).__name__} is no readout that can be saved; known: Classes, Chain, Vocabulary")


def _model_config(fields: Any) -> ModelConfig | None:
    if fields is None:
        return None
    try:
        return ModelConfig(**{name: _tuples(value) for name, value in fields.items()})
    except (TypeError, AttributeError) as error:
        raise ValueError(f"encoder or decoder is not one of ours: {error}") from error


def _tuples(value: Any) -> Any:
    """JSON has lists where a frozen record has tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
