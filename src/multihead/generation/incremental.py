"""Incremental decoding, token by token: the basis of greedy decoding, sampling and beam search.

Rows are [B, n]: n texts for each of B inputs (competing beams, or one). `CachedModelStepper` runs the unchanged model
with its KV cache; `fast.decoder.FastDecoder` computes the same with fewer operations, and `make_stepper` uses it where
it is supported.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from multihead.attention import KVCache
from multihead.models import Decoder, EncoderDecoder, TaskModel


class Stepper(Protocol):
    """Interface of a decoding step: start once; then step and select_rows."""

    def start(self) -> Tensor:
        """Prefill the prompts; return logits [B, V] of the next tokens."""

    def step(self, tokens: Tensor, parents: Tensor | None = None) -> Tensor:
        """Map tokens [B, n] to logits [B * n, V], valid until the next step. Text i continues text parents[:, i] of the
        previous step (None: itself)."""

    def select_rows(self, rows: Tensor) -> None:
        """Continue with these inputs only, in this order."""


class Prompt:
    """Prompts for the prefill. Rows may be padded on either side (keep [B, T]: True = a real token); they are shifted
    to the right, so that every row's last token is in the last column and rows have no gaps."""

    def __init__(
        self,
        model: TaskModel,
        tokens: Tensor,
        keep: Tensor | None = None,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
    ) -> None:
        body = model.body
        decoder = body.decoder if isinstance(body, EncoderDecoder) else body
        if not isinstance(decoder, Decoder):
            raise ValueError(f"a {type(body).__name__} cannot generate; decoding needs a Decoder or an EncoderDecoder")
        if isinstance(body, EncoderDecoder) and memory is None:
            raise ValueError("an EncoderDecoder needs a source; pass memory=model.body.encoder(source, keep)")
        if memory is not None and len(memory) != len(tokens):
            raise ValueError(f"memory has {len(memory)} rows, tokens {len(tokens)}; pass one prompt for each source")
        if model.training:
            raise ValueError("the model is in training mode, where dropout is random; call model.eval() first")
        if tokens.shape[1] == 0 or (keep is not None and not keep.any(dim=1).all()):
            raise ValueError("a row of the prompt has no token; begin it with the model's start token")
        rows = decoder.stem.embedding.num_embeddings
        if (highest := int(tokens.max()) if tokens.numel() else 0) >= rows:
            raise ValueError(f"the prompt has token {highest}; this model's tokens are 0 to {rows - 1}")
        if keep is not None and bool(keep.all()):
            keep = None  # no padding needs no mask
        if keep is not None:
            order = keep.long().argsort(dim=1, stable=True)  # False first: padding moves left, tokens keep their order
            tokens, keep = tokens.gather(1, order), keep.gather(1, order)
        if memory_keep is not None and bool(memory_keep.all()):
            memory_keep = None
        self.decoder: Decoder = decoder
        self.readout = model.readout
        self.tokens, self.keep = tokens, keep
        self.memory, self.memory_keep = memory, memory_keep

    def check(self, limit: int) -> None:
        """Raise if prompt and `limit` new tokens exceed the model's positions; the last token is not fed back."""
        stem: Any = self.decoder.stem
        longest = self.tokens.shape[1] + limit - 1
        if stem.positions is not None and longest > stem.positions.length:
            raise ValueError(
                f"a prompt of {self.tokens.shape[1]} tokens and limit={limit} need {longest} positions, "
                f"this model has {stem.positions.length}; shorten the prompt or lower the limit"
            )

    def repeat(self, times: int) -> None:
        """Repeat every row, copies adjacent."""
        if times > 1:
            self.tokens = self.tokens.repeat_interleave(times, dim=0)
            self.keep, self.memory, self.memory_keep = (
                None if part is None else part.repeat_interleave(times, dim=0)
                for part in (self.keep, self.memory, self.memory_keep)
            )


class CachedModelStepper:
    """The model's own forward pass, with a KV cache whose rows are the texts."""

    def __init__(self, prompt: Prompt) -> None:
        self.decoder, self.readout, self.prompt = prompt.decoder, prompt.readout, prompt.tokens
        self.keep, self.memory, self.memory_keep = prompt.keep, prompt.memory, prompt.memory_keep
        self.cache, self.inputs, self.width = KVCache(), len(prompt.tokens), 1

    def start(self) -> Tensor:
        return self._forward(self.prompt)

    def step(self, tokens: Tensor, parents: Tensor | None = None) -> Tensor:
        if parents is not None:
            first = torch.arange(self.inputs, device=tokens.device)[:, None] * self.width
            self._select((first + parents).flatten())
            self.width = parents.shape[1]
        return self._forward(tokens.reshape(-1, 1))

    def select_rows(self, rows: Tensor) -> None:
        self._select((rows[:, None] * self.width + torch.arange(self.width, device=rows.device)).flatten())
        self.inputs = len(rows)

    def _forward(self, tokens: Tensor) -> Tensor:
        """Map tokens [B * n, T] to logits [B * n, V]."""
        if self.keep is not None and self.cache.length:
            self.keep = torch.cat((self.keep, torch.ones_like(tokens, dtype=torch.bool)), dim=1)
        hidden = self.decoder(tokens, self.keep, memory=self.memory, memory_keep=self.memory_keep, cache=self.cache)
        logits: Tensor = self.readout(hidden[:, -1:])[:, 0]
        return logits

    def _select(self, rows: Tensor) -> None:
        self.cache.select(rows)
        self.keep, self.memory, self.memory_keep = (
            None if part is None else part.index_select(0, rows) for part in (self.keep, self.memory, self.memory_keep)
        )
