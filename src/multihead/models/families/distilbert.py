"""DistilBERT (Sanh et al. 2019)."""

from multihead.models.families.bert import ANSWER, TOKENS
from multihead.models.families.spec import Family, Key, Readout, activation_key
from multihead.models.readouts import Classes, Vocabulary

DISTILBERT = Family(
    title="DistilBert",
    prefix="distilbert.",
    encoder={
        "vocab": Key("vocab_size"),
        "max_length": Key("max_position_embeddings", 512),
        "pad": Key("pad_token_id", 0),
        "dim": Key("dim"),
        "layers": Key("n_layers"),
        "heads": Key("n_heads"),
        "inner": Key("hidden_dim"),
        "activation": activation_key("activation", "gelu"),
        "dropout": Key("dropout", 0.1),
        "attention_dropout": Key("attention_dropout", 0.1),
        "tied": Key("tie_word_embeddings", True),
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
        "Model": Readout(),
        "ForMaskedLM": Readout(
            Vocabulary,
            {"bias": True, "transform": True},
            {
                "weight": "vocab_projector.weight",
                "bias": "vocab_projector.bias",
                "transform.0": "vocab_transform",
                "transform.2": "vocab_layer_norm",
            },
        ),
        "ForTokenClassification": TOKENS,
        "ForSequenceClassification": Readout(
            Classes, {"over": "first", "hidden": "relu"}, {"dense": "pre_classifier", "scores": "classifier"}
        ),
        "ForQuestionAnswering": ANSWER,
    },
    harmless=(r"embeddings\.position_ids",),
)
