"""The tokenizer inside a GGUF file: byte-level BPE with merges, or SentencePiece's pieces with scores."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers import (
    Tokenizer as Inner,
)

from multihead.io.type_checks import read_value
from multihead.text.legacy_formats import add_template
from multihead.text.safety import wrap_tokenizer_errors
from multihead.text.sentencepiece import BPE, CONTROL, USER, SentencePieceModel, build_tokenizer
from multihead.text.tokenizer import Tokenizer

# How text is cut before merging, by GGUF's names; the patterns are those of the models' own tokenizer.json.
DIGITS_1 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CUTS = {
    "default": (),
    "gpt-2": (),
    "smollm": (pre_tokenizers.Digits(individual_digits=True),),
    "llama-bpe": (pre_tokenizers.Split(Regex(DIGITS_1.replace(r"|\p{N}|", r"|\p{N}{1,3}|")), "isolated"),),
    "qwen2": (pre_tokenizers.Split(Regex(DIGITS_1), "isolated"),),
}
OWN_PATTERN = ("default", "gpt-2", "smollm")  # cut by ByteLevel's pattern, GPT-2's


def load_gguf_tokenizer(path: Path, fields: dict[str, Any]) -> Tokenizer:
    """Return the tokenizer of a GGUF file; fields: the header of the file at `path`."""
    tokens, kinds = _read_list(path, fields, "tokens", str), _read_list(path, fields, "token_type", int)
    if len(kinds) != len(tokens):
        raise ValueError(f"{path}: {len(tokens)} tokens have {len(kinds)} kinds; fetch it again")
    model = fields.get("tokenizer.ggml.model")
    with wrap_tokenizer_errors(str(path)):
        if model == "gpt2":
            inner = _bpe(path, fields, tokens)
        elif model == "llama":
            scores = _read_list(path, fields, "scores", float)
            if len(scores) != len(tokens):
                raise ValueError(f"{path}: {len(tokens)} tokens have {len(scores)} scores; fetch it again")
            prefix = _read(path, fields, "tokenizer.ggml.add_space_prefix", bool, True)
            pieces = list(zip(tokens, scores, strict=True))
            inner = build_tokenizer(SentencePieceModel(pieces, kinds, BPE, True, b"", dummy_prefix=prefix, strip=False))
        else:
            raise ValueError(f"{path}: tokenizer {str(model)[:40]!r} is unknown; fetch the model as safetensors")
        if model == "gpt2":
            rows = list(zip(tokens, kinds, strict=True))
            control = [AddedToken(token, normalized=False, special=True) for token, kind in rows if kind == CONTROL]
            inner.add_special_tokens(control)
            inner.add_tokens([AddedToken(token, normalized=False) for token, kind in rows if kind == USER])
    named = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        number = _read(path, fields, f"tokenizer.ggml.{key}_token_id", int | None, None)
        if number is not None and 0 <= number < len(tokens):
            named[name] = tokens[number]
    flags = {
        f"add_{name}_token": _read(
            path, fields, f"tokenizer.ggml.add_{name}_token", bool, name == "bos" and model == "llama"
        )
        for name in ("bos", "eos")
    }
    if any(flags.values()):
        add_template(inner, flags, "", named, f"{path}: tokenizer.ggml: ")
    template = _read(path, fields, "tokenizer.chat_template", str | None, None)
    return Tokenizer(inner, named, template=template, template_file=f"{path}: tokenizer.chat_template")


def _bpe(path: Path, fields: dict[str, Any], tokens: list[str]) -> Inner:
    cut = _read(path, fields, "tokenizer.ggml.pre", str, "default")
    if cut not in CUTS:
        raise ValueError(f"{path}: pre-tokenizer {cut[:40]!r} is unknown, known: {', '.join(CUTS)}; use safetensors")
    merges = [tuple(merge.split(" ")) for merge in _read_list(path, fields, "merges", str)]
    if any(len(merge) != 2 for merge in merges):
        raise ValueError(f"{path}: a merge in its tokenizer is not two tokens; fetch it again")
    vocab = {token: i for i, token in enumerate(tokens)}
    pairs = [(merge[0], merge[1]) for merge in merges]
    inner = Inner(models.BPE(vocab, pairs, ignore_merges=cut == "llama-bpe"))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut in OWN_PATTERN)
    inner.pre_tokenizer = pre_tokenizers.Sequence([*CUTS[cut], byte_level])
    if cut == "qwen2":
        inner.normalizer = normalizers.NFC()
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.ByteLevel(trim_offsets=False)
    return inner


def _read_list(path: Path, fields: dict[str, Any], name: str, kind: type) -> list[Any]:
    values = fields.get(f"tokenizer.ggml.{name}")
    sound = isinstance(values, list) and all(isinstance(value, kind) for value in values)
    if not isinstance(values, list) or not sound or (kind is float and not all(map(math.isfinite, values))):
        raise ValueError(f"{path}: tokenizer.ggml.{name} is missing or not a list of {kind.__name__}; fetch it again")
    return values


def _read(path: Path, fields: dict[str, Any], key: str, kind: Any, default: Any) -> Any:
    try:
        return read_value(fields, key, kind, default)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; fetch it again") from None
