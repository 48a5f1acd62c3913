"""Marian (Junczys-Dowmunt et al. 2018), the OPUS translators: BART without learned positions and embedding norm."""

from multihead.io.type_checks import read_value
from multihead.models.families.bart import SHARED, WRITE, fields, layers
from multihead.models.families.spec import EMBED_SCALE, ConfigField, Json, ModelFamily, ReadoutSpec, read_count


def target_vocab(theirs: int | None, config: Json) -> int:
    shared = read_value(config, "share_encoder_decoder_embeddings", bool, True)
    return read_count(config, "vocab_size") if theirs is None or shared else theirs


TEXT = {
    "max_length": ConfigField("max_position_embeddings", 1024),
    "embed_scale": EMBED_SCALE,
    "tied": ConfigField("tie_word_embeddings", True),
    "positions": "sinusoidal",
}

APART = {"encoder.stem.embedding": "encoder.embed_tokens", "decoder.stem.embedding": "decoder.embed_tokens"}

MARIAN = ModelFamily(
    title="Marian",
    prefix="model.",
    encoder=fields("encoder", vocab=ConfigField("vocab_size"), **TEXT),
    decoder=fields("decoder", vocab=ConfigField("decoder_vocab_size", None, target_vocab, kind=int | None), **TEXT),
    shared=ConfigField("share_encoder_decoder_embeddings", True),
    tensors={**SHARED, **layers("encoder"), **layers("decoder")},
    variants=((lambda shape: not shape.shared, APART),),
    readouts={"Model": ReadoutSpec(), "MTModel": WRITE},
    harmless=(r"(encoder|decoder)\.embed_positions\.weight",),  # sines; older files hold them
    constants={"is_encoder_decoder": True},
)
