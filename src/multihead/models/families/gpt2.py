"""GPT-2 (Radford et al. 2019). Its matrices are stored [in, out], and q, k, v as one."""

from multihead.models.families.bert import ANSWER, TOKENS
from multihead.models.families.spec import Family, Key, Part, Readout, activation_key
from multihead.models.readouts import Classes, Vocabulary

GPT2 = Family(
    title="GPT2",
    prefix="transformer.",
    decoder={
        "vocab": Key("vocab_size"),
        "max_length": Key("n_positions", 1024),
        "dim": Key("n_embd"),
        "layers": Key("n_layer"),
        "heads": Key("n_head"),
        "inner": Key("n_inner", None),
        "activation": activation_key("activation_function", "gelu_new"),
        "norm_eps": Key("layer_norm_epsilon", 1e-5),
        "dropout": Key("resid_pdrop", 0.1),
        "attention_dropout": Key("attn_pdrop", 0.1),
        "tied": Key("tie_word_embeddings", True),
        "positions": "learned",
        "norm_first": True,
    },
    tensors={
        "stem.embedding": "wte",
        "stem.positions.table": "wpe.weight",
        "stack.blocks.{i}.attention.q": Part("h.{i}.attn.c_attn", 0, of=3, flipped=True),
        "stack.blocks.{i}.attention.k": Part("h.{i}.attn.c_attn", 1, of=3, flipped=True),
        "stack.blocks.{i}.attention.v": Part("h.{i}.attn.c_attn", 2, of=3, flipped=True),
        "stack.blocks.{i}.attention.out": Part("h.{i}.attn.c_proj", flipped=True),
        "stack.blocks.{i}.attention_norm": "h.{i}.ln_1",
        "stack.blocks.{i}.feed_forward.up": Part("h.{i}.mlp.c_fc", flipped=True),
        "stack.blocks.{i}.feed_forward.down": Part("h.{i}.mlp.c_proj", flipped=True),
        "stack.blocks.{i}.feed_forward_norm": "h.{i}.ln_2",
        "stack.norm": "ln_f",
    },
    readouts={
        "Model": Readout(),
        "LMHeadModel": Readout(Vocabulary, {}, {"weight": "lm_head.weight"}),
        "ForTokenClassification": TOKENS,
        "ForSequenceClassification": Readout(Classes, {"over": "last", "bias": False}, {"scores": "score"}),
        "ForQuestionAnswering": ANSWER,
    },
    demands={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    harmless=(r"h\.\d+\.attn\.(masked_)?bias",),
)
