"""Is an input small enough to be cut into windows? Asked before it is: two long texts make windows of every pair."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from multihead.server.limits import Limits, RequestError
from multihead.tasks import Task, Values
from multihead.tasks.bi_encoder import BiEncoder

PER_TOKEN = 4  # characters of a text for each token that a request may hold


def check_size(task: Task, values: Values, limits: Limits) -> None:
    """Raise if a row would make more tokens than a request may hold, windows that overlap included."""
    texts = [text for name, value in values.items() if name != "document" for text in _texts(value)]
    characters = sum(map(len, texts))
    if characters <= task.size:
        return
    if characters > PER_TOKEN * limits.tokens:
        raise too_much_text(limits)
    lengths = [len(task.tokenizer.encode(values[name])) for name in task.inputs if isinstance(values.get(name), str)]
    pairs = len(task.inputs) == 2 and len(lengths) == 2 and not isinstance(task, BiEncoder)
    if count_windows(task, lengths, pairs=pairs) * task.size > limits.tokens + task.size:
        raise too_much_text(limits)


def count_windows(task: Task, lengths: list[int], *, pairs: bool) -> int:
    """Return about how many windows texts of so many tokens become: of a pair, every part of one with every part of
    the other."""
    if sum(lengths) <= task.size:
        return 1
    room = task.size // 2 if pairs else task.size
    step = max(1, room - min(task.overlap, room // 2))
    counts = [1 if length <= room else math.ceil(length / step) for length in lengths]
    return math.prod(counts) if pairs else sum(counts)


def too_much_text(limits: Limits) -> RequestError:
    return RequestError(413, "too_many_tokens", f"a request may hold {limits.tokens:,} tokens; send less text")


def _texts(value: Any) -> Iterator[str]:
    """All texts of a value, however deep: a message is an object in a list."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
