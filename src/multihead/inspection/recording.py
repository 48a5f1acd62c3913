"""Recordings of `watch`: references only. Weights are built on request, for one head and the requested rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from multihead.attention import AttentionRecord
from multihead.inspection.address import Address, locate
from multihead.inspection.statistics import HeadStatistics, summary
from multihead.io.html import html_table


class Recording:
    """All forward passes since `watch` began. `recording[i]` is input i: row i of the batches in order.

    Decoding steps with a KV cache belong to the input they continue; of one begun before, the first rows are missing.
    """

    def __init__(self, numbers: dict[str, tuple[int, ...]]) -> None:
        self.numbers = numbers  # head numbers of each attention, with gaps after pruning
        self.heads = {name: len(own_heads) for name, own_heads in numbers.items()}
        self.passes: dict[str, list[AttentionRecord]] = {name: [] for name in numbers}
        self.tokens: dict[str, list[Tensor]] = {}

    def __len__(self) -> int:
        runs = self.runs(next(iter(self.passes)))
        return sum(run[0].q.shape[0] for run in runs)

    def __getitem__(self, index: int) -> RecordedInput:
        if not -len(self) <= index < len(self):
            raise IndexError(f"input {index} was not recorded; there are {len(self)}")
        return RecordedInput(self, index % len(self))

    def __repr__(self) -> str:
        return f"<Recording: {len(self)} inputs, {len(self.passes)} attentions, {sum(self.heads.values())} heads>"

    def _repr_html_(self) -> str:
        rows = [(name, heads, len(self.passes[name])) for name, heads in self.heads.items()]
        return html_table(repr(self).strip("<>"), ("attention", "heads", "passes"), rows)

    def clear(self) -> None:
        """Discard the recording so far, and free its memory."""
        for records in self.passes.values():
            records.clear()
        for tokens in self.tokens.values():
            tokens.clear()

    def stats(self, separators: Sequence[int] = (), offset: bool = False) -> HeadStatistics:
        """Return statistics of every head over all inputs: entropy, share on itself, the neighbors, the first token,
        and on `separators` (token ids); with `offset`, the mean offset of its keys, ahead (+) or behind (-)."""
        if not len(self):
            raise ValueError("nothing was recorded yet; run the model inside `with watch(model) as seen:`")
        return summary(self, separators, offset)

    def calls(self, name: str, separators: Sequence[int]) -> Iterator[tuple[AttentionRecord, Tensor, Tensor | None]]:
        """Yield every call of one attention, with its real queries [B, T] and the keys that are separators [B, S]."""
        read = name.split(".")[0] if name == self_attention_of(name) else "encoder"
        marks = torch.tensor(list(separators))
        for number, (run, self_run) in enumerate(zip(self.runs(name), self.runs(self_attention_of(name)), strict=True)):
            for record, self_record in zip(run, self_run, strict=True):
                B, T = record.q.shape[0], record.q.shape[2]
                padding = self_record.bias.key_padding()
                keep = torch.ones(B, T, dtype=torch.bool) if padding is None else padding[:, -T:].expand(B, T)
                marked = None
                if separators:
                    if self_run[0].bias.first:
                        raise ValueError(
                            "watch began during decoding, so the prompt is unknown; begin before the prompt"
                        )
                    tokens = self._tokens(read, number)[:, : record.k.shape[2]]
                    marked = torch.isin(tokens, marks.to(tokens.device))
                yield record, keep, marked

    def _tokens(self, stack: str, number: int) -> Tensor:
        """Return the tokens of run `number` of a stack, [B, S], decoding steps joined."""
        if stack not in self.tokens:
            raise ValueError(f"{stack} has no tokens; stacks with tokens: {', '.join(self.tokens) or 'none'}")
        watched = next((name for name in self.passes if name.startswith(f"{stack}.")), None)
        if watched is None:
            raise ValueError(
                f"no self-attention of the {stack} was watched, which is needed for its tokens; watch one more"
            )
        runs = self.runs(watched)
        first = sum(len(run) for run in runs[:number])
        return torch.cat(self.tokens[stack][first : first + len(runs[number])], dim=1)

    def runs(self, name: str) -> list[list[AttentionRecord]]:
        """Return the passes of one attention, decoding steps joined to the pass that they continue."""
        runs: list[list[AttentionRecord]] = []
        for self_record, record in zip(self.passes[self_attention_of(name)], self.passes[name], strict=True):
            if self_record.bias.first > 0 and runs:
                if runs[-1][0].q.shape[0] != record.q.shape[0]:
                    raise ValueError("the batch changed during decoding; watch one input at a time")
                runs[-1].append(record)
            else:
                runs.append([record])
        return runs


class RecordedInput:
    """One recorded input: its tokens and, on demand, its weights, without padding."""

    def __init__(self, recording: Recording, index: int) -> None:
        self.seen, self.index = recording, index

    @torch.no_grad()
    def weights(self, address: Address, rows: Sequence[int] | slice | None = None) -> Tensor:
        """Return the attention weights of one head, exact: [rows, keys]. `rows` are query positions; None: all."""
        name, head = locate(address, self.seen.numbers)
        run, b = self._run(name)
        real_rows, real_keys = self._real(name, run, b)
        chosen = real_rows if rows is None else real_rows[rows if isinstance(rows, slice) else list(rows)]
        keys = run[-1].k.shape[2]
        starts = torch.tensor([self._first(name)] + [r.q.shape[2] for r in run]).cumsum(0).tolist()
        in_time, order = chosen.sort()
        parts = []
        for record, start, stop in zip(run, starts, starts[1:], strict=False):
            inside = in_time[(in_time >= start) & (in_time < stop)] - start
            if len(inside):
                part = head_weights(record, b, head, inside)
                parts.append(torch.nn.functional.pad(part, (0, keys - part.shape[-1])))
        weights_ = torch.cat(parts) if parts else torch.zeros(0, keys)
        return weights_[order.argsort()][:, real_keys]  # back to the requested order

    @property
    def tokens(self) -> list[int]:
        """Token ids of this input (of the source, for an encoder-decoder)."""
        return self.tokens_of(next(iter(self.seen.passes)).split(".")[0])

    def tokens_of(self, stack: str) -> list[int]:
        name = next((name for name in self.seen.passes if name.startswith(f"{stack}.")), "")
        if not name:
            raise ValueError(f"unknown stack {stack!r}; an address begins with its stack")
        run, b = self._run(name)
        rows, _ = self._real(name, run, b)
        return self.seen._tokens(stack, self._number(name))[b, rows - self._first(name)].tolist()

    def __repr__(self) -> str:
        return f"<input {self.index} of {len(self.seen)}>"

    def _number(self, name: str) -> int:
        before = 0
        for number, run in enumerate(self.seen.runs(name)):
            before += run[0].q.shape[0]
            if self.index < before:
                return number
        raise IndexError(f"{name} did not record input {self.index}")

    def _run(self, name: str) -> tuple[list[AttentionRecord], int]:
        runs, number = self.seen.runs(name), self._number(name)
        return runs[number], self.index - sum(run[0].q.shape[0] for run in runs[:number])

    def _real(self, name: str, run: list[AttentionRecord], b: int) -> tuple[Tensor, Tensor]:
        """Return the positions of the recorded real queries, and of the real keys, of row b."""
        keys = _real_positions(run[-1], b)
        queries = _real_positions(self.seen.runs(self_attention_of(name))[self._number(name)][-1], b)
        return queries[queries >= self._first(name)], keys

    def _first(self, name: str) -> int:
        """Return the position of the first recorded query; not 0 if watch began during decoding."""
        return self.seen.runs(self_attention_of(name))[self._number(name)][0].bias.first


def head_weights(record: AttentionRecord, b: int, head: int, rows: Tensor) -> Tensor:
    """Return exp(q·k·scale + add - lse) of some rows of one head: [rows, S]."""
    q = record.q[b, head, rows].to(torch.promote_types(record.q.dtype, torch.float32))
    k = record.k[b, head // (record.q.shape[1] // record.k.shape[1])].to(q.dtype)
    scores = q @ k.T * record.scale
    t = rows[:, None] + record.bias.first
    add = record.bias.pairs(t, torch.arange(k.shape[0], device=k.device)[None])
    if add is not None:
        scores = scores + add[b % add.shape[0], head % add.shape[1]]
    if record.lse is None:
        return scores.softmax(-1).nan_to_num(0.0)
    return (scores - record.lse[b, head, rows, None]).exp()


def self_attention_of(name: str) -> str:
    """Return the self-attention of a cross-attention's block: it has the positions and padding of the queries."""
    return name.removesuffix("cross") + "self" if name.endswith(".cross") else name


def _real_positions(record: AttentionRecord, b: int) -> Tensor:
    padding = record.bias.key_padding()
    if padding is None:
        return torch.arange(record.bias.keys)
    return padding[b % len(padding)].nonzero()[:, 0]
