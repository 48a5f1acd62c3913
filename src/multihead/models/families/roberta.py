"""RoBERTa (Liu et al. 2019) and XLM-R: BERT's body, with positions counted from after the padding token's id."""

from dataclasses import replace

from multihead.models.families.bert import ANSWER, BODY, FIELDS, TOKENS
from multihead.models.families.spec import ConfigField, ModelFamily, ReadoutSpec, TensorName, read_count
from multihead.models.readouts import ClassifierReadout, LMReadout

ROBERTA = ModelFamily(
    title="Roberta",
    prefix="roberta.",
    encoder={
        **FIELDS,
        "pad": ConfigField("pad_token_id", 1),
        "position_offset": ConfigField(
            "pad_token_id", 1, lambda pad, config: pad + 1, lambda offset, model: offset - 1, int
        ),
        "max_length": ConfigField(
            "max_position_embeddings",
            514,
            lambda rows, config: rows - read_count(config, "pad_token_id", 1) - 1,
            lambda length, model: length + model.position_offset,
        ),
    },
    tensors=BODY,
    readouts={
        "Model": ReadoutSpec(),
        "ForMaskedLM": ReadoutSpec(
            LMReadout,
            {"bias": True, "transform": True},
            {
                "weight": "lm_head.decoder.weight",
                "bias": TensorName("lm_head.bias", also=("lm_head.decoder.bias",)),
                "transform.0": "lm_head.dense",
                "transform.2": "lm_head.layer_norm",
            },
            untied={"bias": "lm_head.decoder.bias"},
        ),
        "ForTokenClassification": TOKENS,
        "ForSequenceClassification": ReadoutSpec(
            ClassifierReadout,
            {"over": "first", "hidden": "tanh"},
            {"dense": "classifier.dense", "scores": "classifier.out_proj"},
        ),
        "ForQuestionAnswering": ANSWER,
    },
    # Its language-model readout is always gelu, so another activation would make body and readout differ.
    demands={
        "hidden_act": "gelu",
        "is_decoder": False,
        "add_cross_attention": False,
        "position_embedding_type": "absolute",
    },
    harmless=(r"pooler\.dense\.\w+", r"embeddings\.position_ids", r"lm_head\.bias"),
)

XLM_ROBERTA = replace(ROBERTA, title="XLMRoberta")
