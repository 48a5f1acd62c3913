"""Models assembled in memory: new ones in a family's shape, a body with another readout, two joined models, a causal
model turned into an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from multihead.inference.pipeline import Json, Pipeline
from multihead.models import Decoder, Encoder, EncoderDecoder, LMReadout, ModelConfig, TaskModel, TokenEmbedding
from multihead.models.families import (
    FAMILIES,
    BodyConfig,
    ModelFamily,
    body_config,
    construct,
    difference,
    label_fields,
    make_plan,
    native_config,
)
from multihead.models.meta_init import MetaInit
from multihead.text.tokenizer import Tokenizer


def create(
    model_type: str,
    suffix: str,
    *,
    encoder: ModelConfig | None = None,
    decoder: ModelConfig | None = None,
    shared: bool = True,
    labels: Sequence[str] = (),
    tokenizer: Tokenizer | None = None,
    config: Json | None = None,
) -> Pipeline:
    """Create a model with random weights in a family's shape: create("bart", "ForConditionalGeneration", …).

    config: further fields of config.json (pad_token_id, …).
    """
    family = family_of(model_type)
    shape = BodyConfig(encoder, decoder, shared and encoder is not None and decoder is not None)
    if encoder is not None and decoder is not None:
        shape = shape._replace(decoder=replace(decoder, memory_dim=encoder.dim))
    written = family.write(shape, {"model_type": model_type, **(config or {})})
    written |= {"architectures": [architecture_of(model_type, suffix)], **label_fields(labels)}
    if not family.fits(shape, written, family.readouts[suffix].only):
        raise ValueError(f"this shape is not {model_type}'s: {difference(family, written, shape)}")
    plan = replace(make_plan(family, written, suffix), shape=shape)
    return Pipeline(construct(plan, len(labels)).eval(), written, tokenizer, labels=list(labels))


def with_readout(loaded: Pipeline, suffix: str, labels: Sequence[str] = ()) -> Pipeline:
    """Put a new readout of its family on the same body: with_readout(bert, "ForTokenClassification", ["O", …])."""
    model_type = loaded.config.get("model_type", "")
    family = family_of(model_type)
    config = {name: value for name, value in loaded.config.items() if name not in ("id2label", "label2id")}
    config |= {"architectures": [architecture_of(model_type, suffix)], **label_fields(labels)}
    plan = replace(make_plan(family, config, suffix), shape=body_config(loaded.model.body))
    template = construct(plan, len(labels))
    # A pretrained part of the new readout may have been loaded unused: BERT's pooler.
    for name, parameter in template.readout.named_parameters():
        for prefix in plan.prefixes:
            stored = loaded.unused_tensors.get(plan.place(f"readout.{name}", prefix, plan.shape).name)
            if stored is not None and stored.shape == parameter.shape:
                parameter.data.copy_(stored)
    body = loaded.model.body
    model = TaskModel(body, template.readout)
    stem = body.decoder.stem if isinstance(body, EncoderDecoder) else body.stem
    tied = (plan.shape.decoder or plan.shape.encoder or ModelConfig()).tied
    if isinstance(template.readout, LMReadout) and isinstance(stem, TokenEmbedding) and tied:
        template.readout.weight = stem.embedding.weight
    return replace(
        loaded, model=model.eval(), config=config, labels=list(labels), task=None, unused_tensors={}, tasks=()
    )


def join(encoder: Pipeline, decoder: Pipeline) -> Pipeline:
    """Join a pretrained encoder and a pretrained decoder to an encoder-decoder; its cross-attention is new."""
    reads, writes = encoder.model.body, decoder.model.body
    if isinstance(reads, EncoderDecoder):
        reads = reads.encoder
    if not isinstance(reads, Encoder):
        raise ValueError(f"encoder: a {encoder.architecture} is not an encoder; use one such as BERT")
    if not isinstance(writes, Decoder):
        raise ValueError(f"decoder: a {decoder.architecture} is not a decoder; use one such as GPT-2")
    body = EncoderDecoder(reads.config, writes.config, shared=False)
    body.encoder = reads
    # Share the parameters themselves, not copies: a readout stays tied to its embeddings.
    missing, unexpected = body.decoder.load_state_dict(writes.state_dict(keep_vars=True), strict=False, assign=True)
    assert not unexpected
    assert all(".cross" in name for name in missing)
    model = TaskModel(body, decoder.model.readout).eval()
    return Pipeline(
        model,
        native_config(model),
        tokenizer=encoder.tokenizer,
        target_tokenizer=decoder.tokenizer,
        generation=decoder.generation,
        preprocessor=encoder.preprocessor,
    )


def as_encoder(loaded: Pipeline) -> Pipeline:
    """Turn a causal language model into a bidirectional encoder (BehnamGhader et al. 2024), or return the encoder of an
    encoder-decoder. Other models are returned unchanged."""
    body, tokenizer = loaded.model.body, loaded.tokenizer
    if isinstance(body, EncoderDecoder) and isinstance(body.encoder.stem, TokenEmbedding):
        reads = body.encoder
    elif not isinstance(body, Decoder):
        return loaded
    else:
        with MetaInit():
            reads = Encoder(body.config)
        reads.load_state_dict(body.state_dict(), assign=True)
        tokenizer = None if tokenizer is None else tokenizer.with_pair_separator()
    model = TaskModel(reads, torch.nn.Identity()).eval()
    return Pipeline(model, native_config(model), tokenizer)


def without_readout(loaded: Pipeline) -> Pipeline:
    """Return the same body without a readout, labels or task."""
    config = {name: value for name, value in loaded.config.items() if name not in ("id2label", "label2id")}
    model = TaskModel(loaded.model.body, torch.nn.Identity()).eval()
    if config.get("model_type") in FAMILIES:
        config["architectures"] = [architecture_of(config["model_type"], "Model")]
    else:
        config = native_config(model)
    return replace(loaded, model=model, config=config, labels=[], task=None, options={}, unused_tensors={}, tasks=())


def family_of(model_type: Any) -> ModelFamily:
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ValueError(f"model_type {model_type!r} is not supported; supported: {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


def architecture_of(model_type: str, suffix: str) -> str:
    family = FAMILIES[model_type]
    if suffix not in family.readouts:
        known = ", ".join(family.title + suffix for suffix in family.readouts)
        raise ValueError(f"architecture {suffix!r} of {model_type} is not supported; supported: {known}")
    return family.title + suffix
