"""BART (Lewis et al. 2020)."""

from typing import Any

from multihead.models.families.spec import (
    EMBED_SCALE,
    ConfigField,
    ModelFamily,
    ReadoutSpec,
    TensorName,
    activation_key,
)
from multihead.models.readouts import ClassifierReadout, LMReadout


def fields(side: str, **more: Any) -> dict[str, Any]:
    """Return the config fields that Marian and Whisper name alike."""
    return {
        "dim": ConfigField("d_model"),
        "layers": ConfigField(f"{side}_layers"),
        "heads": ConfigField(f"{side}_attention_heads"),
        "inner": ConfigField(f"{side}_ffn_dim"),
        "pad": ConfigField("pad_token_id", None),
        "activation": activation_key("activation_function", "gelu"),
        "dropout": ConfigField("dropout", 0.1),
        "attention_dropout": ConfigField("attention_dropout", 0.0),
        **more,
    }


def layers(side: str) -> dict[str, str]:
    """Return the tensor names of one side's blocks, which Marian and Whisper share."""
    ours, theirs = f"{side}.stack.blocks.{{i}}", f"{side}.layers.{{i}}"
    names = {
        f"{ours}.{kind}.{letter}": f"{theirs}.{name}.{letter}_proj"
        for kind, name in (("attention", "self_attn"), ("cross", "encoder_attn"))
        for letter in ("q", "k", "v", "out")
    }
    return names | {
        f"{ours}.attention_norm": f"{theirs}.self_attn_layer_norm",
        f"{ours}.cross_norm": f"{theirs}.encoder_attn_layer_norm",
        f"{ours}.feed_forward.up": f"{theirs}.fc1",
        f"{ours}.feed_forward.down": f"{theirs}.fc2",
        f"{ours}.feed_forward_norm": f"{theirs}.final_layer_norm",
    }


def text(side: str) -> dict[str, Any]:
    return fields(
        side,
        vocab=ConfigField("vocab_size"),
        max_length=ConfigField("max_position_embeddings", 1024),
        embed_scale=EMBED_SCALE,
        tied=ConfigField("tie_word_embeddings", True),
        positions="learned",
        position_offset=2,
        embed_norm=True,
    )


SHARED = {
    side + ".stem.embedding": TensorName("shared", also=("encoder.embed_tokens", "decoder.embed_tokens"))
    for side in ("encoder", "decoder")
}
WRITE = ReadoutSpec(
    LMReadout, {"bias": True}, {"weight": "lm_head.weight", "bias": TensorName("final_logits_bias", lead=True)}
)

BART = ModelFamily(
    title="Bart",
    prefix="model.",
    encoder=text("encoder"),
    decoder=text("decoder"),
    shared=True,
    tensors={
        **SHARED,
        **layers("encoder"),
        **layers("decoder"),
        "encoder.stem.positions.table": "encoder.embed_positions.weight",
        "decoder.stem.positions.table": "decoder.embed_positions.weight",
        "encoder.stem.norm": "encoder.layernorm_embedding",
        "decoder.stem.norm": "decoder.layernorm_embedding",
    },
    readouts={
        "Model": ReadoutSpec(),
        "ForConditionalGeneration": WRITE,
        "ForSequenceClassification": ReadoutSpec(
            ClassifierReadout,
            {"over": "last", "hidden": "tanh"},
            {"dense": "classification_head.dense", "scores": "classification_head.out_proj"},
        ),
        "ForQuestionAnswering": ReadoutSpec(ClassifierReadout, {"over": "tokens"}, {"scores": "qa_outputs"}, classes=2),
    },
    constants={"is_encoder_decoder": True},
)
