"""Train a tokenizer: byte-level BPE, unigram, WordPiece, or single characters."""

from __future__ import annotations

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from multihead.text.legacy_formats import BERT, ROBERTA

log = logging.getLogger(__name__)
TELL = 2.0  # seconds between progress messages
KINDS = ("bpe", "unigram", "wordpiece", "char")
LONGEST_WORD = 1000  # characters; longer words are cut for training
# What the pre-tokenizers do not split: letters, digits, other characters, or space.
_LONG_WORD = re.compile(
    rf"[^\W\d_]{{{LONGEST_WORD},}}|\d{{{LONGEST_WORD},}}|(?:[^\w\s]|_){{{LONGEST_WORD},}}|\s{{{LONGEST_WORD},}}"
)
FIRST, AFTER = 0x20000, 0x40000  # codes of characters at the start of a word, and the offset of the others


def train_tokenizer(texts: Iterable[str], kind: str, vocab: int, lowercase: bool) -> tuple[Tokenizer, dict[str, str]]:
    """Return a tokenizer of at most `vocab` tokens, and the names of its special tokens."""
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is unknown; use one of {', '.join(KINDS)}")
    named = BERT if kind == "wordpiece" else ROBERTA
    special = list(dict.fromkeys(named[name] for name in ("pad", "unk", "cls", "sep", "mask")))
    least = len(special) + (256 if kind == "bpe" else 1)
    if vocab < least:
        raise ValueError(f"vocab={vocab} is too small for kind={kind!r}; it needs at least {least}")
    build = {"bpe": _bpe, "unigram": _unigram, "wordpiece": _wordpiece, "char": _char}[kind]
    inner = build(_clean(texts), vocab, special, lowercase)
    inner.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    cls, sep = named["cls"], named["sep"]
    between = f"{sep}:0 $B:1 {sep}:1" if kind == "wordpiece" else f"{sep} {sep} $B {sep}"
    first = f"{cls}:0 $A:0" if kind == "wordpiece" else f"{cls} $A"
    inner.post_processor = processors.TemplateProcessing(
        f"{first} {sep}", f"{first} {between}", [(token, special.index(token)) for token in (cls, sep)]
    )
    return inner, dict(named)


class NoText(ValueError):
    """No text to train a tokenizer from; the caller, which knows the files, can explain why."""


def _clean(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts without lone surrogates; raise for a non-string or for no text at all."""
    has_text, characters, reported = False, 0, time.monotonic()
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"text {i} of the training data is a {type(text).__name__}; give an iterable of str")
        has_text, characters = has_text or bool(text), characters + len(text)
        if time.monotonic() - reported > TELL:
            reported = time.monotonic()
            log.info("training a tokenizer: %s characters read", f"{characters:,}")
        yield from _cut_long_words(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    if not has_text:
        raise NoText("no text to train a tokenizer from; check the data")


def _cut_long_words(text: str) -> list[str]:
    """Cut words of more than LONGEST_WORD characters: the trainers take quadratic time in a word."""
    parts, start = [], 0
    for match in _LONG_WORD.finditer(text):
        for cut in range(match.start() + LONGEST_WORD, match.end(), LONGEST_WORD):
            parts.append(text[start:cut])
            start = cut
    return [*parts, text[start:]]


def _lower(inner: Tokenizer, lowercase: bool) -> None:
    if lowercase:
        inner.normalizer = normalizers.Lowercase()


def _bpe(texts: Iterator[str], vocab: int, special: list[str], lowercase: bool) -> Tokenizer:
    inner = Tokenizer(models.BPE())
    _lower(inner, lowercase)
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(texts, trainer)
    return inner


def _unigram(texts: Iterator[str], vocab: int, special: list[str], lowercase: bool) -> Tokenizer:
    inner = Tokenizer(models.Unigram())
    _lower(inner, lowercase)
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab, special_tokens=special, unk_token=ROBERTA["unk"], show_progress=False
    )
    inner.train_from_iterator(texts, trainer)
    vocabulary = json.loads(inner.to_str())["model"]["vocab"]
    pieces = vocabulary[: len(special)] + _make_deterministic(
        [(str(piece), score) for piece, score in vocabulary[len(special) :]]
    )
    inner.model = models.Unigram([(piece, score) for piece, score in pieces], unk_id=special.index(ROBERTA["unk"]))
    return inner


def _make_deterministic(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return the same pieces from every run.

    The trainer depends on the order of a hash table in two places: scores differ in their last digits, and rare
    characters get the lowest score, plus 0.0001 for each, in any order.
    """
    lowest = min((score for _, score in pieces), default=0.0)
    steps = {piece: (score - lowest) / 1e-4 for piece, score in pieces if len(piece) == 1}
    rare = sorted(piece for piece, step in steps.items() if step < len(pieces) and abs(step - round(step)) < 1e-3)
    scores = dict(pieces)
    scores.update(zip(rare, sorted((scores[piece] for piece in rare), reverse=True), strict=True))
    rounded = [(piece, round(score, 6)) for piece, score in scores.items()]
    return sorted(rounded, key=lambda piece: (-piece[1], piece[0]))


def _wordpiece(texts: Iterator[str], vocab: int, special: list[str], lowercase: bool) -> Tokenizer:
    """Train BPE over words in which every character but the first is a different symbol, with ## in front.

    The WordPiece trainer of `tokenizers` numbers those in the order of a hash table, which also decides between equal
    merges: two runs give two vocabularies. So the symbols are separated here, before training.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=False)
    cut = pre_tokenizers.BertPreTokenizer()
    words: Counter[str] = Counter()
    for text in texts:
        words.update(word for word, _ in cut.pre_tokenize_str(normalizer.normalize_str(text)))
    symbols = sorted({symbol for word in words for symbol in word})
    code = {symbol: FIRST + i for i, symbol in enumerate(symbols)}
    coded = (
        (chr(code[word[0]]) + "".join(chr(code[symbol] + AFTER) for symbol in word[1:]), words[word]) for word in words
    )
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=max(vocab - len(special), 1), show_progress=False)
    learner.train_from_iterator((f"{word} " * count for word, count in coded), trainer)
    vocabulary = sorted(learner.get_vocab().items(), key=lambda item: item[1])
    tokens = ["".join(symbols[(ord(symbol) - FIRST) % AFTER] for symbol in token) for token, _ in vocabulary]
    marks = ["##" if ord(token[0]) >= FIRST + AFTER else "" for token, _ in vocabulary]
    listed = dict.fromkeys([*special, *(mark + token for mark, token in zip(marks, tokens, strict=True))])
    inner = Tokenizer(models.WordPiece({token: i for i, token in enumerate(listed)}, unk_token=BERT["unk"]))
    inner.normalizer, inner.pre_tokenizer, inner.decoder = normalizer, cut, decoders.WordPiece()
    return inner


def _char(texts: Iterator[str], vocab: int, special: list[str], lowercase: bool) -> Tokenizer:
    """Train on the most common characters, as a BPE without merges; ties in the order of code points."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text.lower() if lowercase else text)
    common = sorted(counts, key=lambda char: (-counts[char], char))[: vocab - len(special)]
    inner = Tokenizer(models.BPE({token: i for i, token in enumerate(special + common)}, [], unk_token=ROBERTA["unk"]))
    _lower(inner, lowercase)
    inner.decoder = decoders.Fuse()
    return inner
