"""Every family in several shapes: random models made by transformers give the same numbers here, and go back out."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from multihead.attention import KVCache
from multihead.generation import GenerationConfig, decode, greedy
from multihead.inference.defaults import generation_options
from multihead.models import Decoder, EncoderDecoder, ModelConfig
from multihead.pretrained import load, save

transformers = pytest.importorskip("transformers")
CLOSE = {"rtol": 0.0, "atol": 1e-4}

V, LIMIT = 41, 8  # vocabulary; tokens to write
PAD = 1

TEXT = {"vocab_size": V, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
        "intermediate_size": 20, "max_position_embeddings": 24}  # fmt: skip
BERT = {**TEXT, "pad_token_id": PAD}
DISTIL = {"vocab_size": V, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 20, "max_position_embeddings": 24,
          "pad_token_id": PAD}  # fmt: skip
GPT2 = {"vocab_size": V, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 24,
        "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": PAD}  # fmt: skip
LLAMA = {**TEXT, "num_attention_heads": 6, "num_key_value_heads": 2, "pad_token_id": PAD,
         "bos_token_id": 0, "eos_token_id": 2}  # fmt: skip
PAIR = {"vocab_size": V, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 28, "max_position_embeddings": 24,
        "pad_token_id": PAD, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
        "forced_eos_token_id": None}  # fmt: skip
T5 = {"vocab_size": V, "d_model": 24, "d_kv": 5, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 3, "d_ff": 20,
      "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9, "pad_token_id": PAD,
      "eos_token_id": 2, "decoder_start_token_id": PAD}  # fmt: skip
VIT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20, "image_size": 8,
       "patch_size": 4}  # fmt: skip
WHISPER = {**{k: v for k, v in PAIR.items() if k != "max_position_embeddings"}, "max_source_positions": 7,
           "max_target_positions": 24, "num_mel_bins": 5, "begin_suppress_tokens": None}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 16}  # fmt: skip
LABELS = {"id2label": {0: "O", 1: "B-人", 2: "I-人"}, "label2id": {"O": 0, "B-人": 1, "I-人": 2}}

# name -> (architecture, config)
ENCODERS = {
    "bert": ("BertForMaskedLM", BERT),
    "bert body, 1 layer, relu": ("BertModel", {**BERT, "num_hidden_layers": 1, "hidden_act": "relu"}),
    "bert untied": ("BertForMaskedLM", {**BERT, "tie_word_embeddings": False, "type_vocab_size": 3}),
    "bert tokens": ("BertForTokenClassification", {**BERT, **LABELS}),
    "bert sequence": ("BertForSequenceClassification", {**BERT, **LABELS}),
    "bert answer": ("BertForQuestionAnswering", BERT),
    "roberta": ("RobertaForMaskedLM", BERT),
    "roberta pad 3": ("RobertaModel", {**BERT, "pad_token_id": 3, "type_vocab_size": 1}),
    "roberta tokens": ("RobertaForTokenClassification", {**BERT, **LABELS}),
    "roberta sequence": ("RobertaForSequenceClassification", {**BERT, **LABELS}),
    "roberta answer": ("RobertaForQuestionAnswering", BERT),
    "xlm-roberta": ("XLMRobertaForTokenClassification", {**BERT, **LABELS}),
    "distilbert": ("DistilBertForMaskedLM", DISTIL),
    "distilbert body": ("DistilBertModel", {**DISTIL, "n_heads": 2, "activation": "relu"}),
    "distilbert tokens": ("DistilBertForTokenClassification", {**DISTIL, **LABELS}),
    "distilbert sequence": ("DistilBertForSequenceClassification", {**DISTIL, **LABELS}),
    "distilbert answer": ("DistilBertForQuestionAnswering", DISTIL),
    "t5 encoder": ("T5EncoderModel", T5),
}
DECODERS = {
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt2 untied, n_inner": ("GPT2LMHeadModel", {**GPT2, "tie_word_embeddings": False, "n_inner": 20}),
    "gpt2 body, 1 head": ("GPT2Model", {**GPT2, "n_head": 1}),
    "gpt2 tokens": ("GPT2ForTokenClassification", {**GPT2, **LABELS}),
    "gpt2 sequence": ("GPT2ForSequenceClassification", {**GPT2, **LABELS}),
    "llama": ("LlamaForCausalLM", LLAMA),
    "llama tied, biased, 1 kv head": (
        "LlamaForCausalLM",
        {**LLAMA, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1},
    ),
    "llama head_dim": ("LlamaForCausalLM", {**LLAMA, "head_dim": 6, "num_key_value_heads": 6}),
    "llama 3 scaling": ("LlamaForCausalLM", {**LLAMA, "rope_parameters": LLAMA3}),
    "llama linear scaling": (
        "LlamaForCausalLM",
        {**LLAMA, "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    ),
    "llama yarn": (
        "LlamaForCausalLM",
        {
            **LLAMA,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "rope_theta": 10000.0,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "llama tokens": ("LlamaForTokenClassification", {**LLAMA, **LABELS}),
    "llama sequence": ("LlamaForSequenceClassification", {**LLAMA, **LABELS}),
    "mistral": ("MistralForCausalLM", {**LLAMA, "sliding_window": None}),
    "mistral window": ("MistralForCausalLM", {**LLAMA, "sliding_window": 3}),
    "qwen2": ("Qwen2ForCausalLM", LLAMA),
    "qwen2 tied, window": (
        "Qwen2ForCausalLM",
        {
            **LLAMA,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 3,
            "max_window_layers": 0,
        },
    ),
}
PAIRS = {
    "marian": ("MarianMTModel", {**PAIR, "activation_function": "swish", "scale_embedding": True}),
    "marian apart": (
        "MarianMTModel",
        {**PAIR, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": V},
    ),
    "marian body": ("MarianModel", PAIR),
    "bart": ("BartForConditionalGeneration", PAIR),
    "bart scaled": ("BartForConditionalGeneration", {**PAIR, "scale_embedding": True, "decoder_layers": 1}),
    "bart body": ("BartModel", PAIR),
    "mbart": ("MBartForConditionalGeneration", PAIR),
    "mbart deeper": ("MBartForConditionalGeneration", {**PAIR, "decoder_layers": 3}),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5 gated": (
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "t5 gated silu": ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-silu"}),
    "t5 body": ("T5Model", {**T5, "feed_forward_proj": "gated-gelu"}),
    "whisper": ("WhisperForConditionalGeneration", WHISPER),
    "whisper scaled": ("WhisperForConditionalGeneration", {**WHISPER, "scale_embedding": True, "encoder_layers": 1}),
    "whisper body": ("WhisperModel", WHISPER),
}
PICTURES = {
    "vit": ("ViTForImageClassification", {**VIT, **LABELS}),
    "vit wide, no bias": ("ViTForImageClassification", {**VIT, "image_size": [8, 12], "qkv_bias": False, **LABELS}),
    "vit body": ("ViTModel", {**VIT, "num_channels": 1}),
    "vit, patches of two sides": ("ViTModel", {**VIT, "patch_size": [VIT["patch_size"]] * 2}),
}
ALL = ENCODERS | DECODERS | PAIRS | PICTURES


def make(name: str, directory: Path) -> Any:
    """A transformers model with every number random, biases and norms too; saved to `directory`."""
    architecture, values = ALL[name]
    kind = getattr(transformers, architecture)
    torch.manual_seed(sum(map(ord, name)))
    model = kind(kind.config_class(**copy.deepcopy(values), attn_implementation="eager")).eval()
    sines = {id(p) for n, p in model.named_parameters() if "marian" in name and "embed_positions" in n}
    buffers = [buffer for n, buffer in model.named_buffers() if n == "final_logits_bias"]
    for tensor in [*model.parameters(), *buffers]:
        if id(tensor) not in sines:
            tensor.data.normal_(std=0.3)
    for module in model.modules():  # tokens speak louder than biases, or every written token is the same one
        if isinstance(module, nn.Embedding) and id(module.weight) not in sines:
            module.weight.data.normal_(std=0.8)
        elif "Norm" in type(module).__name__:
            module.weight.data.normal_(1.0, 0.2)
    if name == "t5 gated":  # as the real 1.1: a readout of its own
        model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight))
    model.save_pretrained(directory)
    return model


def texts(lengths: list[int], left: bool, pad: int = PAD) -> tuple[Tensor, Tensor]:
    """tokens [B, T] without 0..3 (special ones) except for padding, and keep [B, T]"""
    T = max(lengths)
    generator = torch.Generator().manual_seed(T)
    tokens = torch.randint(4, V, (len(lengths), T), generator=generator)
    keep = torch.stack([torch.arange(T) < n for n in lengths])
    keep = keep.flip(1) if left else keep
    return tokens.masked_fill(~keep, pad), keep


def standing(keep: Tensor) -> Tensor:
    """Positions counted from the first real token, which transformers leaves to its caller."""
    return (keep.long().cumsum(1) - 1).clamp(min=0)


def layers_of(stack: nn.Module) -> list[Tensor]:
    """A list that will hold what goes into every block, then what comes out of the stack."""
    seen: list[Tensor] = []
    for block in stack.blocks:
        block.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    stack.register_forward_hook(lambda module, given, out: seen.append(out))
    return seen


def near(ours: list[Tensor], theirs: Any, keep: Tensor) -> None:
    """All layers agree on all real tokens. (transformers norms only the last of them.)"""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a[keep], b[keep], **CLOSE)


def answer(out: Any) -> Tensor:
    """The logits, or the hidden states of a body."""
    if hasattr(out, "start_logits"):
        return torch.stack((out.start_logits, out.end_logits), dim=-1)
    return out.logits if hasattr(out, "logits") else out.last_hidden_state


def compare(ours: Tensor, theirs: Tensor, keep: Tensor) -> None:
    if ours.dim() == 3:
        ours, theirs = ours[keep], theirs[keep]
    assert theirs.abs().max() > 0.1  # not all nothing
    torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_encoders(name: str, left: bool, tmp_path: Path) -> None:
    theirs, ours = make(name, tmp_path), load(tmp_path).model
    tokens, keep = texts([7, 3, 5], left, theirs.config.pad_token_id)
    more: dict[str, Any] = {}
    if "bert" in name and "roberta" not in name:
        more["position_ids"] = standing(keep)
    if "sequence" in name and left:
        pytest.skip("reads the first column, which is padding")
    types = None
    if getattr(theirs.config, "type_vocab_size", 1) > 1:
        types = torch.randint(0, theirs.config.type_vocab_size, tokens.shape)
        more["token_type_ids"] = types
    if "distilbert" in name:  # takes no position_ids
        more.pop("position_ids")
        if left:
            pytest.skip("transformers' DistilBERT has no position_ids")
    want = theirs(tokens, attention_mask=keep.long(), output_hidden_states=True, **more)
    seen = layers_of(ours.body.stack)
    given = ours(tokens, keep, types=types)
    near(seen, want.hidden_states, keep)
    compare(given, answer(want), keep)


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_decoders(name: str, left: bool, tmp_path: Path) -> None:
    theirs, ours = make(name, tmp_path), load(tmp_path).model
    tokens, keep = texts([9, 4, 6], left)
    want = theirs(tokens, attention_mask=keep.long(), position_ids=standing(keep), output_hidden_states=True)
    seen = layers_of(ours.body.stack)
    given = ours(tokens, keep)
    near(seen, want.hidden_states, keep)
    compare(given, answer(want), keep)
    if given.dim() == 3:  # the same, token by token behind a first piece of 3
        cache, steps = KVCache(), [(0, 3), *((i, i + 1) for i in range(3, 9))]
        parts = [ours(tokens[:, a:b], keep[:, :b], cache=cache) for a, b in steps]
        compare(torch.cat(parts, dim=1), answer(want), keep)


@pytest.mark.parametrize("name", [name for name, (kind, _) in DECODERS.items() if "LM" in kind])
@torch.no_grad()
def test_decoders_write(name: str, tmp_path: Path) -> None:
    theirs, ours = make(name, tmp_path), load(tmp_path).model
    tokens, keep = texts([9, 4, 6], left=True)
    want = theirs.generate(tokens, attention_mask=keep.long(), max_new_tokens=LIMIT, do_sample=False)[:, 9:]
    rows = greedy(ours, tokens, keep=keep, limit=LIMIT, stop={2})
    assert [row + [PAD] * (want.shape[1] - len(row)) for row in rows] == want.tolist()
    assert len({token for row in rows for token in row}) > 1


def sources(name: str, left: bool) -> tuple[Tensor, Tensor | None]:
    if "whisper" in name:
        return torch.randn(3, 5, 14, generator=torch.Generator().manual_seed(1)), None
    return texts([8, 3, 5], left)


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("name", PAIRS)
@torch.no_grad()
def test_pairs(name: str, left: bool, tmp_path: Path) -> None:
    if left and "t5" not in name:
        pytest.skip("transformers counts positions from the first column")
    theirs, ours = make(name, tmp_path), load(tmp_path).model
    source, source_keep = sources(name, left)
    target, keep = texts([6, 6, 6], left=False)
    given_mask = {} if source_keep is None else {"attention_mask": source_keep.long()}
    want = theirs(source, decoder_input_ids=target, output_hidden_states=True, **given_mask)
    body = ours.body
    assert isinstance(body, EncoderDecoder)
    read, written = layers_of(body.encoder.stack), layers_of(body.decoder.stack)
    given = ours(source, target, source_keep)
    seen = torch.ones(read[0].shape[:2], dtype=torch.bool) if source_keep is None else source_keep
    near(read, want.encoder_hidden_states, seen)
    near(written, want.decoder_hidden_states, keep)
    compare(given, answer(want), keep)
    memory, cache = body.encoder(source, source_keep), KVCache()
    parts = [
        body.decoder(target[:, a:b], memory=memory, memory_keep=source_keep, cache=cache)
        for a, b in [(0, 2), (2, 3), (3, 4), (4, 6)]
    ]
    compare(ours.readout(torch.cat(parts, dim=1)), answer(want), keep)


@pytest.mark.parametrize("name", [name for name, (kind, _) in PAIRS.items() if not kind.endswith("5Model")])
@torch.no_grad()
def test_pairs_write(name: str, tmp_path: Path) -> None:
    if "body" in name:
        pytest.skip("no readout")
    theirs, ours = make(name, tmp_path), load(tmp_path)
    source, source_keep = sources(name, left=False)
    given_mask = {} if source_keep is None else {"attention_mask": source_keep.long()}
    generate = transformers.GenerationMixin.generate  # Whisper's own adds rules for timestamps
    want = generate(theirs, source, max_new_tokens=LIMIT, do_sample=False, num_beams=1, **given_mask)[:, 1:]
    start = torch.full((3, 1), ours.generation["decoder_start_token_id"])
    memory = ours.model.body.encoder(source, source_keep)
    rows = greedy(ours.model, start, memory=memory, memory_keep=source_keep, limit=LIMIT, stop={2})
    assert [row + [PAD] * (want.shape[1] - len(row)) for row in rows] == want.tolist()
    assert len({token for row in rows for token in row}) > 1


HOW = {"num_beams": 3, "length_penalty": 2.0, "no_repeat_ngram_size": 2, "max_length": 13, "min_length": 5}


@pytest.mark.parametrize("name", ["marian", "bart", "t5"])
@pytest.mark.parametrize(("file", "end"), [("generation_config.json", 2), ("config.json", None)])
@torch.no_grad()
def test_pairs_write_as_their_files_say(name: str, file: str, end: int | None, tmp_path: Path) -> None:
    theirs = make(name, tmp_path)
    source, source_keep = sources(name, left=False)
    given_mask = {} if source_keep is None else {"attention_mask": source_keep.long()}
    free = theirs.generate(source, max_new_tokens=LIMIT, do_sample=False, num_beams=1, **given_mask)
    how = HOW | {"bad_words_ids": [[int(free[0, 2])], [int(free[1, 3])]], "forced_eos_token_id": end}
    if file == "config.json":  # as older versions wrote it
        (tmp_path / "generation_config.json").unlink()
    told = json.loads((tmp_path / file).read_text(encoding="utf-8"))
    (tmp_path / file).write_text(json.dumps(told | how), encoding="utf-8")
    ours = load(tmp_path)
    settings = generation_options(ours.model.body, ours.generation)
    limit = settings.pop("max_length")
    start = torch.full((3, 1), ours.generation["decoder_start_token_id"])
    memory = ours.model.body.encoder(source, source_keep)
    stop = {ours.generation["eos_token_id"]}
    given: dict[str, Any] = {"memory": memory, "memory_keep": source_keep, "limit": limit, "stop": stop}
    rows = [several[0].tokens for several in decode(ours.model, start, GenerationConfig(**settings), **given)]
    want = theirs.generate(source, do_sample=False, **how, **given_mask)[:, 1:]
    assert [row + [PAD] * (want.shape[1] - len(row)) for row in rows] == want.tolist()
    assert not {token for row in rows for token in row} & {token for word in how["bad_words_ids"] for token in word}


def test_what_is_not_followed_is_said(caplog: pytest.LogCaptureFixture) -> None:
    body = EncoderDecoder(ModelConfig(vocab=8, dim=8, layers=1, heads=1, max_length=8))
    told = {
        "num_beams": 2,
        "diversity_penalty": 0.5,
        "bad_words_ids": [[3], [4, 5]],
        "typical_p": 1.0,
        "max_length": 20,
    }
    assert generation_options(body, told) == {"beam": 2, "forbidden": (3,)}
    assert generation_options(body, {"max_length": 20, "min_length": 20}) == {"min_length": 19}
    assert "diversity_penalty, bad_words_ids with several tokens" in caplog.text
    assert "typical_p" not in caplog.text
    writer = Decoder(ModelConfig(vocab=8, dim=8, layers=1, heads=1, max_length=8))
    counted = {"max_length": 30, "min_length": 5, "forced_eos_token_id": 2, "num_return_sequences": 3}
    assert generation_options(writer, counted) == {"with_prompt": 30}
    assert generation_options(writer, {"max_length": 30, "max_new_tokens": 7}) == {"max_length": 7}
    assert "num_return_sequences, min_length, which includes the prompt, forced_eos_token_id" in caplog.text
    # The likeliest token, and tokens that the model does not have.
    assert generation_options(writer, {"do_sample": True, "temperature": 0.0, "suppress_tokens": [-1, 3, 8]}) == {
        "sample": False,
        "forbidden": (3,),
    }
    assert generation_options(body, {"forced_eos_token_id": [2, 9]}) == {"end": (2,)}


@pytest.mark.parametrize("name", PICTURES)
@torch.no_grad()
def test_pictures(name: str, tmp_path: Path) -> None:
    theirs, ours = make(name, tmp_path), load(tmp_path).model
    config = ours.body.config
    pixels = torch.randn(2, config.channels, *config.image)
    want = theirs(pixels, output_hidden_states=True)
    seen = layers_of(ours.body.stack)
    given = ours(pixels)
    near(seen[:-1], want.hidden_states[: len(seen) - 1], torch.ones(seen[0].shape[:2], dtype=torch.bool))
    torch.testing.assert_close(given, answer(want), **CLOSE)


@torch.no_grad()
def ask(model: Any, name: str) -> Tensor:
    """One question of any family, put to transformers."""
    if name in PICTURES:
        size = model.config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        return answer(model(torch.ones(2, model.config.num_channels, height, width)))
    tokens, keep = texts([6, 4], left=False)
    if name not in PAIRS:
        return answer(model(tokens, attention_mask=keep.long()))
    source = torch.ones(2, 5, 14) if "whisper" in name else tokens
    return answer(model(source, decoder_input_ids=tokens))


@pytest.mark.parametrize("name", ALL)
def test_back_out(name: str, tmp_path: Path) -> None:
    """Byte-equal tensors, the same config, equal logits in transformers; twice, as a saved one opens like any other."""
    theirs = make(name, tmp_path / "theirs")
    save(load(tmp_path / "theirs"), tmp_path / "once", family=True)
    save(load(tmp_path / "once"), tmp_path / "ours", family=True)
    before, after = (load_file(tmp_path / side / "model.safetensors") for side in ("theirs", "ours"))
    assert before.keys() == after.keys()
    assert [key for key in before if not torch.equal(before[key], after[key])] == []
    assert all(before[key].dtype == after[key].dtype for key in before)
    told, said = (json.loads((tmp_path / side / "config.json").read_text("utf-8")) for side in ("theirs", "ours"))
    if name != "t5 gated":  # where transformers writes "tied" beside a readout that is not
        assert said == told
    there, notes = type(theirs).from_pretrained(
        tmp_path / "ours", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(notes.values()), notes
    assert there.config.to_dict() | {"_name_or_path": ""} == theirs.config.to_dict() | {"_name_or_path": ""}
    assert torch.equal(ask(there.eval(), name), ask(theirs, name))


@pytest.mark.parametrize("name", [name for name, (_, values) in ALL.items() if "id2label" in values])
def test_labels_come_along(name: str, tmp_path: Path) -> None:
    make(name, tmp_path)
    assert load(tmp_path).labels == ["O", "B-人", "I-人"]


@pytest.mark.parametrize("kind", ["SequenceClassification", "QuestionAnswering"])
@torch.no_grad()
def test_bart_reads_the_text_twice(kind: str, tmp_path: Path) -> None:
    """Its decoder reads the source again, shifted; classes are read off its last token, the end sign."""
    ALL[kind] = (f"BartFor{kind}", {**PAIR, **(LABELS if kind.startswith("S") else {})})
    theirs, ours = make(kind, tmp_path), load(tmp_path).model
    tokens, keep = texts([7, 3, 5], left=False)
    tokens[torch.arange(3), keep.sum(1) - 1] = 2
    want = theirs(tokens, attention_mask=keep.long())
    again = torch.cat((torch.full((3, 1), 2), tokens[:, :-1]), dim=1)
    compare(ours(tokens, again, keep, keep), answer(want), keep)
