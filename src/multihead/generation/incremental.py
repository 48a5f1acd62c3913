"""A model that reads on, token by token: what greedy decoding, sampling and beam search stand on.

Rows are [B, n]: n texts for each of B inputs (beams that compete, or one). `CachedModelStepper` runs the model as it
is, with its cache; `fast.decoder.FastDecoder` does the same sums with fewer operations, and `make_stepper` takes it
where it fits.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from multihead.attention import KVCache
from multihead.models import Decoder, EncoderDecoder, TaskModel


class Stepper(Protocol):
    """start once; then step and leave."""

    def start(self) -> Tensor:
        """Read the prompts; logits [B, V] of what follows them."""

    def step(self, tokens: Tensor, parents: Tensor | None = None) -> Tensor:
        """tokens [B, n] -> logits [B * n, V], to be used before the next step. Text i goes on from text
        parents[:, i] of the step before (None: from its own)."""

    def select_rows(self, rows: Tensor) -> None:
        """Go on with these inputs only, in this order."""


class Prompt:
    """What is read first. Rows may be padded at either side (keep [B, T]: True = a real token); they are moved to the
    right, so that every row's last token stands in the last column and distances inside a row have no gap."""

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
            raise ValueError(f"a {type(body).__name__} cannot write; decoding wants a Decoder or an EncoderDecoder")
        if isinstance(body, EncoderDecoder) and memory is None:
            raise ValueError("an EncoderDecoder reads a source first: memory=model.body.encoder(source, keep)")
        if memory is not None and len(memory) != len(tokens):
            raise ValueError(f"memory has {len(memory)} rows, tokens {len(tokens)}: one prompt for each source")
        if model.training:
            raise ValueError("the model is in training mode, dropout would choose the tokens; call model.eval() first")
        if tokens.shape[1] == 0 or (keep is not None and not keep.any(dim=1).all()):
            raise ValueError("a row of the prompt has no token; begin it with the model's start token")
        rows = decoder.stem.embedding.num_embeddings
        if (highest := int(tokens.max()) if tokens.numel() else 0) >= rows:
            raise ValueError(f"the prompt has token {highest}; this model's tokens are 0 to {rows - 1}")
        if keep is not None and bool(keep.all()):
            keep = None  # without padding no mask is needed at all
        if keep is not None:
            order = keep.long().argsort(dim=1, stable=True)  # False first: padding goes left, tokens keep their order
            tokens, keep = tokens.gather(1, order), keep.gather(1, order)
        if memory_keep is not None and bool(memory_keep.all()):
            memory_keep = None
        self.decoder: Decoder = decoder
        self.readout = model.readout
        self.tokens, self.keep = tokens, keep
        self.memory, self.memory_keep = memory, memory_keep

    def check(self, limit: int) -> None:
        """Whether prompt and `limit` new tokens have room; the last token written is not read again."""
        stem: Any = self.decoder.stem
        longest = self.tokens.shape[1] + limit - 1
        if stem.positions is not None and longest > stem.positions.length:
            raise ValueError(
                f"a prompt of {self.tokens.shape[1]} tokens and limit={limit} need {longest} positions, "
                f"this model has {stem.positions.length}; shorten the prompt or lower the limit"
            )

    def repeat(self, times: int) -> None:
        """Every row so often, one copy behind the other."""
        if times > 1:
            self.tokens = self.tokens.repeat_interleave(times, dim=0)
            self.keep, self.memory, self.memory_keep = (
                None if part is None else part.repeat_interleave(times, dim=0)
                for part in (self.keep, self.memory, self.memory_keep)
            )


class CachedModelStepper:
    """The model's own forward pass, with a cache whose rows are the texts."""

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
        """tokens [B * n, T] -> logits [B * n, V]"""
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
