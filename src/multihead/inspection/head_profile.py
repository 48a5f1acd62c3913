"""Head statistics over a dataset, streaming: attention shares, entropy, distance, similarity between heads, rollout.

Everything but the entropy is linear in the weights, so one product of all heads' weights with a few indicator tables
(neighbors, separators, …) computes all of it; and one product of the square roots of the weights with themselves gives
the similarity of every two heads: Σ √(p q), the Bhattacharyya coefficient, 1 for equal attention. Weights are built a
few rows at a time: memory does not grow with the dataset.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.attention import AttentionRecord
from multihead.inference import Pipeline
from multihead.inspection import watch
from multihead.inspection.head_clusters import cluster_heads
from multihead.inspection.head_names import name_head
from multihead.inspection.inputs import ModelInputs, run_body
from multihead.inspection.statistics import format_line
from multihead.io.html import html_table
from multihead.tasks import Batch, Values
from multihead.text.tokenizer import Tokenizer

CHUNK = 2**23  # weights at a time
ROLLED = 1024  # tokens: longer inputs are excluded from the rollout, which needs all rows at once
# over all rows; entropy in nats, spread = entropy / its maximum, distance in tokens, all others are shares
COLUMNS = (
    "entropy", "spread", "distance", "self", "previous", "next", "first", "separator", "punctuation", "same", "after",
)  # fmt: skip
LINEAR = COLUMNS[2:]
ROWS = {"same", "after"}  # means over rows with such a key; most words occur once in a sentence
POSITIONAL = {"distance", "self", "previous", "next", "after"}  # nan in cross-attention


@dataclass(frozen=True)
class HeadProfile:
    """Statistics of the heads. `profile["encoder.2.self.3"]` is a line; columns are aligned with `addresses`."""

    addresses: list[str]
    columns: dict[str, NDArray[np.float64]]
    names: list[str]
    similarity: dict[str, NDArray[np.float64]]  # by stack and kind, "encoder.self": [heads, heads]
    clusters: list[list[str]]  # heads with similar attention
    rollout: dict[str, dict[str, list[float]]]  # by stack: share on self, first, separator, layer by layer
    inputs: int
    tokens: int

    def __getitem__(self, address: str) -> dict[str, float]:
        return format_line(self.addresses, self.columns, address)

    def __len__(self) -> int:
        return len(self.addresses)

    def __repr__(self) -> str:
        lines = [f"{address:<20}{name}" for address, name in zip(self.addresses, self.names, strict=True)]
        return f"{self.inputs:,} inputs, {self.tokens:,} tokens\n" + "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            (address, name, *(f"{self.columns[column][i]:.2f}" for column in COLUMNS))
            for i, (address, name) in enumerate(zip(self.addresses, self.names, strict=True))
        ]
        return html_table(f"{self.inputs:,} inputs, {self.tokens:,} tokens", ("head", "name", *COLUMNS), rows)


@dataclass
class _StackSums:
    """Running sums of all heads of one stack and kind."""

    attentions: list[str]
    addresses: list[str]
    sums: dict[str, Tensor] = field(default_factory=dict)  # name -> [A]
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COLUMNS, 0))
    likeness: Tensor | None = None  # [A, A]
    rolled: Tensor | None = None  # [3, layers]
    rows_rolled: int = 0


@torch.inference_mode()
def stats(
    loaded: Pipeline,
    rows: Iterable[Values],
    batch_tokens: int = 4096,
    on_progress: Callable[[int], None] | None = None,
) -> HeadProfile:
    """Profile every head over rows of data; `on_progress` is called with the number of inputs processed."""
    assert loaded.tokenizer is not None
    model, feed, kinds = loaded.model.eval(), ModelInputs(loaded), TokenKinds(loaded.tokenizer)
    writer = loaded.target_tokenizer or loaded.tokenizer.target
    written = kinds if writer is loaded.tokenizer else TokenKinds(writer)
    inputs = tokens = 0
    groups: dict[str, _StackSums] = {}
    with watch(model) as recording:
        for name, numbers in recording.numbers.items():
            stack, _, kind = name.split(".")
            group = groups.setdefault(f"{stack}.{kind}", _StackSums([], []))
            group.attentions.append(name)
            group.addresses += [f"{name}.{number}" for number in numbers]
        for batch in feed.batches(rows, batch_tokens):
            run_body(model, batch)
            for name, group in groups.items():
                _add(
                    group,
                    [recording.passes[name_][0] for name_ in group.attentions],
                    *attention_sides(name, batch, kinds, written),
                )
            inputs, tokens = inputs + len(batch["tokens"]), tokens + int(batch["keep"].sum())
            recording.clear()
            if on_progress is not None:
                on_progress(inputs)
    if not inputs:
        raise ValueError("the data has no usable row")
    return _profile(groups, inputs, tokens)


class AttentionSide:
    """Tokens [B, T] on one side of an attention; which are real, separators, punctuation."""

    def __init__(self, tokens: Tensor, keep: Tensor, kinds: TokenKinds) -> None:
        self.tokens, self.keep, self.kinds = tokens, keep, kinds
        self.separator = torch.isin(tokens, torch.tensor(kinds.separators)) & keep
        self.punctuation = kinds.punctuation(tokens) & keep


class TokenKinds:
    """Token classes of a vocabulary: separators, punctuation."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, special = tokenizer, tokenizer.special
        self.separators = [special[name] for name in ("sep", "eos") if name in special]
        self.known: dict[int, bool] = {}

    def punctuation(self, tokens: Tensor) -> Tensor:
        unique, places = tokens.unique(return_inverse=True)
        for number in unique.tolist():
            if number not in self.known:
                self.known[number] = self._is_punctuation(number)
        return torch.tensor([self.known[number] for number in unique.tolist()])[places]

    def _is_punctuation(self, number: int) -> bool:
        if number in self.tokenizer.special.values() or number >= len(self.tokenizer):
            return False
        text = self.tokenizer.decode([number], skip_special=False).strip().removeprefix("##")
        return bool(text) and all(unicodedata.category(character)[0] == "P" for character in text)


def attention_sides(
    group: str, batch: Batch, source: TokenKinds, target: TokenKinds
) -> tuple[AttentionSide, AttentionSide]:
    """Return queries and keys of a group of attentions."""
    read = AttentionSide(batch["tokens"], batch["keep"], source)
    if "target" not in batch or group.startswith("encoder"):
        return read, read
    written = AttentionSide(batch["target"], batch["target_keep"], target)
    return written, read if group.endswith("cross") else written


def weights_of(records: list[AttentionRecord], start: int, stop: int) -> Tensor:
    """Return the weights of queries start..stop of several attentions on the same keys: [A, B, rows, S]."""
    parts = []
    for record in records:
        q, k = record.q[:, :, start:stop], record.k
        if (group := q.shape[1] // k.shape[1]) > 1:
            k = k.repeat_interleave(group, dim=1)
        scores = q @ k.transpose(-1, -2) * record.scale
        add = record.bias.rows(start, stop)
        scores = scores if add is None else scores + add
        parts.append(scores.softmax(-1).nan_to_num(0.0).transpose(0, 1))  # a fully masked row has no weights
    return torch.cat(parts)


def _add(group: _StackSums, records: list[AttentionRecord], queries: AttentionSide, keys: AttentionSide) -> None:
    B, T = queries.tokens.shape
    S, A = keys.tokens.shape[1], len(group.addresses)
    step = max(1, CHUNK // (A * B * S))
    crossing = records[0].bias.crossing
    layers = [record.q.shape[1] for record in records]
    means: list[Tensor] | None = [] if T <= ROLLED and not crossing else None
    for start in range(0, T, step):
        stop = min(start + step, T)
        weights = weights_of(records, start, stop) * queries.keep[:, start:stop, None]
        look = _look(records[0], start, stop, B) & queries.keep[:, start:stop, None]  # [B, rows, S]
        tables = _tables(queries, keys, look, start, crossing)
        flat = weights.flatten(1)  # [A, B · rows · S]
        linear = flat.double() @ torch.stack(list(tables.values()), -1).flatten(0, -2).double()  # sums of millions
        entropy = torch.special.entr(weights).sum(-1)  # [A, B, rows]
        most = look.sum(-1).clamp(min=1).log()
        spread = torch.where(most > 0, entropy / most, 0.0)
        real = int(queries.keep[:, start:stop].sum())
        for name, column in (("entropy", entropy.sum((1, 2))), ("spread", spread.sum((1, 2)))):
            _sum(group, name, column, real if name == "entropy" else int((most > 0).sum()))
        for place, (name, table) in enumerate(tables.items()):
            _sum(group, name, linear[:, place], int((table > 0).any(-1).sum()) if name in ROWS else real)
        roots = flat.sqrt()
        like = (roots @ roots.T).double()
        group.likeness = like if group.likeness is None else group.likeness + like
        if means is not None:
            means.append(torch.stack([part.mean(0) for part in weights.split(layers)]))  # [L, B, rows, S]
    if means is not None:
        _add_rollout(group, torch.cat(means, dim=2), queries)


def _look(record: AttentionRecord, start: int, stop: int, batch: int) -> Tensor:
    """Return the mask of allowed keys, [B, rows, S]."""
    add = record.bias.rows(start, stop)
    if add is None:
        return torch.ones(batch, stop - start, record.k.shape[2], dtype=torch.bool)
    return (add[:, 0] > -torch.inf).expand(batch, stop - start, -1)


def _tables(queries: AttentionSide, keys: AttentionSide, look: Tensor, start: int, crossing: bool) -> dict[str, Tensor]:
    """Return indicator tables, [B, rows, S] each: the statistic that the weight on a key counts for."""
    rows, S = look.shape[1:]
    t, s = torch.arange(start, start + rows)[:, None], torch.arange(S)[None]
    query_tokens, theirs = queries.tokens[:, start : start + rows, None], keys.tokens[:, None]
    elsewhere = (t != s) | torch.tensor(crossing)
    same = (query_tokens == theirs) & elsewhere & keys.keep[:, None] & look
    if queries.kinds is not keys.kinds:  # token ids of two vocabularies are not comparable
        same = torch.zeros_like(same)
    before = torch.nn.functional.pad(same[..., :-1], (1, 0))  # the previous key is the query's own word
    # Left padding: the first real key of each row.
    first = s == keys.keep.long().argmax(1)[:, None, None]
    tables = {
        "first": first,
        "separator": keys.separator[:, None],
        "punctuation": keys.punctuation[:, None],
        "same": same,
    }
    if not crossing:
        tables |= {"distance": (t - s).abs(), "self": t == s, "previous": s == t - 1, "next": s == t + 1}
        tables |= {"after": before & look & elsewhere}
    return {name: tables[name].expand(look.shape).float() for name in LINEAR if name in tables}


def _sum(group: _StackSums, name: str, column: Tensor, count: int) -> None:
    group.sums[name] = group.sums.get(name, torch.zeros(len(column), dtype=torch.float64)) + column.double()
    group.counts[name] += count


def attention_rollout(means: Tensor) -> Tensor:
    """Compute the attention rollout (Abnar & Zuidema 2020): half of a layer's mean attention and half of the residual,
    composed over layers. means [L, …, T, T] -> the same shape, each from the input up to that layer."""
    identity = torch.eye(means.shape[-1], dtype=means.dtype)
    so_far, paths = identity, []
    for layer in means:
        so_far = (0.5 * layer + 0.5 * identity) @ so_far
        paths.append(so_far)
    return torch.stack(paths)


def _add_rollout(group: _StackSums, means: Tensor, queries: AttentionSide) -> None:
    paths = attention_rollout(means) * queries.keep[:, :, None]  # [L, B, T, T]
    first = queries.keep.long().argmax(1)
    shares = torch.stack(
        [
            paths.diagonal(dim1=-2, dim2=-1).sum((1, 2)),
            paths[:, torch.arange(len(first)), :, first].sum((0, 2)),
            (paths * queries.separator[:, None]).sum((1, 2, 3)),
        ]
    ).double()
    group.rolled = shares if group.rolled is None else group.rolled + shares
    group.rows_rolled += int(queries.keep.sum())


def _profile(groups: dict[str, _StackSums], inputs: int, tokens: int) -> HeadProfile:
    addresses = [address for group in groups.values() for address in group.addresses]
    nan = float("nan")
    columns = {
        name: np.concatenate(
            [
                (group.sums[name] / group.counts[name]).numpy()
                if group.counts[name]
                else np.full(len(group.addresses), nan)
                for group in groups.values()
            ]
        )
        for name in COLUMNS
    }
    lines = [{name: float(column[i]) for name, column in columns.items()} for i in range(len(addresses))]
    similarity = {
        name: (group.likeness / max(group.counts["entropy"], 1)).numpy()
        for name, group in groups.items()
        if group.likeness is not None
    }
    clusters = [
        [groups[name].addresses[i] for i in cluster]
        for name, like in similarity.items()
        for cluster in cluster_heads(like)
    ]
    rollout = {
        name.split(".")[0]: dict(
            zip(("self", "first", "separator"), (group.rolled / group.rows_rolled).tolist(), strict=True)
        )
        for name, group in groups.items()
        if group.rolled is not None
    }
    return HeadProfile(
        addresses, columns, [name_head(line) for line in lines], similarity, clusters, rollout, inputs, tokens
    )
