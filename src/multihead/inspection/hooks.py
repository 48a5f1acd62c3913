"""`watch` and `ablate`: record every head of a model, and switch heads off, at fused speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from multihead.attention import AttentionRecord, MultiHeadAttention
from multihead.inspection.address import Address, attentions, locate, numbers
from multihead.inspection.recording import Recording, self_attention_of
from multihead.models import Decoder, Encoder, TokenEmbedding


class HasModel(Protocol):
    """Object with a module as its `model`, such as a pipeline."""

    @property
    def model(self) -> nn.Module: ...


@contextmanager
def watch(model: nn.Module | HasModel, only: Sequence[str] = ()) -> Iterator[Recording]:
    """Record every attention (or `only` these, as `encoder.2.self`). Stores only references until weights are
    requested."""
    model = model if isinstance(model, nn.Module) else model.model
    selected = attentions(model)
    if unknown := [name for name in only if name not in selected]:
        raise ValueError(f"unknown attention {unknown[0]!r}; known: {', '.join(selected)}")
    required = {self_attention_of(name) for name in only} | set(
        only
    )  # the self-attention of the same block has the rows of a cross-attention
    selected = {name: attention for name, attention in selected.items() if not only or name in required}
    known = numbers(model)
    recording = Recording({name: known[name] for name in selected})
    taps = {name: _RecordTap(recording.passes[name]) for name in selected}
    handles = _read_tokens(model, recording)
    for name, attention in selected.items():
        attention.taps.append(taps[name])
    try:
        yield recording
    finally:
        for name, attention in selected.items():
            attention.taps.remove(taps[name])
        for handle in handles:
            handle.remove()


@contextmanager
def ablate(model: nn.Module | HasModel, heads: Sequence[Address]) -> Iterator[None]:
    """Switch heads off: their output becomes 0. Other heads are bit-identical."""
    model = model if isinstance(model, nn.Module) else model.model
    by_address = attentions(model)
    off = {name: torch.zeros(attention.heads, dtype=torch.bool) for name, attention in by_address.items()}
    known = numbers(model)
    for address in heads:
        name, head = locate(address, known)
        off[name][head] = True
    taps = {name: _AblateTap(silent) for name, silent in off.items() if silent.any()}
    for name, tap in taps.items():
        by_address[name].taps.insert(0, tap)
    try:
        yield
    finally:
        for name, tap in taps.items():
            by_address[name].taps.remove(tap)


def is_watched(model: nn.Module) -> bool:
    """Whether a `watch` of this model is open: inputs are then processed one by one, in order."""
    return any(
        isinstance(tap, _RecordTap) for m in model.modules() if isinstance(m, MultiHeadAttention) for tap in m.taps
    )


class _RecordTap:
    def __init__(self, records: list[AttentionRecord]) -> None:
        self.records = records

    def __call__(self, attended: AttentionRecord) -> Tensor:
        if torch._C._current_graph_task_id() == -1:  # skip recomputation of a checkpointed block inside backward
            q, k, v, mixed = (x.detach() for x in attended[:4])  # do not retain the graph in training
            self.records.append(attended._replace(q=q, k=k, v=v, mixed=mixed))
        return attended.mixed


class _AblateTap:
    def __init__(self, off: Tensor) -> None:
        self.off = off[:, None, None]

    def __call__(self, attended: AttentionRecord) -> Tensor:
        return attended.mixed.masked_fill(self.off.to(attended.mixed.device), 0.0)


def _read_tokens(model: nn.Module, recording: Recording) -> list[RemovableHandle]:
    """Record token ids from the inputs of the stems."""

    handles = []
    for body in model.modules():
        if isinstance(body, Encoder | Decoder) and isinstance(body.stem, TokenEmbedding):
            stack = "encoder" if isinstance(body, Encoder) else "decoder"
            read = partial(_read, recording.tokens.setdefault(stack, []))
            handles.append(body.stem.register_forward_pre_hook(read))
    return handles


def _read(read: list[Tensor], stem: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    read.append(inputs[0].detach())
