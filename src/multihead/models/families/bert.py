"""BERT (Devlin et al. 2019)."""

from multihead.models.families.spec import ConfigField, ModelFamily, ReadoutSpec, TensorName, activation_key
from multihead.models.readouts import ClassifierReadout, LMReadout

# RoBERTa's body has the same names.
BODY = {
    "stem.embedding": "embeddings.word_embeddings",
    "stem.positions.table": "embeddings.position_embeddings.weight",
    "stem.types": "embeddings.token_type_embeddings",
    "stem.norm": "embeddings.LayerNorm",
    "stack.blocks.{i}.attention.q": "encoder.layer.{i}.attention.self.query",
    "stack.blocks.{i}.attention.k": "encoder.layer.{i}.attention.self.key",
    "stack.blocks.{i}.attention.v": "encoder.layer.{i}.attention.self.value",
    "stack.blocks.{i}.attention.out": "encoder.layer.{i}.attention.output.dense",
    "stack.blocks.{i}.attention_norm": "encoder.layer.{i}.attention.output.LayerNorm",
    "stack.blocks.{i}.feed_forward.up": "encoder.layer.{i}.intermediate.dense",
    "stack.blocks.{i}.feed_forward.down": "encoder.layer.{i}.output.dense",
    "stack.blocks.{i}.feed_forward_norm": "encoder.layer.{i}.output.LayerNorm",
}

FIELDS = {
    "vocab": ConfigField("vocab_size"),
    "max_length": ConfigField("max_position_embeddings", 512),
    "token_types": ConfigField("type_vocab_size", 2),
    "pad": ConfigField("pad_token_id", 0),
    "dim": ConfigField("hidden_size"),
    "layers": ConfigField("num_hidden_layers"),
    "heads": ConfigField("num_attention_heads"),
    "inner": ConfigField("intermediate_size"),
    "activation": activation_key("hidden_act", "gelu"),
    "norm_eps": ConfigField("layer_norm_eps", 1e-12),
    "dropout": ConfigField("hidden_dropout_prob", 0.1),
    "attention_dropout": ConfigField("attention_probs_dropout_prob", 0.1),
    "tied": ConfigField("tie_word_embeddings", True),
    "positions": "learned",
    "embed_norm": True,
}

TOKENS = ReadoutSpec(ClassifierReadout, {"over": "tokens"}, {"scores": "classifier"})
ANSWER = ReadoutSpec(ClassifierReadout, {"over": "tokens"}, {"scores": "qa_outputs"}, classes=2)
MASKED = ReadoutSpec(
    LMReadout,
    {"bias": True, "transform": True},
    {
        "weight": "cls.predictions.decoder.weight",
        "bias": TensorName("cls.predictions.bias", also=("cls.predictions.decoder.bias",)),
        "transform.0": "cls.predictions.transform.dense",
        "transform.2": "cls.predictions.transform.LayerNorm",
    },
    untied={"bias": "cls.predictions.decoder.bias"},
)

BERT = ModelFamily(
    title="Bert",
    prefix="bert.",
    encoder=FIELDS,
    tensors=BODY,
    readouts={
        "Model": ReadoutSpec(),
        "ForMaskedLM": MASKED,
        "ForPreTraining": MASKED,
        "ForTokenClassification": TOKENS,
        "ForSequenceClassification": ReadoutSpec(
            ClassifierReadout,
            {"over": "first", "hidden": "tanh"},
            {"dense": "{body}pooler.dense", "scores": "classifier"},
        ),
        "ForQuestionAnswering": ANSWER,
    },
    demands={"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"},
    harmless=(
        r"pooler\.dense\.\w+",
        r"embeddings\.position_ids",
        r"cls\.seq_relationship\.\w+",
        r"cls\.predictions\.bias",
    ),
)
