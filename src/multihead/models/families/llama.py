"""Llama (Touvron et al. 2023; SmolLM2 is one), Mistral (Jiang et al. 2023) and Qwen2 (Yang et al. 2024)."""

from dataclasses import replace
from typing import Any

from multihead.io.config_ranges import RANGES, SCALING_RANGES
from multihead.io.type_checks import check_value, read_value, show
from multihead.models.config import ModelConfig
from multihead.models.families.spec import ConfigField, Json, ModelFamily, ReadoutSpec, activation_key, read_count
from multihead.models.readouts import ClassifierReadout, LMReadout

SCALING = {
    "factor": "factor",
    "low_freq_factor": "low",
    "high_freq_factor": "high",
    "beta_fast": "fast",
    "beta_slow": "slow",
    "attention_factor": "gain",
    "original_max_position_embeddings": "original",
}


OPTIONAL_OBJECT = dict[str, Any] | None


def rope_parameters(config: Json) -> Json:
    return read_value(config, "rope_parameters", OPTIONAL_OBJECT, None) or {}


def theta(theirs: float | None, config: Json) -> float:
    """Return the rotary base; newer configs have it in rope_parameters."""
    moved = read_value(rope_parameters(config), "rope_theta", float | None, None, RANGES["rotary_theta"])
    return float(theirs or moved or 10_000.0)


def read_scaling(theirs: Json | None, config: Json) -> Json | None:
    rope = theirs or rope_parameters(config)
    kind = rope.get("rope_type", rope.get("type", "default"))
    rest = {name: value for name, value in rope.items() if name not in ("rope_type", "type", "rope_theta")}
    unknown = [name for name, value in rest.items() if name not in SCALING and value not in (None, 1.0)]
    if kind not in ("default", "linear", "llama3", "yarn") or unknown:
        raise ValueError(f"rope scaling {show(rope)} is not supported; known: linear, llama3, yarn")
    if kind == "default":
        return None
    known = {SCALING[name]: value for name, value in rest.items() if name in SCALING and value is not None}
    for name, ours in SCALING.items():
        if ours in known:
            check_value(f"rope {name}", known[ours], int if ours == "original" else float, SCALING_RANGES[ours])
    if kind != "linear":
        known.setdefault("original", read_count(config, "max_position_embeddings", 2048))
    return {"kind": kind, **known}


def write_scaling(ours: Json | None, model: ModelConfig) -> Json | None:
    if ours is None:
        return None
    theirs = {ours_name: name for name, ours_name in SCALING.items()}
    return {"rope_type": ours["kind"], **{theirs[name]: ours[name] for name in ours if name != "kind"}}


def window(theirs: int | None, config: Json) -> int | None:
    """Return the sliding window. Qwen2 may use one in its upper layers only, which is not supported."""
    if not read_value(config, "use_sliding_window", bool | None, None) or theirs is None:
        return None
    layers, first = read_count(config, "num_hidden_layers"), read_count(config, "max_window_layers", 28)
    layer_types = read_value(config, "layer_types", list[str] | None, None)
    kinds = set(layer_types or ["full_attention"] * (first > 0) + ["sliding_attention"] * (first < layers))
    if len(kinds) > 1:
        raise ValueError("layer_types: a window in some layers and none in others is not supported")
    return theirs if "sliding_attention" in kinds else None


FIELDS: dict[str, Any] = {
    "vocab": ConfigField("vocab_size"),
    "max_length": ConfigField("max_position_embeddings", 2048),
    "pad": ConfigField("pad_token_id", None),
    "dim": ConfigField("hidden_size"),
    "layers": ConfigField("num_hidden_layers"),
    "heads": ConfigField("num_attention_heads"),
    "kv_heads": ConfigField("num_key_value_heads", None),
    "key_dim": ConfigField("head_dim", None),
    "inner": ConfigField("intermediate_size"),
    "activation": activation_key("hidden_act", "silu"),
    "norm_eps": ConfigField("rms_norm_eps", 1e-6),
    "attention_dropout": ConfigField("attention_dropout", 0.0),
    "tied": ConfigField("tie_word_embeddings", False),
    "rotary_theta": ConfigField("rope_theta", None, theta, kind=float | None),
    "rotary_scaling": ConfigField("rope_scaling", None, read_scaling, write_scaling, OPTIONAL_OBJECT),
    "positions": "rotary",
    "norm": "rms",
    "norm_first": True,
    "gated": True,
    "dropout": 0.0,
}

LLAMA = ModelFamily(
    title="Llama",
    prefix="model.",
    decoder={
        **FIELDS,
        "attention_bias": ConfigField(
            "attention_bias", False, lambda yes, config: "qkvo" * yes, lambda letters, model: letters == "qkvo", bool
        ),
        "inner_bias": ConfigField("mlp_bias", False),
    },
    tensors={
        "stem.embedding": "embed_tokens",
        "stack.blocks.{i}.attention.q": "layers.{i}.self_attn.q_proj",
        "stack.blocks.{i}.attention.k": "layers.{i}.self_attn.k_proj",
        "stack.blocks.{i}.attention.v": "layers.{i}.self_attn.v_proj",
        "stack.blocks.{i}.attention.out": "layers.{i}.self_attn.o_proj",
        "stack.blocks.{i}.attention_norm": "layers.{i}.input_layernorm",
        "stack.blocks.{i}.feed_forward.gate": "layers.{i}.mlp.gate_proj",
        "stack.blocks.{i}.feed_forward.up": "layers.{i}.mlp.up_proj",
        "stack.blocks.{i}.feed_forward.down": "layers.{i}.mlp.down_proj",
        "stack.blocks.{i}.feed_forward_norm": "layers.{i}.post_attention_layernorm",
        "stack.norm": "norm",
    },
    readouts={
        "Model": ReadoutSpec(),
        "ForCausalLM": ReadoutSpec(LMReadout, {}, {"weight": "lm_head.weight"}),
        "ForTokenClassification": ReadoutSpec(ClassifierReadout, {"over": "tokens"}, {"scores": "score"}),
        "ForSequenceClassification": ReadoutSpec(
            ClassifierReadout, {"over": "last", "bias": False}, {"scores": "score"}
        ),
    },
    harmless=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
)

MISTRAL = replace(
    LLAMA,
    title="Mistral",
    decoder={**FIELDS, "attention_bias": "", "inner_bias": False, "window": ConfigField("sliding_window", 4096)},
)

QWEN2 = replace(
    LLAMA,
    title="Qwen2",
    decoder={
        **FIELDS,
        "attention_bias": "qkv",
        "inner_bias": False,
        "window": ConfigField("sliding_window", None, window, kind=int | None),
    },
)
