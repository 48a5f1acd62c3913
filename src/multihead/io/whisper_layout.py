"""The hub's layout of a Whisper whose weights came in another one: config.json and the files that go with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from multihead.io.files import MIB, make_directory, read_text, write_json
from multihead.io.weights import write_tensors

MULTILINGUAL = 51_865  # tokens of the smallest multilingual vocabulary; the English one has one less
# Cross-attention heads that follow the speech, as published with the weights: [layer, head].
ALIGNMENT_HEADS = {
    ("en", 4, 384): [[1, 0], [2, 0], [2, 5], [3, 0], [3, 1], [3, 2], [3, 3], [3, 4]],
    ("many", 6, 512): [[3, 1], [4, 2], [4, 3], [4, 7], [5, 1], [5, 2], [5, 4], [5, 6]],
}
TIMESTAMPS = 1501  # tokens <|0.00|> to <|30.00|>
# Signs that are not spoken: with and without a space before them, where each is one token (OpenAI's list).
SIGNS = "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪"
UNSPOKEN = (*'"#()*+/:;<=>@[\\]^_`{|}~「」『』', *SIGNS.split(" "))
MUSIC = "♩♪♫♬♭♮♯"
CONTROL = ("<|startoftranscript|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>")


def whisper_config(tensors: Mapping[str, Tensor], encoder_heads: int, decoder_heads: int, where: str) -> dict[str, Any]:
    """Return config.json of a Whisper with these tensors, by the hub's names; sizes are read off the tensors."""

    def shape(name: str, rank: int) -> Sequence[int]:
        if name not in tensors or tensors[name].dim() != rank:
            raise ValueError(f"{where}: tensor {name!r} is missing or has another rank; fetch it again")
        return tensors[name].shape

    width, mels, _ = shape("model.encoder.conv1.weight", 3)
    vocab, _ = shape("model.decoder.embed_tokens.weight", 2)
    if min(encoder_heads, decoder_heads) < 1 or width % encoder_heads or width % decoder_heads:
        raise ValueError(f"{where}: {encoder_heads} and {decoder_heads} heads do not divide the width {width}")
    end = 50257 if vocab >= MULTILINGUAL else 50256
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "is_encoder_decoder": True,
        "activation_function": "gelu",
        "vocab_size": vocab,
        "num_mel_bins": mels,
        "d_model": width,
        "encoder_layers": _layers(tensors, "encoder"),
        "decoder_layers": _layers(tensors, "decoder"),
        "encoder_attention_heads": encoder_heads,
        "decoder_attention_heads": decoder_heads,
        "encoder_ffn_dim": shape("model.encoder.layers.0.fc1.weight", 2)[0],
        "decoder_ffn_dim": shape("model.decoder.layers.0.fc1.weight", 2)[0],
        "max_source_positions": shape("model.encoder.embed_positions.weight", 2)[0],
        "max_target_positions": shape("model.decoder.embed_positions.weight", 2)[0],
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": end + 1,
    }


def _layers(tensors: Mapping[str, Tensor], side: str) -> int:
    numbers = (re.match(rf"model\.{side}\.layers\.(\d+)\.", name) for name in tensors)
    return 1 + max((int(match[1]) for match in numbers if match), default=-1)


def write_whisper(
    directory: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    tokenizer: Path,
    alignment_heads: Sequence[Sequence[int]] | None = None,
) -> None:
    """Write a plain hub directory that transformers and multihead open.

    tokenizer: a tokenizer.json of this vocabulary; the tokens of time are added where it lacks them.
    alignment_heads: [layer, head] of heads that follow the speech; None: the published ones, or, as OpenAI does for
        unknown weights, all heads of the upper half.
    """
    make_directory(directory)
    tokens = add_timestamps(Tokenizer.from_str(read_text(tokenizer, 64 * MIB)))
    # In these packages the numbers are halves; transformers and we compute in float32 anyway.
    write_tensors(directory / "model.safetensors", {name: tensor.float() for name, tensor in tensors.items()})
    write_json(directory / "config.json", {**config, "dtype": "float32"})
    write_json(directory / "generation_config.json", generation_config(config, tokens, alignment_heads))
    write_json(directory / "preprocessor_config.json", preprocessor_config(int(config["num_mel_bins"])))
    tokens.save(str(directory / "tokenizer.json"))
    end = "<|endoftext|>"
    write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "WhisperTokenizer",
            "model_max_length": int(config["max_target_positions"]),
            "bos_token": end,
            "eos_token": end,
            "unk_token": end,
            "pad_token": end,
        },
    )


def add_timestamps(tokenizer: Tokenizer) -> Tokenizer:
    """Give names to the tokens of time, which older tokenizer.json files leave out."""
    if tokenizer.token_to_id("<|0.00|>") is None:
        names = [f"<|{number * 0.02:.2f}|>" for number in range(TIMESTAMPS)]
        tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in names])
    return tokenizer


def generation_config(
    config: Mapping[str, Any], tokenizer: Tokenizer, alignment_heads: Sequence[Sequence[int]] | None = None
) -> dict[str, Any]:
    """Return generation_config.json, as the hub has it for Whisper."""
    vocab, end = config["vocab_size"], config["eos_token_id"]
    many = vocab >= MULTILINGUAL
    no_timestamps = _token(tokenizer, "<|notimestamps|>")
    layers = config["decoder_layers"]
    known = ALIGNMENT_HEADS.get(("many" if many else "en", layers, config["d_model"]))
    upper = [[layer, head] for layer in range(layers // 2, layers) for head in range(config["decoder_attention_heads"])]
    settings: dict[str, Any] = {
        "alignment_heads": [list(pair) for pair in alignment_heads or known or upper],
        "begin_suppress_tokens": [220, end],
        "bos_token_id": end,
        "decoder_start_token_id": end + 1,
        "eos_token_id": end,
        "is_multilingual": many,
        "max_initial_timestamp_index": 50,
        "max_length": config["max_target_positions"],
        "no_timestamps_token_id": no_timestamps,
        "pad_token_id": end,
        "prev_sot_token_id": tokenizer.token_to_id("<|startofprev|>"),
        "return_timestamps": False,
        "suppress_tokens": unspoken_tokens(tokenizer),
    }
    if many:
        first = _token(tokenizer, "<|translate|>")
        settings["lang_to_id"] = {str(tokenizer.id_to_token(token)): token for token in range(end + 2, first)}
        settings["task_to_id"] = {"translate": first, "transcribe": first + 1}
    else:
        settings["forced_decoder_ids"] = [[1, no_timestamps]]
    return settings


def _token(tokenizer: Tokenizer, name: str) -> int:
    token = tokenizer.token_to_id(name)
    if token is None:
        raise ValueError(f"the tokenizer has no token {name}: not a Whisper's; give the tokenizer.json of this model")
    return int(token)


def unspoken_tokens(tokenizer: Tokenizer) -> list[int]:
    """Return tokens that are never written: signs of captions (brackets, music, dashes) and control tokens."""

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    tokens = {encode(" -")[0], encode(" '")[0]}
    for sign in (*UNSPOKEN, *MUSIC):
        for pieces in (encode(sign), encode(f" {sign}")):
            if len(pieces) == 1 or sign in MUSIC:
                tokens.add(pieces[0])
    control = [tokenizer.token_to_id(name) for name in CONTROL]
    silence = tokenizer.token_to_id("<|nospeech|>") or tokenizer.token_to_id("<|nocaptions|>")
    return sorted({*tokens, *(token for token in (*control, silence) if token is not None)})


def preprocessor_config(mels: int) -> dict[str, Any]:
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": mels,
        "sampling_rate": 16000,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 30,
        "n_samples": 480000,
        "nb_max_frames": 3000,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
        "processor_class": "WhisperProcessor",
    }
