"""Checks of untrusted tokenizers: patterns and normalizers with exponential cost, size of the input, errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from multihead.text.guarded_tokenizer import iterate_parts, probe_pattern

LONGEST_PATTERN = 2_000  # the longest public one has about 400 characters
MOST_STEPS = 512  # Replace steps of a normalizer; public ones have up to about 100
LONGEST_TEXT = 10_000_000  # characters in one text
LONGEST_WORD = 256  # characters; public WordPiece models have 100
LONGEST_PIECE = 512  # characters of a Unigram piece; sentencepiece makes them up to 16 long
MOST_AROUND = 100_000  # template entries of a post-processor times tokens per entry
GROWTH = 256  # how many times longer a text may become


def check_tokenizer(path: Path, content: dict[str, Any]) -> None:
    """Raise ValueError for patterns that can take exponential time, and normalizers that expand a text without
    bound.
    """
    _vet_model(path, content)
    for key in ("normalizer", "pre_tokenizer", "decoder"):
        growth = 1.0
        parts = list(iterate_parts(content.get(key)))
        if len(parts) > MOST_STEPS:
            raise ValueError(f"{path}: {key} has {len(parts)} steps, at most {MOST_STEPS} are run; fetch it again")
        for part in parts:
            pattern = part.get("pattern")
            regex = pattern.get("Regex") if isinstance(pattern, dict) else None
            if isinstance(regex, str):
                _vet_pattern(path, key, regex)
            added = part.get("content", part.get("prepend", ""))
            if part.get("type") in ("Replace", "Prepend") and isinstance(added, str):
                literal = pattern.get("String") if isinstance(pattern, dict) else None
                growth *= max(1.0, len(added) / max(1, len(literal or "")))
        if growth > GROWTH:
            raise ValueError(f"{path}: {key} can make a text {growth:.0f} times longer; remove its Replace steps")


def _vet_pattern(path: Path, key: str, regex: str) -> None:
    shown = regex if len(regex) <= 60 else regex[:60] + "…"
    if len(regex) > LONGEST_PATTERN:
        raise ValueError(f"{path}: {key}: a pattern of {len(regex)} characters ({shown}); shorten it")
    if has_nested_repeat(regex):
        raise ValueError(
            f"{path}: {key}: the pattern {shown} nests unbounded repeats and can take "
            "exponential time; write it without the nesting"
        )
    if reason := probe_pattern(regex):
        raise ValueError(f"{path}: {key}: the pattern {shown} {reason} on 4,000 characters; write it another way")


def _vet_model(path: Path, content: dict[str, Any]) -> None:
    """Raise ValueError for slow models: WordPiece takes cubic time in a word, Unigram in its longest subword."""
    model = content.get("model")
    model = model if isinstance(model, dict) else {}
    most = model.get("max_input_chars_per_word")
    if isinstance(most, int) and most > LONGEST_WORD:
        raise ValueError(f"{path}: max_input_chars_per_word is {most}, at most {LONGEST_WORD} is run; set it to 100")
    for key in ("continuing_subword_prefix", "end_of_word_suffix", "unk_token"):
        if isinstance(model.get(key), str) and len(model[key]) > LONGEST_PIECE:
            raise ValueError(f"{path}: {key} has {len(model[key]):,} characters, at most {LONGEST_PIECE}; shorten it")
    vocab = model.get("vocab")
    pieces = [row[0] for row in vocab if isinstance(row, list) and row] if isinstance(vocab, list) else []
    longest = max((piece for piece in pieces if isinstance(piece, str)), key=len, default="")
    if len(longest) > LONGEST_PIECE:
        raise ValueError(
            f"{path}: the piece {longest[:20]!r}… has {len(longest):,} characters, at most {LONGEST_PIECE}"
        )
    added = sum(
        len(token["ids"])
        for part in iterate_parts(content.get("post_processor"))
        for token in (part.get("special_tokens") or {}).values()
        if isinstance(token, dict) and isinstance(token.get("ids"), list)
    )
    around = sum(
        len(part[key])
        for part in iterate_parts(content.get("post_processor"))
        for key in ("single", "pair")
        if isinstance(part.get(key), list)
    )
    if added * around > MOST_AROUND:
        raise ValueError(f"{path}: post_processor puts up to {added * around:,} tokens around a text; shorten it")


def has_nested_repeat(regex: str) -> bool:
    """Return whether a group with an unbounded repeat is itself repeated without bound, as in (a+)+."""
    repeats = [False]  # for every open group: does it hold an unbounded repeat?
    closed = False  # the thing before this character is a group that holds one
    at = 0
    while at < len(regex):
        char = regex[at]
        if char == "\\":
            at, closed = at + 2, False
            continue
        if char == "[":
            at, closed = _after_class(regex, at), False
            continue
        unbounded = char in "*+" or (char == "{" and "," in (inside := _braces(regex, at)) and inside[-1] == ",")
        if char == "(":
            repeats.append(False)
        elif char == ")" and len(repeats) > 1:
            closed = repeats.pop()
            repeats[-1] |= closed
            at += 1
            continue
        elif unbounded:
            if closed:
                return True
            repeats[-1] = True
        closed = False
        at += 1
    return False


def _braces(regex: str, at: int) -> str:
    """Return the content of {…}, or " "."""
    end = regex.find("}", at)
    return regex[at + 1 : end] if end > at + 1 else " "


def _after_class(regex: str, at: int) -> int:
    """Return the position after a […], which may be nested."""
    depth = 0
    while at < len(regex):
        if regex[at] == "\\":
            at += 1
        elif regex[at] == "[":
            depth += 1
        elif regex[at] == "]":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return at


def clean_text(text: str | tuple[str, str]) -> str | tuple[str, str]:
    """Check the length of a text, and replace lone surrogates with U+FFFD, so that offsets stay."""
    if isinstance(text, tuple):
        return clean_text(text[0]), clean_text(text[1])  # type: ignore[return-value]
    if not isinstance(text, str):
        raise ValueError(f"{type(text).__name__} is not a text; give a str, or a pair of them")
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"a text of {len(text):,} characters, at most {LONGEST_TEXT:,} at once; cut it up")
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


@contextmanager
def wrap_tokenizer_errors(where: str) -> Iterator[None]:
    """Convert errors of `tokenizers` to ValueError; its panics do not derive from Exception."""
    try:
        yield
    except ValueError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            reason = (str(error).splitlines() or [""])[0][:200]
            raise ValueError(f"{where}: the tokenizer rejects it ({reason}); fetch the tokenizer again") from None
        raise
