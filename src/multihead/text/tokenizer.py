"""Text to tokens and back: `tokenizers` behind one class with offsets, in which text never becomes control tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from multihead.io.files import parse_json, read_bytes, read_json, read_text, write_bytes, write_json
from multihead.io.type_checks import check_value
from multihead.text import legacy_formats
from multihead.text.chat_template import Messages, mark_control_tokens, render
from multihead.text.guarded_tokenizer import GuardedEncoding, GuardedTokenizer, needs_guard
from multihead.text.safety import check_tokenizer, clean_text, wrap_tokenizer_errors
from multihead.text.sentencepiece import build_tokenizer, read_pieces
from multihead.text.tokenizer_config import read_tokenizer_config
from multihead.text.training import train_tokenizer

FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "vocab.txt", "vocab.json", "merges.txt", "source.spm", "target.spm",
    *legacy_formats.PIECES,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Encoding:
    """One text, or a pair, as tokens; all lists have the same length."""

    ids: list[int]
    offsets: list[tuple[int, int]]  # code points of the original text; (0, 0) for special tokens
    types: list[int]  # BERT's sentence A and B
    special: list[bool]  # added by the tokenizer, not part of the text
    sequences: list[int | None]  # which text of a pair: 0, 1, or None for special tokens

    def __len__(self) -> int:
        return len(self.ids)


class Tokenizer:
    """A tokenizer with named special tokens and an optional chat template.

    special: ids of the existing special tokens by name: pad, bos, eos, cls, sep, mask, unk.
    outer: a vocabulary that renumbers the inner tokens.
    target: a tokenizer of the target language. Marian has both; otherwise `target` is the tokenizer itself.
    """

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        named: dict[str, str],
        *,
        template: str | None = None,
        template_file: str = "",
        files: dict[str, bytes] | None = None,
        outer: dict[str, int] | None = None,
        target: Tokenizer | None = None,
    ) -> None:
        # Some files define both; truncation and padding are decided where batches are made.
        inner.no_truncation()
        inner.no_padding()
        inner.encode_special_tokens = True  # "</s>" in a text is four characters
        self.inner, self.named, self.template, self.files = inner, named, template, files or {}
        self.outer, self.target, self.template_file = outer, target or self, template_file
        self._guard = GuardedTokenizer(inner) if needs_guard(inner) else None
        added = [token.content for token in inner.get_added_tokens_decoder().values() if token.special]
        self.special = {name: i for name, token in named.items() if (i := self.id(token)) is not None}
        # The unknown token is not a control token: any rare character becomes it. One that delimits texts (GPT-2's) is.
        odd = {named.get("unk", "")} - {named.get(name) for name in ("bos", "eos", "cls", "sep")}
        self.unknown = self.special.get("unk", -1) if odd else -1  # the id of unknown characters; -1: none
        names = {*added, *named.values()} - odd
        self.control = {token: i for token in sorted(names) if (i := self.id(token)) is not None}
        self._inner_control = {inner.token_to_id(token) for token in self.control} - {None}

    def __len__(self) -> int:
        """Return the vocabulary size: one more than the largest id."""
        numbers = self.outer or self.inner.get_vocab(with_added_tokens=True)
        return max(numbers.values(), default=-1) + 1

    def id(self, token: str) -> int | None:
        """Return the id of a token as spelled in the vocabulary."""
        return self.inner.token_to_id(token) if self.outer is None else self.outer.get(token)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the vocabulary spelling of ids; "" for an unknown id."""
        if self.outer is None:
            return [self.inner.id_to_token(i) or "" for i in ids]
        return [self._token_spellings.get(i, "") for i in ids]

    @staticmethod
    def load(directory: Path) -> Tokenizer:
        """Load a tokenizer from tokenizer.json, or SentencePiece models, vocab.txt, vocab.json + merges.txt."""
        return load(Path(directory))

    @staticmethod
    def train(texts: Iterable[str], kind: str = "bpe", vocab: int = 8000, *, lowercase: bool = False) -> Tokenizer:
        """Train a tokenizer; kind: bpe (byte-level, so nothing is unknown), unigram, wordpiece or char."""
        with wrap_tokenizer_errors("the texts"):
            return Tokenizer(*train_tokenizer(texts, kind, vocab, lowercase))

    def with_pair_separator(self) -> Tokenizer:
        """Return a tokenizer that separates two texts: itself or, where there is no separator (GPT-2, Qwen), one that
        appends the end-of-text token to each, if it exists.
        """
        if "eos" not in self.special or any(self.encode("a", "b").special):
            return self
        inner = tokenizers.Tokenizer.from_str(self.inner.to_str())
        legacy_formats.add_ends(inner, self.named)
        files = {name: content for name, content in self.files.items() if name == "chat_template.jinja"}
        return Tokenizer(inner, self.named, template=self.template, template_file=self.template_file, files=files)

    def save(self, directory: Path) -> list[Path]:
        """Write the loaded files unchanged, and a tokenizer.json where it can hold everything; return the paths."""
        directory.mkdir(parents=True, exist_ok=True)
        written = dict(self.files)
        if self.outer is None:
            written.setdefault("tokenizer.json", self.inner.to_str(pretty=True).encode())
        for name, content in written.items():
            write_bytes(directory / name, content)
        if "tokenizer_config.json" not in self.files:
            names = {f"{name}_token": token for name, token in self.named.items() if name in self.special}
            chat = {} if self.template is None else {"chat_template": self.template}
            keep = {"clean_up_tokenization_spaces": False, "tokenizer_class": "PreTrainedTokenizerFast"}
            write_json(directory / "tokenizer_config.json", {**names, **chat, **({} if self.files else keep)})
        return [directory / name for name in {**written, "tokenizer_config.json": None}]

    def encode(self, text: str, pair: str | None = None, *, special: bool = True, control: bool = False) -> Encoding:
        """Encode a text or a pair; special: add special tokens around the text; control: "</s>" in the text is a
        control token.
        """
        return self.encode_batch([text if pair is None else (text, pair)], special=special, control=control)[0]

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text without offsets and special tokens; several times faster for a long text."""
        if self._guard is not None:
            return self.encode(text, special=False).ids
        with wrap_tokenizer_errors("the text"):
            ids = self.inner.encode(clean_text(text), add_special_tokens=False).ids
        if not self._inner_control.isdisjoint(ids):
            return self.encode(text, special=False).ids
        numbers = self._renumber
        return ids if numbers is None else [numbers[i] for i in ids]

    def encode_batch(
        self, texts: Sequence[str | tuple[str, str]], *, special: bool = True, control: bool = False
    ) -> list[Encoding]:
        """Encode many texts or pairs of texts in parallel; see `encode`."""
        ready = [clean_text(text) for text in texts]
        if self._guard is not None:
            return [self._make_encoding(row, control) for row in self._guard.encode_batch(ready, special, control)]
        inner = self._control_reader if control else self.inner
        with wrap_tokenizer_errors("the text"):
            encodings = inner.encode_batch(ready, add_special_tokens=special)
        return [self._make_encoding(encoding, control) for encoding in encodings]

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of ids; an id outside the vocabulary raises ValueError."""
        wrong = next((i for i, token in zip(ids, self.tokens(ids), strict=True) if token == ""), None)
        if wrong is not None and not (0 <= wrong < len(self)):
            raise ValueError(f"token id {wrong} is outside this tokenizer's vocabulary of {len(self)}; check the ids")
        if self.outer is None and self._guard is not None:
            return self._guard.decode(list(ids), skip_special)
        if self.outer is None:
            with wrap_tokenizer_errors("the tokens"):
                return self.inner.decode(list(ids), skip_special_tokens=skip_special)
        skip = set(self.special.values()) if skip_special else set()
        return "".join(self.tokens(i for i in ids if i not in skip)).replace("▁", " ").strip()

    def decode_batch(self, rows: Iterable[Sequence[int]], skip_special: bool = True) -> list[str]:
        return [self.decode(ids, skip_special) for ids in rows]

    def chat(self, messages: Messages, add_generation_prompt: bool = True, **values: Any) -> str:
        """Return the messages as the text that the model was trained on, control tokens spelled out; see
        `encode_chat`.
        """
        if self.template is None:
            raise ValueError("this tokenizer has no chat template; use encode, or add chat_template.jinja to its files")
        names = {f"{name}_token": self.named[name] for name in self.special}
        values = {"add_generation_prompt": add_generation_prompt, **names, **values}
        with self.name_template():
            return render(self.template, messages, **values)

    @contextmanager
    def name_template(self) -> Iterator[None]:
        """Prefix errors about the chat template with the file that holds it."""
        try:
            yield
        except ValueError as error:
            if not self.template_file or str(error).startswith(self.template_file):
                raise
            raise ValueError(f"{self.template_file}: {error}") from None

    def encode_chat(self, messages: Messages, add_generation_prompt: bool = True, **values: Any) -> list[int]:
        """Return the ids of `chat`; control tokens come from the template only, never from a message."""
        safe, mark = mark_control_tokens(messages, list(self.control))
        return self.encode_marked(self.chat(safe, add_generation_prompt, **values), mark)[0]

    def encode_marked(self, text: str, mark: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a `chat` of `mark_control_tokens` messages, and the span of each in that text."""
        if not mark:
            encoding = self.encode(text, special=False, control=True)
            return encoding.ids, encoding.offsets
        ids, places, at = [], [], 0
        longest_first = sorted(self.control, key=len, reverse=True)
        for part in re.split(f"({'|'.join(map(re.escape, longest_first))})", text):
            if part in self.control:
                ids.append(self.control[part])
                places.append((at, at + len(part)))
            elif part:
                encoding = self.encode(part.replace(mark, ""), special=False)
                char_offsets = [at + i for i, char in enumerate(part) if char != mark] + [at + len(part)]
                ids += encoding.ids
                places += [(char_offsets[start], char_offsets[end]) for start, end in encoding.offsets]
            at += len(part)
        return ids, places

    @cached_property
    def _control_reader(self) -> tokenizers.Tokenizer:
        """A copy that reads control tokens; a switch on one object would affect other threads."""
        return tokenizers.Tokenizer.from_str(self.inner.to_str())

    @cached_property
    def _token_spellings(self) -> dict[int, str]:
        return {i: token for token, i in (self.target.outer or {}).items()}

    @cached_property
    def _renumber(self) -> list[int] | None:
        """Outer id by inner id."""
        if self.outer is None:
            return None
        spelled = [self.inner.id_to_token(i) for i in range(self.inner.get_vocab_size())]
        return [self.outer.get(token or "", self.special["unk"]) for token in spelled]

    def _make_encoding(self, encoding: tokenizers.Encoding | GuardedEncoding, control: bool) -> Encoding:
        special = [flag == 1 for flag in encoding.special_tokens_mask]
        ids, offsets, types, sequences = encoding.ids, encoding.offsets, encoding.type_ids, encoding.sequence_ids
        if not control and sum(i in self._inner_control for i in ids) > sum(special):
            rows = list(zip(ids, offsets, types, special, sequences, strict=True))
            spread = [row for fields in rows for row in self._spell_out(*fields)]
            ids, offsets, types, special, sequences = (list(column) for column in zip(*spread, strict=True))
        if (numbers := self._renumber) is not None:
            ids = [numbers[i] for i in ids]
        return Encoding(ids, offsets, types, special, sequences)

    def _spell_out(
        self, i: int, offset: tuple[int, int], kind: int, special: bool, sequence: int | None
    ) -> Iterator[Any]:
        """Yield a control token that the vocabulary matched in the text as its characters.

        `tokenizers` cannot exclude tokens from matching; Unigram and word vocabularies match them.
        """
        if special or i not in self._inner_control:
            yield i, offset, kind, special, sequence
            return
        start, end = offset
        unknown = self.inner.token_to_id(self.named.get("unk", "")) or 0
        for at, char in enumerate(self.inner.id_to_token(i) or ""):
            bytes_of = [self.inner.token_to_id(f"<0x{byte:02X}>") for byte in char.encode()]
            number = self.inner.token_to_id(char)
            for token_id in [number] if number is not None else bytes_of if None not in bytes_of else [unknown]:
                yield token_id, (min(start + at, end), min(start + at + 1, end)), kind, False, sequence


def load(directory: Path) -> Tokenizer:
    """Load a tokenizer from a directory; see `Tokenizer.load`."""
    if not directory.is_dir():
        raise ValueError(f"{directory}: no such directory; give the directory that holds the tokenizer's files")
    files = {name: read_bytes(directory / name) for name in FILES if (directory / name).exists()}
    config = read_tokenizer_config(directory)
    family = legacy_formats.family_of(directory, config)
    if "source.spm" in files and "tokenizer.json" not in files:
        return _load_marian(directory, config, files)
    piece = next((name for name in legacy_formats.PIECES if name in files), None)
    if "tokenizer.json" in files:
        inner = _load_tokenizer_json(directory / "tokenizer.json", files["tokenizer.json"])
    elif piece is not None:
        with wrap_tokenizer_errors(str(directory / piece)):
            inner = legacy_formats.from_pieces(directory / piece, config, family)
    elif "vocab.txt" in files:
        inner, family = legacy_formats.wordpiece(directory / "vocab.txt", config), family or "bert"
    elif "vocab.json" in files and "merges.txt" in files:
        with wrap_tokenizer_errors(str(directory / "vocab.json")):
            inner = legacy_formats.byte_bpe(directory, config, family)
    else:
        raise ValueError(
            f"{directory}: no tokenizer; it needs tokenizer.json, "
            f"a SentencePiece model ({', '.join(legacy_formats.PIECES)}), "
            "vocab.txt, or vocab.json with merges.txt"
        )
    named = legacy_formats.named_tokens(directory, config, family)
    if "tokenizer.json" not in files:
        legacy_formats.add_tokens(directory, inner, config, named)
    if inner.post_processor is None or (family == "llama" and "add_bos_token" in config):
        legacy_formats.add_template(inner, config, family, named, f"{directory / 'tokenizer_config.json'}: ")
    template, origin = _template(directory, config)
    return Tokenizer(inner, named, template=template, template_file=origin, files=files)


def _load_tokenizer_json(path: Path, raw: bytes) -> tokenizers.Tokenizer:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start} is not UTF-8; fetch it again") from None
    check_tokenizer(path, parse_json(text, str(path)))
    with wrap_tokenizer_errors(str(path)):
        return tokenizers.Tokenizer.from_str(text)


def _load_marian(directory: Path, config: dict[str, Any], files: dict[str, bytes]) -> Tokenizer:
    """Load Marian's tokenizer: two SentencePiece models, whose pieces vocab.json numbers (and target_vocab.json, if
    any).
    """
    named = legacy_formats.named_tokens(directory, config, "marian")
    second = directory / "target_vocab.json"
    outers = [
        read_json(directory / "vocab.json"),
        read_json(second if second.exists() else directory / "vocab.json"),
    ]
    if second.exists():
        files = {**files, second.name: read_bytes(second)}
    made: list[Tokenizer] = []
    for name, outer in reversed(list(zip(("source.spm", "target.spm"), outers, strict=True))):
        if named["unk"] not in outer or not all(type(i) is int for i in outer.values()):
            raise ValueError(
                f"{directory / 'vocab.json'}: has no {named['unk']}, or holds more than numbers; fetch it again"
            )
        with wrap_tokenizer_errors(str(directory / name)):
            source = read_pieces(directory / name)
            inner = build_tokenizer(source)
            codes = [token for token in outer if token.startswith(">>") and token.endswith("<<")]
            inner.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in codes])
            legacy_formats.add_template(inner, config, "marian", named, f"{directory / name}: ")
        made.append(Tokenizer(inner, named, files=files, outer=outer, target=made[0] if made else None))
    return made[1]


def _template(directory: Path, config: dict[str, Any]) -> tuple[str | None, str]:
    """Return the chat template, and the file that holds it."""
    if (path := directory / "chat_template.jinja").exists():
        return read_text(path, limit=1 << 20), str(path)
    template, origin = config.get("chat_template"), f"{directory / 'tokenizer_config.json'}: chat_template"
    if isinstance(template, list):  # several by name
        template = next((entry.get("template") for entry in template if entry.get("name") == "default"), None)
        check_value(origin, template, str | None)
    return template, origin
