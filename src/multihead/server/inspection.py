"""What a model's heads do with one input, and what changes without some of them. The model is needed alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multihead.inference import Pipeline
from multihead.inference.engine import answer_row, check_tokens, encode_row, run_windows
from multihead.inspection import RecordedInput, Recording, ablate, locate, numbers, watch
from multihead.inspection.inputs import collate_windows, run_body
from multihead.inspection.recording import self_attention_of
from multihead.models import EncoderDecoder, TaskModel
from multihead.server.admission import check_size, too_much_text
from multihead.server.limits import Limits, RequestError
from multihead.server.schemas import HeadsForm
from multihead.tasks import Prediction, Task, Values, Window
from multihead.tasks.generate import Generate
from multihead.text.tokenizer import Tokenizer

NEXT = 8  # tokens whose probabilities a what-if tells
WRITTEN = 32  # tokens of a text in a what-if: nobody else is answered meanwhile


def see_heads(loaded: Pipeline, task: Task, values: Values, form: HeadsForm, limits: Limits) -> dict[str, Any]:
    """Return the tokens of an input, the weights of the chosen heads and, if wanted, what every head did."""
    check_heads(loaded.model, form.heads)
    windows = encode_windows(loaded.model, task, values, limits)
    if form.window >= len(windows):
        raise RequestError(422, "no_window", f"this input has {len(windows)} windows; they count from 0")
    read_window = make_pass(loaded.model, task, windows[form.window])
    with watch(loaded.model) as seen:
        read_window()
        if form.side >= len(seen):
            raise RequestError(422, "no_side", "this model reads its input as one text; leave side out")
        record = seen[form.side]
        answer: dict[str, Any] = {"windows": len(windows), "tokens": spell_tokens(loaded, record)}
        answer["weights"] = _weights(record, form.heads, form.rows, limits)
        if form.statistics:
            separator = task.tokenizer.special.get("sep")
            answer["statistics"] = _statistics(seen, [] if separator is None else [separator])
    return answer


def compare_without(
    loaded: Pipeline, task: Task, values: Values, heads_off: Sequence[str], tokens_off: Sequence[int], limits: Limits
) -> dict[str, Any]:
    """Return the prediction as it is and as it is with heads or tokens switched off.

    A token that is off is read as the mask token; tokens count through all windows of the input.
    """
    check_heads(loaded.model, heads_off)
    if isinstance(task, Generate):
        task = without_chance(task)
    windows = encode_windows(loaded.model, task, values, limits)
    changed = _hide_tokens(task, windows, tokens_off)
    before = _predict(loaded, task, values, windows)
    with ablate(loaded.model, list(heads_off)):
        after = _predict(loaded, task, values, changed)
        next_after = weigh_next(loaded.model, task, changed[-1]) if isinstance(task, Generate) else None
    ids = [int(token) for window in windows for token in window["tokens"]]
    answer: dict[str, Any] = {"tokens": task.tokenizer.tokens(ids), "before": before, "after": after}
    if isinstance(task, Generate) and next_after is not None:
        answer["next"] = compare_next(task, weigh_next(loaded.model, task, windows[-1]), next_after)
    return answer


def weigh_next(model: TaskModel, task: Generate, window: Window) -> Tensor:
    """The probability of every token to be the next one, [V]."""
    return torch.softmax(task.logits(model, task.collate([window]))[0, -1].float(), dim=0)


def compare_next(task: Generate, before: Tensor, after: Tensor) -> list[dict[str, Any]]:
    """The tokens that were, or are, the likeliest to come next, with both probabilities."""
    chosen = torch.topk(torch.maximum(before, after), min(NEXT, len(before))).indices.tolist()
    chosen.sort(key=lambda token: -float(before[token]))
    return [
        {
            "text": display_token(task.tokenizer, token),
            "before": round(float(before[token]), 6),
            "after": round(float(after[token]), 6),
        }
        for token in chosen
    ]


def check_heads(model: TaskModel, addresses: Sequence[str]) -> None:
    known = numbers(model)
    for address in addresses:
        try:
            locate(address, known)
        except ValueError:
            raise RequestError(
                422, "no_head", "there is no such head; GET /v1/models/NAME lists them, as stack.layer.kind.head"
            ) from None


def encode_windows(model: TaskModel, task: Task, values: Values, limits: Limits) -> list[Window]:
    limits = replace(limits, tokens=limits.alone)
    check_size(task, values, limits)
    (row,) = task.prepare([values])
    windows = encode_row(task, row)
    check_tokens(model, windows)
    if sum(len(window["tokens"]) for window in windows) > limits.tokens:
        raise too_much_text(limits)
    return windows


def without_chance(task: Generate) -> Generate:
    """The same task, which takes the likeliest token: with draws, any change would change the text."""
    certain = copy.copy(task)
    most = min(int(task.settings.get("max_length") or WRITTEN), WRITTEN)
    certain.options = {**task.options, "decode": {"sample": False, "max_length": most}}
    return certain


def spell_tokens(loaded: Pipeline, record: RecordedInput) -> dict[str, list[str]]:
    """The tokens that each stack read."""
    assert loaded.tokenizer is not None
    stacks = dict.fromkeys(name.split(".")[0] for name in record.seen.passes)
    spelled = {}
    for stack in stacks:
        writer = loaded.tokenizer.target if stack == "decoder" and "encoder" in stacks else loaded.tokenizer
        spelled[stack] = writer.tokens(record.tokens_of(stack))
    return spelled


def display_token(tokenizer: Tokenizer, token: int) -> str:
    """The text of a token, with the space before it; its name in the vocabulary, where it has none ([CLS])."""
    (spelled,) = tokenizer.tokens([token])
    if not spelled:  # a model may have more rows than its tokenizer has tokens
        return f"<{token}>"
    if spelled.startswith("##") or "\u2581" in spelled:  # WordPiece's and SentencePiece's own marks say enough
        return spelled.replace("\u2581", " ")
    return tokenizer.decode([token]) or spelled


def make_pass(model: TaskModel, task: Task, window: Window) -> Callable[[], object]:
    """Return what lets the model read one window once; one that writes reads its own text with it."""
    batch = task.collate([window])
    if isinstance(task, Generate):
        return lambda: model.body(batch["tokens"])
    if isinstance(model.body, EncoderDecoder):
        (written,) = task.forward(model, batch)
        target = np.array([task.options["start"], *written.texts[0].tokens])
        both = collate_windows([{"tokens": window["tokens"], "target": target}], task.pad)
        return lambda: run_body(model, task.to_device(both))
    return lambda: task.forward(model, batch)


def _predict(loaded: Pipeline, task: Task, values: Values, windows: list[Window]) -> Prediction:
    outputs = run_windows(loaded.model, task, windows, precision=loaded.precision)
    return answer_row(loaded.model, task, values, windows, outputs)


def _hide_tokens(task: Task, windows: list[Window], off: Sequence[int]) -> list[Window]:
    if not off:
        return windows
    mask = next(
        (task.tokenizer.special[name] for name in ("mask", "unk", "pad") if name in task.tokenizer.special), None
    )
    if mask is None:
        raise RequestError(422, "no_mask", "this model's tokenizer has no token to read instead of one that is off")
    lengths = [len(window["tokens"]) for window in windows]
    hidden = np.zeros(sum(lengths), dtype=bool)
    for token in off:
        if not 0 <= token < len(hidden):
            raise RequestError(422, "no_token", f"this input has {len(hidden):,} tokens; they count from 0")
        hidden[token] = True
    parts = np.split(hidden, np.cumsum(lengths)[:-1])
    return [
        {**window, "tokens": np.where(part, mask, window["tokens"]).astype(window["tokens"].dtype)}
        for window, part in zip(windows, parts, strict=True)
    ]


def _weights(record: RecordedInput, heads: Sequence[str], rows: Sequence[int] | None, limits: Limits) -> dict[str, Any]:
    found, size = {}, 0
    for address in dict.fromkeys(heads):
        stack = self_attention_of(address.rpartition(".")[0]).split(".")[0]
        queries, keys = len(record.tokens_of(stack)), _keys(record, address)
        wanted = queries if rows is None else len(rows)
        if rows is not None and any(not 0 <= row < queries for row in rows):
            raise RequestError(422, "no_row", f"there are {queries:,} rows; they count from 0")
        size += wanted * keys
        if size > limits.weights:
            raise RequestError(
                413, "too_many_weights", f"an answer may hold {limits.weights:,} weights; ask for fewer heads or rows"
            )
        found[address] = record.weights(address, rows).numpy()
    return found


def _keys(record: RecordedInput, address: str) -> int:
    stack, _, kind, _ = address.split(".")
    return len(record.tokens_of("encoder" if kind == "cross" else stack))


def _statistics(seen: Recording, separators: Sequence[int]) -> dict[str, dict[str, float]]:
    found = seen.stats(separators)
    return {address: found[address] for address in found.addresses}
