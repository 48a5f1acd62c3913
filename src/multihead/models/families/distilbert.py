"""DistilBERT (Sanh et al. 2019)."""

from multihead.models.families.bert import ANSWER, TOKENS
from multihead.models.families.spec import ConfigField, ModelFamily, ReadoutSpec, activation_key
from multihead.models.readouts import ClassifierReadout, LMReadout

DISTILBERT = ModelFamily(
    title="DistilBert",
    prefix="distilbert.",
    encoder={
        "vocab": ConfigField("vocab_size"),
        "max_length": ConfigField("max_position_embeddings", 512),
        "pad": ConfigField("pad_token_id", 0),
        "dim": ConfigField("dim"),
        "layers": ConfigField("n_layers"),
        "heads": ConfigField("n_heads"),
        "inner": ConfigField("hidden_dim"),
        "activation": activation_key("activation", "gelu"),
        "dropout": ConfigField("dropout", 0.1),
        "attention_dropout": ConfigField("attention_dropout", 0.1),
        "tied": ConfigField("tie_word_embeddings", True),
        "norm_eps": 1e-12,
        "positions": "learned",
        "embed_norm": True,
    },
    tensors={
        "stem.embedding": "embeddings.word_embeddings",
        "stem.positions.table": "embeddings.position_embeddings.weight",
        "stem.norm": "embeddings.LayerNorm",
        "stack.blocks.{i}.attention.q": "transformer.layer.{i}.attention.q_lin",
        "stack.blocks.{i}.attention.k": "transformer.layer.{i}.attention.k_lin",
        "stack.blocks.{i}.attention.v": "transformer.layer.{i}.attention.v_lin",
        "stack.blocks.{i}.attention.out": "transformer.layer.{i}.attention.out_lin",
        "stack.blocks.{i}.attention_norm": "transformer.layer.{i}.sa_layer_norm",
        "stack.blocks.{i}.feed_forward.up": "transformer.layer.{i}.ffn.lin1",
        "stack.blocks.{i}.feed_forward.down": "transformer.layer.{i}.ffn.lin2",
        "stack.blocks.{i}.feed_forward_norm": "transformer.layer.{i}.output_layer_norm",
    },
    readouts={
        "Model": ReadoutSpec(),
        "ForMaskedLM": ReadoutSpec(
            LMReadout,
            {"bias": True, "transform": True},
            {
                "weight": "vocab_projector.weight",
                "bias": "vocab_projector.bias",
                "transform.0": "vocab_transform",
                "transform.2": "vocab_layer_norm",
            },
        ),
        "ForTokenClassification": TOKENS,
        "ForSequenceClassification": ReadoutSpec(
            ClassifierReadout, {"over": "first", "hidden": "relu"}, {"dense": "pre_classifier", "scores": "classifier"}
        ),
        "ForQuestionAnswering": ANSWER,
    },
    harmless=(r"embeddings\.position_ids",),
)
