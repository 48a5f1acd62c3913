"""GPT-2 (Radford et al. 2019). Its matrices are stored [in, out], and q, k, v as one."""

from multihead.models.families.bert import ANSWER, TOKENS
from multihead.models.families.spec import ConfigField, ModelFamily, ReadoutSpec, TensorName, activation_key
from multihead.models.readouts import ClassifierReadout, LMReadout

GPT2 = ModelFamily(
    title="GPT2",
    prefix="transformer.",
    decoder={
        "vocab": ConfigField("vocab_size"),
        "max_length": ConfigField("n_positions", 1024),
        "dim": ConfigField("n_embd"),
        "layers": ConfigField("n_layer"),
        "heads": ConfigField("n_head"),
        "inner": ConfigField("n_inner", None),
        "activation": activation_key("activation_function", "gelu_new"),
        "norm_eps": ConfigField("layer_norm_epsilon", 1e-5),
        "dropout": ConfigField("resid_pdrop", 0.1),
        "attention_dropout": ConfigField("attn_pdrop", 0.1),
        "tied": ConfigField("tie_word_embeddings", True),
        "positions": "learned",
        "norm_first": True,
    },
    tensors={
        "stem.embedding": "wte",
        "stem.positions.table": "wpe.weight",
        "stack.blocks.{i}.attention.q": TensorName("h.{i}.attn.c_attn", 0, of=3, flipped=True),
        "stack.blocks.{i}.attention.k": TensorName("h.{i}.attn.c_attn", 1, of=3, flipped=True),
        "stack.blocks.{i}.attention.v": TensorName("h.{i}.attn.c_attn", 2, of=3, flipped=True),
        "stack.blocks.{i}.attention.out": TensorName("h.{i}.attn.c_proj", flipped=True),
        "stack.blocks.{i}.attention_norm": "h.{i}.ln_1",
        "stack.blocks.{i}.feed_forward.up": TensorName("h.{i}.mlp.c_fc", flipped=True),
        "stack.blocks.{i}.feed_forward.down": TensorName("h.{i}.mlp.c_proj", flipped=True),
        "stack.blocks.{i}.feed_forward_norm": "h.{i}.ln_2",
        "stack.norm": "ln_f",
    },
    readouts={
        "Model": ReadoutSpec(),
        "LMHeadModel": ReadoutSpec(LMReadout, {}, {"weight": "lm_head.weight"}),
        "ForTokenClassification": TOKENS,
        "ForSequenceClassification": ReadoutSpec(
            ClassifierReadout, {"over": "last", "bias": False}, {"scores": "score"}
        ),
        "ForQuestionAnswering": ANSWER,
    },
    demands={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    harmless=(r"h\.\d+\.attn\.(masked_)?bias",),
)
