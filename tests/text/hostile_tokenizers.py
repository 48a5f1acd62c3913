"""Changes to a tokenizer.json that make it a bomb, by name."""
# ruff: noqa: E501

from functools import reduce
from typing import Any


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replace(pattern: str, content: str, kind: str = "Regex") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def sequence(key: str, steps: list[Any]) -> dict[str, Any]:
    return {"type": "Sequence", key: steps}


PATTERNS = (
    "a*a*c", "a*a*a*c", "a+a+c", "a+a+a+a+c", "(a+)+c", "(a*)*c", "(a|a)*c", "(a|aa)+c", "(a|b|ab)*c", "(?:a?){40}a{40}",
    "(.*)*c", ".*.*c", ".*.*.*c", r"\w*\w*c", r"\w+\w+\w+c", r"\p{L}*\p{L}*c", r"(\p{L}\p{L}?)+c", r"[ab]*[a]*c",
    "a+c", "a*c", ".*c", r"(?=(a+)+c)a", "(?=a*a*c)a", "(?!a*a*c)a", "(?<=a)a*a*c", r"(a*)\1c", r"(a+)\1+c", r"(a*)(a*)\1\2c",
    "(a{1,50}){1,50}c", "(a{1,90}){1,90}{1,90}c", "((a{1000}){1000}){1000}", "a{100000}", "(?:a{0,1000}){0,1000}c",
    "([a-z]+)*c", "(a?b?a?)*c", "(?:a|a|a|a|a|a)*c", "(?i:a*A*c)", "(?:a*){3}c", "(?>a*)a*c", "x*|a*a*c", "a*a*c|.",
    "(a(a(a)*)*)*c", r"(?:\s*a)*\s*c", r"(\w\s?)*c", "(", "[", "a**", r"\p{Nothing}",
)  # fmt: skip
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}] * 3000 + [{"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [0] * 30_000, "tokens": ["<s>"] * 30_000}},
}
HOSTILE: dict[str, dict[str, Any]] = {
    **{f"split {pattern}": {"pre_tokenizer": split(pattern)} for pattern in PATTERNS},
    "normalizer pattern": {"normalizer": replace("a*a*c", "x")},
    "decoder pattern": {"decoder": replace("a*a*c", "x")},
    "hidden in a sequence": {"pre_tokenizer": sequence("pretokenizers", [sequence("pretokenizers", [split("a*a*c")])])},
    "replace nothing": {"normalizer": replace("", "x" * 9000)},
    "replace maybe": {"normalizer": replace("x*", "x" * 9000)},
    "replace every sign": {"normalizer": replace(".", "x" * 9000)},
    "replace text": {"normalizer": replace("a", "a" * 9_000_000, "String")},
    "replace no text": {"normalizer": replace("", "a" * 9000, "String")},
    "double": {"normalizer": sequence("normalizers", [replace("a", "aa", "String")] * 60)},
    "double by pattern": {"normalizer": sequence("normalizers", [replace("a", "aa")] * 60)},
    "grow in turn": {"normalizer": sequence("normalizers", [replace("a", "bb"), replace("b", "aa")] * 30)},
    "prepend": {"normalizer": sequence("normalizers", [{"type": "Prepend", "prepend": "a" * 900_000}] * 60)},
    "many steps": {"normalizer": sequence("normalizers", [{"type": "NFKD"}] * 9000)},
    "bytes of bytes": {"pre_tokenizer": sequence("pretokenizers", [BYTES] * 40)},
    "decoder that grows": {"decoder": sequence("decoders", [replace("a", "aa", "String")] * 60)},
    "decoder of a long text": {"decoder": replace("a", "a" * 9_000_000, "String")},
    "long template": {"post_processor": TEMPLATE},
    "deep": {"normalizer": reduce(lambda inner, _: sequence("normalizers", [inner]), range(90), {"type": "NFC"})},
    "cubic word": {"model": {"type": "WordPiece", "unk_token": "u", "continuing_subword_prefix": "##", "max_input_chars_per_word": 10**9, "vocab": {"u": 0, "a": 1}}},
    "long prefix": {"model": {"type": "WordPiece", "unk_token": "u", "continuing_subword_prefix": "#" * 10**6, "max_input_chars_per_word": 100, "vocab": {"u": 0, "a": 1}}},
    "long piece": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["u", 0.0], ["a", -1.0], ["a" * 100_000, -2.0]]}},
}  # fmt: skip
