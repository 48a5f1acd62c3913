"""Inputs of many windows: cut in time that grows with their length, and not with its square."""

from __future__ import annotations

import random
import time
from itertools import accumulate

from multihead.data.sliding_windows import split_windows
from multihead.tasks.task import slice_encodings
from multihead.tasks.translate import ENDS, Translate, _ends
from multihead.text.tokenizer import Encoding

TOKENS = 100_000  # when all of them were looked through for each window, a minute
HANG = 20  # seconds


def encoding(sides: list[int | None], offsets: list[tuple[int, int]] | None = None) -> Encoding:
    special = [side is None for side in sides]
    return Encoding(
        list(range(len(sides))), offsets or [(i, i + 1) for i in range(len(sides))], [side or 0 for side in sides],
        special, list(sides),
    )  # fmt: skip


def test_parts_hold_their_spans_and_every_special_token() -> None:
    pair = encoding([None, 0, 0, 0, None, 1, 1, 1, 1, None])
    first, second = slice_encodings(pair, [{0: (1, 3), 1: (0, 2)}, {1: (3, 4)}])
    assert first.ids == [0, 2, 3, 4, 5, 6, 9]
    assert second.ids == [0, 1, 2, 3, 4, 8, 9], "a text without a span is there as a whole"
    assert second.sequences == [None, 0, 0, 0, None, 1, None]
    assert second.types == [0, 0, 0, 0, 0, 1, 0]
    assert second.offsets[-2] == (8, 9)
    assert slice_encodings(pair, []) == []


def test_many_windows_of_one_text() -> None:
    whole = encoding([None, *[0] * TOKENS, None])
    spans = split_windows(TOKENS, 62, 31)
    started = time.process_time()
    parts = slice_encodings(whole, ({0: span} for span in spans))
    assert time.process_time() - started < HANG
    assert [part.ids[1:-1] for part in parts] == [list(range(1 + a, 1 + b)) for a, b in spans]


def test_sentences_end_where_they_did() -> None:
    pick = random.Random(0)
    for _ in range(300):
        text = "".join(pick.choices("ab .  。\n", k=30))
        starts = sorted(pick.choices(range(len(text) + 1), k=8))
        whole = encoding([None, *[0] * 8], [(0, 0), *((start, start) for start in starts)])
        wanted = [i for i, start in enumerate(starts) if text[:start].rstrip(" ").endswith(ENDS)]
        assert _ends(text, whole) == wanted


def test_a_source_of_many_sentences_is_cut_at_their_ends() -> None:
    lengths = [1 + i % 40 for i in range(TOKENS // 20)]
    text = "".join("a" * (n - 1) + "." for n in lengths)
    whole = encoding([*[0] * len(text), None])
    task = Translate.__new__(Translate)
    task.size = 65
    started = time.process_time()
    parts = task.split_source(text, whole)
    assert time.process_time() - started < HANG
    assert [i for part in parts for i in part.ids[:-1]] == list(range(len(text)))
    ends = set(accumulate(lengths))
    assert all(part.ids[-2] + 1 in ends and len(part) <= 65 for part in parts)
