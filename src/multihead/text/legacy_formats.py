"""Tokenizers from formats older than tokenizer.json: vocab.txt, vocab.json + merges.txt, .model, .spm."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from multihead.io.files import read_json, read_text
from multihead.text.sentencepiece import build_tokenizer, read_pieces
from multihead.text.tokenizer_config import FLAGS, NAMES, read_added_tokens, read_special_tokens, token_text

PIECES = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model")
# Default special tokens of the families.
BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
ROBERTA = {
    "bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>",
    "unk": "<unk>", "pad": "<pad>", "mask": "<mask>",
}  # fmt: skip
DEFAULTS = {
    "bert": BERT,
    "distilbert": BERT,
    "roberta": ROBERTA,
    "bart": ROBERTA,
    "gpt2": {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"},
    "whisper": {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"},
    "t5": {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
    "marian": {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
    "llama": {"bos": "<s>", "eos": "</s>", "unk": "<unk>"},
}


def family_of(directory: Path, config: dict[str, Any]) -> str:
    """Return bert, roberta, …: from the tokenizer's class, else from the model's config.json, else ""."""
    name = str(config.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer").lower()
    if name in ("", "pretrained", "pretrainedtokenizer") and (directory / "config.json").exists():
        name = str(read_json(directory / "config.json").get("model_type") or "")
    return name


def named_tokens(directory: Path, config: dict[str, Any], family: str) -> dict[str, str]:
    """Return special tokens by name: from the files, else the family's defaults."""
    sources = (config, read_special_tokens(directory))
    tokens = dict(DEFAULTS.get(family, {}))
    for name in NAMES:
        for source in reversed(sources):
            if (text := token_text(source.get(f"{name}_token"))) is not None:
                tokens[name] = text
    return tokens


def wordpiece(path: Path, config: dict[str, Any]) -> Tokenizer:
    """Return BERT's tokenizer from vocab.txt: one token per line, the line number is its id."""
    lines = read_text(path).split("\n")  # not splitlines(): some vocabularies hold U+2028 and others as tokens
    lines = [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
    if len(set(lines)) < len(lines):
        twice = next(line for i, line in enumerate(lines) if line in lines[:i])
        raise ValueError(f"{path}: the token {twice[:80]!r} is on two lines; fetch it again")
    unknown = token_text(config.get("unk_token")) or "[UNK]"
    if unknown not in lines:
        raise ValueError(f"{path}: has no {unknown} token; name the unknown token in tokenizer_config.json (unk_token)")
    inner = Tokenizer(models.WordPiece({token: i for i, token in enumerate(lines)}, unk_token=unknown))
    inner.normalizer = normalizers.BertNormalizer(
        lowercase=bool(config.get("do_lower_case", True)),
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
        strip_accents=config.get("strip_accents"),
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    return inner


def byte_bpe(directory: Path, config: dict[str, Any], family: str) -> Tokenizer:
    """Return the tokenizer of GPT-2's and RoBERTa's vocab.json and merges.txt."""
    vocab, path = read_json(directory / "vocab.json"), directory / "merges.txt"
    if not all(type(number) is int for number in vocab.values()):
        raise ValueError(f"{directory / 'vocab.json'}: maps a token to something that is not a number; fetch it again")
    lines = [line for line in read_text(path).split("\n") if line.strip() and not line.startswith("#version")]
    pairs = [tuple(line.rstrip("\r").split(" ")) for line in lines]
    for i, pair in enumerate(pairs):
        if len(pair) != 2 or not {*pair, "".join(pair)} <= set(vocab):
            raise ValueError(f"{path}: merge {i + 1} ({lines[i][:60]!r}) does not fit vocab.json; fetch both again")
    space = bool(config.get("add_prefix_space", False))
    inner = Tokenizer(models.BPE(vocab, [(pair[0], pair[1]) for pair in pairs]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    inner.decoder = decoders.ByteLevel()
    if family not in ("roberta", "bart"):
        inner.post_processor = processors.ByteLevel(trim_offsets=False)
    return inner


def from_pieces(path: Path, config: dict[str, Any], family: str) -> Tokenizer:
    """Return the tokenizer of one SentencePiece model, with T5's sentinels appended."""
    source = read_pieces(path)
    have = {piece for piece, _ in source.pieces}
    extra = config.get("extra_ids", 100) or 0 if family == "t5" else 0
    names = [f"<extra_id_{i}>" for i in reversed(range(extra))]
    return build_tokenizer(source, [name for name in names if name not in have])


def add_tokens(directory: Path, inner: Tokenizer, config: dict[str, Any], named: dict[str, str]) -> None:
    """Add tokens from the tokenizer's files, at their ids; the named ones become special."""
    added: dict[int, AddedToken] = {}
    for text, number in read_added_tokens(directory).items():
        added[number] = AddedToken(text, normalized=False, special=text in named.values())
    for number, entry in (config.get("added_tokens_decoder") or {}).items():
        flags = {key: bool(entry[key]) for key in FLAGS if key in entry}
        added[int(number)] = AddedToken(entry["content"], **flags)
    for number, token in sorted(added.items(), key=lambda item: item[0]):
        (inner.add_special_tokens if token.special else inner.add_tokens)([token])
        if inner.token_to_id(token.content) != number:
            raise ValueError(
                f"{directory}: the added token {token.content!r} should have id {number}, the vocabulary "
                f"has {inner.token_to_id(token.content)}; fetch the tokenizer's files again, together"
            )
    known = {token.content for token in inner.get_added_tokens_decoder().values() if token.special}
    explicit = {value for name, value in named.items() if f"{name}_token" in config}
    for name in dict.fromkeys(named.values()):
        # A family's default is only a guess: it may not enlarge the vocabulary, what a file names may.
        if name not in known and (name in explicit or inner.token_to_id(name) is not None):
            # RoBERTa's mask includes the space before it, like an ordinary word.
            strip = name == named.get("mask") == "<mask>"
            inner.add_special_tokens([AddedToken(name, lstrip=strip, normalized=False, special=True)])


def add_template(inner: Tokenizer, config: dict[str, Any], family: str, named: dict[str, str], where: str = "") -> None:
    """Add the special tokens before, between and after texts, where tokenizer.json does not define them.

    where: the beginning of error messages.
    """
    number = partial(_number, inner, named, where=where)
    if family in ("bert", "distilbert"):
        (cls, i), (sep, j) = number("cls"), number("sep")
        single, pair, used = (
            f"{cls}:0 $A:0 {sep}:0",
            f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
            [(cls, i), (sep, j)],
        )
    elif family in ("roberta", "bart"):
        inner.post_processor = processors.RobertaProcessing(
            number("sep"),
            number("cls"),
            trim_offsets=True,
            add_prefix_space=bool(config.get("add_prefix_space", False)),
        )
        return
    elif family in ("t5", "marian"):
        add_ends(inner, named, where)
        return
    else:
        first = [number("bos")] if config.get("add_bos_token", family == "llama") else []
        last = [number("eos")] if config.get("add_eos_token", False) else []
        if not first and not last:
            return
        around = ["".join(f"{token} " for token, _ in first), "".join(f" {token}" for token, _ in last)]
        single, pair = "$A".join(around), "$A".join(around) + " " + "$B:1".join(around)
        used = list(dict.fromkeys(first + last))
    inner.post_processor = processors.TemplateProcessing(single, pair, used)


def add_ends(inner: Tokenizer, named: dict[str, str], where: str = "") -> None:
    """Append the end-of-text token to each text; an existing post-processor (ByteLevel) still runs first."""
    eos, i = _number(inner, named, "eos", where)
    ends = processors.TemplateProcessing(f"$A {eos}", f"$A {eos} $B {eos}", [(eos, i)])
    before = inner.post_processor
    inner.post_processor = ends if before is None else processors.Sequence([before, ends])


def _number(inner: Tokenizer, named: dict[str, str], name: str, where: str) -> tuple[str, int]:
    token = named.get(name, "")
    token_id = inner.token_to_id(token)
    if token_id is None:
        raise ValueError(f"{where}the tokenizer has no {name} token ({token!r}); name it ({name}_token)")
    return token, token_id
