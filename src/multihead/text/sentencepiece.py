"""SentencePiece models read without sentencepiece: the few fields of their protobuf, as a `tokenizers` model.

The fields are those of sentencepiece_model.proto: pieces (1), trainer_spec (2), normalizer_spec (3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from multihead.io.files import read_bytes

UNKNOWN, CONTROL, USER, BYTE = 2, 3, 4, 6  # kinds of pieces; 1 is an ordinary one
LONGEST_PIECE = 512  # characters; sentencepiece makes them up to 16 long
UNIGRAM, BPE = 1, 2  # kinds of models


@dataclass
class SentencePieceModel:
    """A vocabulary of pieces with scores and kinds, and the normalization of its text."""

    pieces: list[tuple[str, float]]
    kinds: list[int]
    model: int = UNIGRAM
    byte_fallback: bool = False
    charsmap: bytes = b""
    dummy_prefix: bool = True
    strip: bool = True  # remove_extra_whitespaces


def read_pieces(path: Path) -> SentencePieceModel:
    """Read a .model or .spm file."""
    raw = memoryview(read_bytes(path))
    model = SentencePieceModel([], [])
    try:
        for field, value in _fields(raw):
            if field == 1 and isinstance(value, memoryview):
                piece = dict(_fields(value))
                score = piece.get(2, 0)
                model.pieces.append(
                    (_text(piece[1]), struct.unpack("<f", score)[0] if isinstance(score, memoryview) else 0.0)
                )
                model.kinds.append(_number(piece.get(3, 1)))
            elif field == 2 and isinstance(value, memoryview):
                spec = dict(_fields(value))
                model.model = _number(spec.get(3, UNIGRAM))
                model.byte_fallback = bool(_number(spec.get(35, 0)))
            elif field == 3 and isinstance(value, memoryview):
                spec = dict(_fields(value))
                model.charsmap = bytes(spec[2]) if isinstance(spec.get(2), memoryview) else b""
                model.dummy_prefix = bool(_number(spec.get(3, 1)))
                model.strip = bool(_number(spec.get(4, 1)))
    except (IndexError, KeyError, TypeError, UnicodeDecodeError, struct.error) as error:
        raise ValueError(f"{path}: not a SentencePiece model, or damaged ({error}); fetch it again") from None
    if not model.pieces:
        raise ValueError(f"{path}: a SentencePiece model without pieces; fetch it again")
    if model.model not in (UNIGRAM, BPE):
        raise ValueError(f"{path}: a SentencePiece model of words or characters; only unigram and BPE are supported")
    return model


def _fields(raw: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield field numbers and values of one protobuf message; raise IndexError where it is cut short."""
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(raw, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(raw, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise IndexError(f"wire type {kind} at byte {at}")
        if at + length > len(raw):
            raise IndexError(f"byte {at} promises {length} more, {len(raw) - at} are left")
        yield key >> 3, raw[at : at + length]
        at += length


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise IndexError(f"a number without end at byte {at}")


def _text(value: int | memoryview) -> str:
    return bytes(memoryview(value)).decode("utf-8")  # type: ignore[arg-type]


def _number(value: int | memoryview) -> int:
    if isinstance(value, int):
        return value
    raise TypeError("bytes where a number belongs")


def build_tokenizer(source: SentencePieceModel, extra: list[str] | None = None) -> Tokenizer:
    """Return a `tokenizers` tokenizer with the same segmentation; `extra` pieces (T5's sentinels) follow the model's
    own.
    """
    longest = max((piece for piece, _ in source.pieces), key=len, default="")
    if len(longest) > LONGEST_PIECE:  # quadratic time, and memory for every prefix
        raise ValueError(f"the piece {longest[:20]!r}… has {len(longest):,} characters, at most {LONGEST_PIECE}")
    pieces = source.pieces + [(name, 0.0) for name in extra or []]
    unknown = next((i for i, kind in enumerate(source.kinds) if kind == UNKNOWN), None)
    if source.model == UNIGRAM:
        model: models.Model = models.Unigram(pieces, unk_id=unknown, byte_fallback=source.byte_fallback)
    else:
        model = models.BPE(
            {piece: i for i, (piece, _) in enumerate(pieces)},
            find_merges(source),
            unk_token=None if unknown is None else pieces[unknown][0],
            fuse_unk=True,
            byte_fallback=source.byte_fallback,
        )
    inner = Tokenizer(model)
    # In the order of sentencepiece's own normalizer. Not Metaspace, which adds no prefix to a text that
    # begins with a space; sentencepiece does.
    steps: list[normalizers.Normalizer] = [normalizers.Precompiled(source.charsmap)] if source.charsmap else []
    if source.strip:
        steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    steps += [normalizers.Prepend("▁")] if source.dummy_prefix else []
    inner.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    # Cutting at words is faster and changes nothing, unless a piece reaches over a space.
    if not any("▁" in piece.lstrip("▁") for piece, _ in source.pieces):
        inner.pre_tokenizer = pre_tokenizers.Split(Regex("▁+[^▁]*"), "isolated")
    tail = [decoders.Strip(" ", 1, 0)] if source.dummy_prefix else []
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *tail])
    kinds = list(zip((piece for piece, _ in source.pieces), source.kinds, strict=True))
    inner.add_special_tokens([AddedToken(p, normalized=False, special=True) for p, kind in kinds if kind == CONTROL])
    inner.add_tokens([AddedToken(p, normalized=False) for p, kind in kinds if kind == USER])
    inner.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in extra or []])
    return inner


def find_merges(source: SentencePieceModel) -> list[tuple[str, str]]:
    """Return the pairs that form each piece, best score first: sentencepiece's BPE has no list of merges."""
    ordinary = {
        p: i for i, ((p, _), kind) in enumerate(zip(source.pieces, source.kinds, strict=True)) if kind in (1, USER)
    }
    merges = []
    for piece, i in ordinary.items():
        splits = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        pairs = [(left, right) for left, right in splits if left in ordinary and right in ordinary]
        pairs.sort(key=lambda pair: (ordinary[pair[0]], ordinary[pair[1]]))
        merges += [(source.pieces[i][1], *pair) for pair in pairs]
    merges.sort(key=lambda merge: (merge[0], len(merge[1]), len(merge[2])), reverse=True)
    return [(left, right) for _, left, right in merges]
