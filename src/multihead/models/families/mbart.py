"""mBART (Liu et al. 2020): BART with pre-norm blocks, and a norm after the last one."""

from dataclasses import replace

from multihead.models.families.bart import BART, text

LAST = {"encoder.stack.norm": "encoder.layer_norm", "decoder.stack.norm": "decoder.layer_norm"}

MBART = replace(
    BART,
    title="MBart",
    encoder={**text("encoder"), "norm_first": True},
    decoder={**text("decoder"), "norm_first": True},
    tensors={**BART.tensors, **LAST},
)
