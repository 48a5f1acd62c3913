"""All heads of a model on one input, small enough for one page: a coarse map of each, a name, the rollout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from multihead.inference import Pipeline
from multihead.inspection import RecordedInput, Recording, watch
from multihead.inspection.head_names import name_head
from multihead.inspection.head_profile import attention_rollout
from multihead.report.attention_html import pack_weights
from multihead.server.inspection import check_heads, display_token, encode_windows, make_pass
from multihead.server.limits import Limits, RequestError
from multihead.server.schemas import PictureForm
from multihead.tasks import Task, Values

BITS = 8  # of a weight's root: maps are looked at, numbers are asked for by row
ROLLED = 512  # tokens: a rollout wants all rows of all heads at once
SAMPLED = 192  # rows of a long input that a coarse map is made of
Floats = NDArray[np.float32]


def picture_heads(loaded: Pipeline, task: Task, values: Values, form: PictureForm, limits: Limits) -> dict[str, Any]:
    """Return, by stack and kind of attention, the tokens and a map of every head, or of the chosen ones."""
    check_heads(loaded.model, form.heads)
    windows = encode_windows(loaded.model, task, values, limits)
    if form.window >= len(windows):
        raise RequestError(422, "no_window", f"this input has {len(windows)} windows; they count from 0")
    read_window = make_pass(loaded.model, task, windows[form.window])
    with watch(loaded.model) as seen:
        read_window()
        if form.side >= len(seen):
            raise RequestError(422, "no_side", "this model reads its input as one text; leave side out")
        record, separator = seen[form.side], task.tokenizer.special.get("sep")
        statistics = seen.stats([] if separator is None else [separator])
        tokens = display_tokens(loaded, record)
        views = []
        for (stack, kind), attentions in group_attentions(seen).items():
            queries, keys = tokens[stack], tokens["encoder" if kind == "cross" else stack]
            addresses = [f"{name}.{number}" for name in attentions for number in seen.numbers[name]]
            maps = [
                {
                    "address": address,
                    "name": name_in_input(statistics[address], len(keys)),
                    **_pack(pool_weights(record, address, len(queries), len(keys), form.bands)),
                }
                for address in addresses
                if not form.heads or address in form.heads
            ]
            view: dict[str, Any] = {"stack": stack, "kind": kind, "queries": queries, "keys": keys, "maps": maps}
            if form.rollout and kind == "self" and len(queries) <= ROLLED:
                view["rollout"] = _pack(roll_out(record, attentions, seen))
            if form.rollout and kind == "cross" and len(queries) * len(keys) <= limits.weights:
                view["alignment"] = _pack(align_tokens(record, attentions, seen))
            views.append(view)
    return {"windows": len(windows), "sides": len(seen), "bits": BITS, "views": views}


def group_attentions(seen: Recording) -> dict[tuple[str, str], list[str]]:
    """The names of attentions, layer by layer, by stack and kind."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in seen.numbers:
        stack, _, kind = name.split(".")
        groups.setdefault((stack, kind), []).append(name)
    return groups


def name_in_input(statistics: Mapping[str, float], keys: int) -> str:
    """Name a head for what it does with this input, by the rules of `multihead heads stats`."""
    spread = statistics["entropy"] / math.log(keys) if keys > 1 else 0.0
    return name_head({**statistics, "spread": spread})


def pool_weights(record: RecordedInput, address: str, queries: int, keys: int, bands: int) -> Floats:
    """The weights of a head, [queries, keys]; where there are more than bands, the largest of each field.

    The largest and not the mean: a head that looks at one token stays a line. Of very many queries some, evenly
    spread, stand for all.
    """
    rows = None
    if queries > max(bands, SAMPLED):
        rows = np.linspace(0, queries - 1, SAMPLED).round().astype(int).tolist()
    weights = record.weights(address, rows).numpy()
    for axis in (0, 1):
        size = weights.shape[axis]
        if size > bands:
            starts = np.arange(bands) * size // bands
            weights = np.maximum.reduceat(weights, starts, axis=axis)
    return weights.astype(np.float32, copy=False)


def roll_out(record: RecordedInput, attentions: Sequence[str], seen: Recording) -> Floats:
    """Where each token's state after the last layer comes from, [T, T] (Abnar & Zuidema 2020)."""
    means = [torch.stack([record.weights(f"{name}.{n}") for n in seen.numbers[name]]).mean(0) for name in attentions]
    return attention_rollout(torch.stack(means))[-1].float().numpy()


def align_tokens(record: RecordedInput, attentions: Sequence[str], seen: Recording) -> Floats:
    """What the model looked at when it wrote each token, [T, S]: the mean over the heads of the last layer but one,
    whose heads follow the words best (Garg et al. 2019). Row t is of the token that was written after token t."""
    name = attentions[max(0, len(attentions) - 2)]
    return torch.stack([record.weights(f"{name}.{n}") for n in seen.numbers[name]]).mean(0).float().numpy()


def display_tokens(loaded: Pipeline, record: RecordedInput) -> dict[str, list[str]]:
    """The tokens that each stack read, as a person reads them: a leading space says that a word begins."""
    assert loaded.tokenizer is not None
    stacks = dict.fromkeys(name.split(".")[0] for name in record.seen.passes)
    shown = {}
    for stack in stacks:
        writer = loaded.tokenizer.target if stack == "decoder" and "encoder" in stacks else loaded.tokenizer
        shown[stack] = [display_token(writer, token) for token in record.tokens_of(stack)]
    return shown


def _pack(weights: Floats) -> dict[str, Any]:
    return {"shape": list(weights.shape), "weights": pack_weights(weights, BITS)}
