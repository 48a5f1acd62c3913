"""Whisper (Radford et al. 2022). Keys have no bias; the encoder's positions are sines, but stored.

`scale_embedding` is in its config.json, but transformers does not use it, so neither do we.
"""

from multihead.models.families.bart import fields, layers
from multihead.models.families.spec import ConfigField, ModelFamily, ReadoutSpec
from multihead.models.readouts import LMReadout

BOTH = {"positions": "learned", "norm_first": True, "attention_bias": "qvo"}

WHISPER = ModelFamily(
    title="Whisper",
    prefix="model.",
    encoder=fields(
        "encoder",
        stem="audio",
        mels=ConfigField("num_mel_bins", 80),
        max_length=ConfigField("max_source_positions", 1500),
        **BOTH,
    ),
    decoder=fields(
        "decoder",
        vocab=ConfigField("vocab_size"),
        max_length=ConfigField("max_target_positions", 448),
        tied=ConfigField("tie_word_embeddings", True),
        **BOTH,
    ),
    tensors={
        **layers("encoder"),
        **layers("decoder"),
        "encoder.stem.first": "encoder.conv1",
        "encoder.stem.second": "encoder.conv2",
        "encoder.stem.positions.table": "encoder.embed_positions.weight",
        "encoder.stack.norm": "encoder.layer_norm",
        "decoder.stem.embedding": "decoder.embed_tokens",
        "decoder.stem.positions.table": "decoder.embed_positions.weight",
        "decoder.stack.norm": "decoder.layer_norm",
    },
    readouts={
        "Model": ReadoutSpec(),
        "ForConditionalGeneration": ReadoutSpec(LMReadout, {}, {"weight": "proj_out.weight"}),
    },
    constants={"is_encoder_decoder": True},
)
