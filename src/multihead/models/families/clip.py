"""CLIP (Radford et al. 2021): its image tower and its text tower, each a model of its own.

The text tower is causal and is read at the last token of a text, so it is a decoder here. A whole CLIP's files are
split into the two by `split_towers`.
"""

from collections.abc import Mapping

from torch import Tensor

from multihead.models.families.spec import (
    ConfigField,
    Json,
    ModelFamily,
    ReadoutSpec,
    TensorName,
    TensorNames,
    activation_key,
)
from multihead.models.families.vit import VIT
from multihead.models.readouts import ClassifierReadout

assert VIT.encoder is not None
BOTH = {
    "dim": ConfigField("hidden_size"),
    "layers": ConfigField("num_hidden_layers"),
    "heads": ConfigField("num_attention_heads"),
    "inner": ConfigField("intermediate_size"),
    "activation": activation_key("hidden_act", "quick_gelu"),
    "norm_eps": ConfigField("layer_norm_eps", 1e-5),
    "attention_dropout": ConfigField("attention_dropout", 0.0),
    "dropout": 0.0,
    "positions": "learned",
    "norm_first": True,
}
LAYERS: TensorNames = {
    "stack.blocks.{i}.attention.q": "encoder.layers.{i}.self_attn.q_proj",
    "stack.blocks.{i}.attention.k": "encoder.layers.{i}.self_attn.k_proj",
    "stack.blocks.{i}.attention.v": "encoder.layers.{i}.self_attn.v_proj",
    "stack.blocks.{i}.attention.out": "encoder.layers.{i}.self_attn.out_proj",
    "stack.blocks.{i}.attention_norm": "encoder.layers.{i}.layer_norm1",
    "stack.blocks.{i}.feed_forward.up": "encoder.layers.{i}.mlp.fc1",
    "stack.blocks.{i}.feed_forward.down": "encoder.layers.{i}.mlp.fc2",
    "stack.blocks.{i}.feed_forward_norm": "encoder.layers.{i}.layer_norm2",
}
POSITION_IDS = (r"embeddings\.position_ids",)  # a row of numbers that older versions saved

CLIP_VISION = ModelFamily(
    title="CLIPVision",
    prefix="vision_model.",
    encoder={
        **BOTH,
        "stem": "patches",
        "image": VIT.encoder["image"],
        "patch": ConfigField("patch_size", 32, VIT.encoder["patch"].into, kind=VIT.encoder["patch"].kind),
        "channels": ConfigField("num_channels", 3),
        "patch_bias": False,
        "embed_norm": True,
        "interpolate": True,
    },
    tensors={
        **LAYERS,
        "stem.whole": TensorName("embeddings.class_embedding", flat=True),
        "stem.patches": "embeddings.patch_embedding",
        "stem.positions.table": "embeddings.position_embedding.weight",
        "stem.norm": "pre_layrnorm",  # their spelling
        "stack.norm": "post_layernorm",
    },
    readouts={
        "Model": ReadoutSpec(),
        "ModelWithProjection": ReadoutSpec(
            ClassifierReadout, {"over": "first", "bias": False}, {"scores": "visual_projection"}
        ),
    },
    harmless=POSITION_IDS,
)

CLIP_TEXT = ModelFamily(
    title="CLIPText",
    prefix="text_model.",
    decoder={
        **BOTH,
        "vocab": ConfigField("vocab_size", 49_408),
        "max_length": ConfigField("max_position_embeddings", 77),
    },
    tensors={
        **LAYERS,
        "stem.embedding": "embeddings.token_embedding",
        "stem.positions.table": "embeddings.position_embedding.weight",
        "stack.norm": "final_layer_norm",
    },
    readouts={
        "Model": ReadoutSpec(),
        "ModelWithProjection": ReadoutSpec(
            ClassifierReadout, {"over": "last", "bias": False}, {"scores": "text_projection"}
        ),
    },
    harmless=POSITION_IDS,
)


def split_towers(
    config: Json, tensors: Mapping[str, Tensor]
) -> tuple[tuple[Json, dict[str, Tensor]], tuple[Json, dict[str, Tensor]], float]:
    """A whole CLIP as (config.json, tensors) of its image tower, the same of its text tower, and the logits' scale.

    The scale is that of cosines before the softmax: the exponential of the file's `logit_scale`.
    """
    towers = []
    for side, projection in (("vision", "visual_projection"), ("text", "text_projection")):
        inner = config.get(f"{side}_config")
        if not isinstance(inner, dict):
            raise ValueError(f"config.json: {side}_config is missing; a CLIP model has one")
        kind = f"CLIP{side.title()}ModelWithProjection"
        told = {**inner, "model_type": f"clip_{side}_model", "architectures": [kind]}
        told.pop("id2label", None)  # names of two classes that nobody has: the readout is a projection
        told.pop("label2id", None)
        mine = {n: t for n, t in tensors.items() if n.startswith((f"{side}_model.", f"{projection}."))}
        towers.append((told, mine))
    scale = tensors.get("logit_scale")
    if scale is None or scale.numel() != 1:
        raise ValueError("model.safetensors: tensor 'logit_scale' is missing; fetch the model again")
    return towers[0], towers[1], float(scale.exp())
