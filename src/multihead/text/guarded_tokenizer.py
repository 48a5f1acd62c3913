"""Tokenizers whose parts are not known to take linear time and memory run in a child process with limits."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tokenizers

from multihead.text.worker import LimitedWorker, LimitError

MOST_STEPS = 32  # of one section that runs here
GROWTH = 16  # times as many bytes; " " as "▁" has 3, ByteLevel 2
LONGEST_ADDED = 64  # bytes that a step may insert for one character; U+FDFA becomes 33
SECONDS, PER_CHARACTER = 2.5, 5e-6  # of computing; tokenizers take about a microsecond for a character
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# Each of these advances at every character, and backtracks only over what it then matches.
KNOWN_PATTERNS = frozenset(
    (
        *(rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_WORDS}|{number}|{_REST}" for number in (r"\p{N}", r"\p{N}{1,3}")),
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
        r"\s+", " {2,}", r"\p{N}{1,3}", r"\p{N}", r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[0-9][0-9][0-9]",
        r"\A +| +\z", "▁+[^▁]*", "[一-龥぀-ゟ゠-ヿ]+",
    )
)  # fmt: skip
CHEAP = frozenset(
    (
        "Sequence", "BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Nmt",
        "Whitespace", "WhitespaceSplit", "BertPreTokenizer", "Metaspace", "Digits", "Punctuation",
        "CharDelimiterSplit", "UnicodeScripts", "FixedLength", "WordPiece", "ByteFallback", "Fuse", "BPEDecoder", "CTC",
    )
)  # fmt: skip


def needs_guard(inner: tokenizers.Tokenizer) -> bool:
    """Return whether some part is not known to be cheap."""
    sections = (inner.normalizer, inner.pre_tokenizer, inner.decoder)
    return not all(_is_cheap(json.loads(section.__getstate__())) for section in sections if section is not None)


def iterate_parts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object with a type, at any depth."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if "type" in value:
                yield value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _is_cheap(section: Any) -> bool:
    parts, growth = list(iterate_parts(section)), 1.0
    for part in parts:
        if (times := _growth(part)) is None:
            return False
        growth *= times
    return len(parts) <= MOST_STEPS and growth <= GROWTH


def _growth(part: dict[str, Any]) -> float | None:
    """Return how many times longer one part makes a text; None where that, or its time, is unknown."""
    kind, pattern = part["type"], part.get("pattern")
    if kind in CHEAP:
        return 1.0
    if kind == "ByteLevel":
        return 2.0
    if kind == "Prepend":
        return 1.0 if len(str(part.get("prepend", ""))) <= LONGEST_ADDED else None
    if kind == "Precompiled":
        return 1.0 if _longest_replacement(str(part.get("precompiled_charsmap") or "")) <= LONGEST_ADDED else None
    if kind in ("Replace", "Split") and isinstance(pattern, dict):
        added = len(str(part.get("content", "")).encode()) if kind == "Replace" else 0
        literal = pattern.get("String")
        if isinstance(literal, str) and literal:
            return max(1.0, added / len(literal.encode()))
        if pattern.get("Regex") in KNOWN_PATTERNS:
            return max(1.0, added)
    return None


def _longest_replacement(charsmap: str) -> int:
    """Return the longest replacement in bytes. SentencePiece's map is the size of a trie, the trie, and zero-terminated
    texts.
    """
    raw = base64.b64decode(charsmap)
    if len(raw) < 4:
        return 0
    return max(map(len, raw[4 + struct.unpack("<I", raw[:4])[0] :].split(b"\0")), default=0)


@dataclass
class GuardedEncoding:
    """The attributes of `tokenizers.Encoding` that are used here."""

    ids: list[int]
    offsets: list[tuple[int, int]]
    type_ids: list[int]
    special_tokens_mask: list[int]
    sequence_ids: list[int | None]


class GuardedTokenizer:
    """A tokenizer in a process with limits."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        self._inner, self._loaded = inner, False
        self._worker = LimitedWorker("multihead.text.tokenizer_worker")

    def encode_batch(
        self, texts: Sequence[str | tuple[str, str]], special: bool, control: bool
    ) -> list[GuardedEncoding]:
        characters = sum(len(text) if isinstance(text, str) else sum(map(len, text)) for text in texts)
        request = {"encode": list(texts), "special": special, "control": control}
        rows = self._ask(request, characters, f"a text of {characters:,} characters")
        return [GuardedEncoding(ids, [(a, b) for a, b in offsets], *rest) for ids, offsets, *rest in rows]

    def decode(self, ids: list[int], skip_special: bool) -> str:
        return str(self._ask({"decode": ids, "skip": skip_special}, len(ids), f"{len(ids):,} tokens"))

    def _ask(self, request: dict[str, Any], size: int, what: str) -> Any:
        try:
            if not self._loaded:
                self._worker.ask({"load": self._inner.to_str()}, 60.0)
                self._loaded = True
            return self._worker.ask(request, SECONDS + PER_CHARACTER * size)
        except LimitError as error:
            self._loaded = False  # the next child starts empty
            raise ValueError(
                f"the tokenizer {error} for {what}: its patterns or replacements are not those of a known tokenizer; "
                "shorten the text or use another tokenizer"
            ) from None


_PROBE = LimitedWorker("multihead.text.tokenizer_worker")


def probe_pattern(pattern: str) -> str:
    """Return why a pattern must not be run, or "": it is run in a child on long repetitions of its own characters."""
    if pattern in KNOWN_PATTERNS:
        return ""
    letters = [*dict.fromkeys(char for char in pattern if char.isalnum() or char.isspace())][:16]
    units = [
        *letters,
        *(a + b for a, b in pairwise(letters)),
        " ",
        "a",
        "A",
        "1",
        ".",
        "\n",
        "中",
    ]
    # An engine skips a text that lacks a letter the pattern needs; so all of them are appended.
    ends = ("", "\0", "\0" + "".join(letters))
    texts = [(unit * 4000)[:4000] + end for unit in dict.fromkeys(units) for end in ends]
    try:
        _PROBE.ask({"probe": pattern, "texts": texts}, SECONDS)
    except LimitError as error:
        return str(error)
    except ValueError as error:
        return f"is not valid ({error})"
    return ""
