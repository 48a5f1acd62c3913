"""ViT (Dosovitskiy et al. 2021)."""

from multihead.models.families.spec import ConfigField, Json, ModelFamily, ReadoutSpec, TensorName, activation_key
from multihead.models.readouts import ClassifierReadout

SIDES = int | tuple[int, int]  # of a square, or height and width


def sides(theirs: int | list[int], config: Json) -> tuple[int, int]:
    height, width = (theirs, theirs) if isinstance(theirs, int) else theirs
    return height, width


def square(theirs: int | list[int], config: Json) -> int:
    height, width = sides(theirs, config)
    if height != width:
        raise ValueError(f"patch_size is {theirs}; only square patches are supported")
    return height


VIT = ModelFamily(
    title="ViT",
    prefix="vit.",
    encoder={
        "stem": "patches",
        "image": ConfigField(
            "image_size", 224, sides, lambda image, model: image[0] if image[0] == image[1] else list(image), SIDES
        ),
        "patch": ConfigField("patch_size", 16, square, kind=SIDES),
        "channels": ConfigField("num_channels", 3),
        "dim": ConfigField("hidden_size"),
        "layers": ConfigField("num_hidden_layers"),
        "heads": ConfigField("num_attention_heads"),
        "inner": ConfigField("intermediate_size"),
        "activation": activation_key("hidden_act", "gelu"),
        "norm_eps": ConfigField("layer_norm_eps", 1e-12),
        "attention_bias": ConfigField(
            "qkv_bias", True, lambda yes, config: "qkvo" if yes else "o", lambda letters, model: "q" in letters, bool
        ),
        "dropout": ConfigField("hidden_dropout_prob", 0.0),
        "attention_dropout": ConfigField("attention_probs_dropout_prob", 0.0),
        "positions": "learned",
        "norm_first": True,
    },
    tensors={
        "stem.whole": "embeddings.cls_token",
        "stem.patches": "embeddings.patch_embeddings.projection",
        "stem.positions.table": TensorName("embeddings.position_embeddings", lead=True),
        "stack.blocks.{i}.attention.q": "encoder.layer.{i}.attention.attention.query",
        "stack.blocks.{i}.attention.k": "encoder.layer.{i}.attention.attention.key",
        "stack.blocks.{i}.attention.v": "encoder.layer.{i}.attention.attention.value",
        "stack.blocks.{i}.attention.out": "encoder.layer.{i}.attention.output.dense",
        "stack.blocks.{i}.attention_norm": "encoder.layer.{i}.layernorm_before",
        "stack.blocks.{i}.feed_forward.up": "encoder.layer.{i}.intermediate.dense",
        "stack.blocks.{i}.feed_forward.down": "encoder.layer.{i}.output.dense",
        "stack.blocks.{i}.feed_forward_norm": "encoder.layer.{i}.layernorm_after",
        "stack.norm": "layernorm",
    },
    readouts={
        "Model": ReadoutSpec(),
        "ForImageClassification": ReadoutSpec(ClassifierReadout, {"over": "first"}, {"scores": "classifier"}),
    },
    harmless=(r"pooler\.dense\.\w+",),
)
