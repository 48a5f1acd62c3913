"""T5 (Raffel et al. 2020) and version 1.1, with a gated feed-forward and an untied readout."""

from typing import Any

from multihead.io.type_checks import read_value
from multihead.models.config import ModelConfig
from multihead.models.families.spec import (
    ConfigField,
    Json,
    ModelFamily,
    ReadoutSpec,
    TensorName,
    activation,
    activation_name,
    read_count,
)
from multihead.models.readouts import LMReadout


def inner_activation(theirs: str, config: Json) -> str:
    """Return our activation; "gated-gelu" always means the tanh approximation."""
    return "gelu_tanh" if theirs == "gated-gelu" else activation("feed_forward_proj", theirs.removeprefix("gated-"))


def feed_forward_proj(ours: object, model: ModelConfig) -> str:
    if not model.gated:
        return activation_name(model.activation)
    return "gated-gelu" if model.activation == "gelu_tanh" else f"gated-{activation_name(model.activation)}"


def output_scale(config: Json) -> float:
    """Return the scale before the readout: version 1.0 has one, 1.1 does not; old files imply it by
    `tie_word_embeddings`.
    """
    tied = read_value(config, "tie_word_embeddings", bool, True)
    scaled = read_value(config, "scale_decoder_outputs", bool, tied)
    return float(read_count(config, "d_model") ** -0.5) if scaled else 1.0


def decoder_layers(theirs: int | None, config: Json) -> int:
    return read_count(config, "num_layers") if theirs is None else theirs


def fields(layers: ConfigField) -> dict[str, Any]:
    return {
        "vocab": ConfigField("vocab_size"),
        "pad": ConfigField("pad_token_id", 0),
        "dim": ConfigField("d_model"),
        "layers": layers,
        "heads": ConfigField("num_heads"),
        "key_dim": ConfigField("d_kv"),
        "inner": ConfigField("d_ff"),
        "activation": ConfigField("feed_forward_proj", "relu", inner_activation, feed_forward_proj, str),
        "gated": ConfigField(
            "feed_forward_proj", "relu", lambda name, config: name.startswith("gated-"), feed_forward_proj, str
        ),
        "norm_eps": ConfigField("layer_norm_epsilon", 1e-6),
        "dropout": ConfigField("dropout_rate", 0.1),
        "relative_buckets": ConfigField("relative_attention_num_buckets", 32),
        "relative_farthest": ConfigField("relative_attention_max_distance", 128),
        "tied": ConfigField("tie_word_embeddings", True),
        "positions": "relative",
        "norm": "rms",
        "norm_first": True,
        "attention_bias": "",
        "inner_bias": False,
        "scale": 1.0,
    }


def blocks(side: str, inner: int) -> dict[str, str]:
    """Return the tensor names of one side; a block holds its sublayers in a list, where `inner` is the feed-forward's
    index.
    """
    ours, theirs = f"{side}.stack.blocks.{{i}}", f"{side}.block.{{i}}.layer"
    names = {f"{ours}.attention.{x}": f"{theirs}.0.SelfAttention.{x[0]}" for x in ("q", "k", "v", "out")}
    names |= {f"{ours}.cross.{x}": f"{theirs}.1.EncDecAttention.{x[0]}" for x in ("q", "k", "v", "out")}
    return names | {
        f"{side}.stack.position.table": f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias",
        f"{side}.stack.norm": f"{side}.final_layer_norm",
        f"{ours}.attention_norm": f"{theirs}.0.layer_norm",
        f"{ours}.cross_norm": f"{theirs}.1.layer_norm",
        f"{ours}.feed_forward.up": f"{theirs}.{inner}.DenseReluDense.wi",
        f"{ours}.feed_forward.gate": f"{theirs}.{inner}.DenseReluDense.wi_0",
        f"{ours}.feed_forward.down": f"{theirs}.{inner}.DenseReluDense.wo",
        f"{ours}.feed_forward_norm": f"{theirs}.{inner}.layer_norm",
    }


def gated_names(side: str, inner: int) -> dict[str, str]:
    return {f"{side}.stack.blocks.{{i}}.feed_forward.up": f"{side}.block.{{i}}.layer.{inner}.DenseReluDense.wi_1"}


T5 = ModelFamily(
    title="T5",
    prefix="",
    encoder=fields(ConfigField("num_layers")),
    decoder=fields(ConfigField("num_decoder_layers", None, decoder_layers, kind=int | None)),
    shared=True,
    tensors={
        "encoder.stem.embedding": TensorName("shared", also=("encoder.embed_tokens", "decoder.embed_tokens")),
        "decoder.stem.embedding": "shared",
        **blocks("encoder", inner=1),
        **blocks("decoder", inner=2),
    },
    variants=(
        (
            lambda shape: any(side is not None and side.gated for side in shape[:2]),
            {**gated_names("encoder", 1), **gated_names("decoder", 2)},
        ),
    ),
    readouts={
        "Model": ReadoutSpec(),
        "EncoderModel": ReadoutSpec(only="encoder"),
        "ForConditionalGeneration": ReadoutSpec(LMReadout, {"scale": output_scale}, {"weight": "lm_head.weight"}),
    },
    harmless=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    constants={"is_encoder_decoder": True},
)
