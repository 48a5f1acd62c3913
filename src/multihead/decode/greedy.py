"""Decoding token by token: `Steps` reads, a rule chooses, `write` loops; greedy takes the likeliest."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import torch
from torch import Tensor

from multihead.attention import Cache
from multihead.models import Decoder, EncoderDecoder, Model

Rule = Callable[[Tensor], Tensor]  # logits [B, V] -> the next tokens [B]


class Steps:
    """A model that reads on: `read` takes the next tokens and gives the logits behind the last one.

    The prompt's rows may be padded at either side (keep [B, T]: True = a real token). They are moved to the
    right, so that every row's last token stands in the last column and distances inside a row have no gap.
    """

    def __init__(
        self,
        model: Model,
        tokens: Tensor,
        keep: Tensor | None = None,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
    ) -> None:
        body = model.body
        self.decoder = body.decoder if isinstance(body, EncoderDecoder) else body
        if not isinstance(self.decoder, Decoder):
            raise ValueError(f"a {type(body).__name__} cannot write; decoding wants a Decoder or an EncoderDecoder")
        if isinstance(body, EncoderDecoder) and memory is None:
            raise ValueError("an EncoderDecoder reads a source first: memory=model.body.encoder(source, keep)")
        if model.training:
            raise ValueError("the model is in training mode, dropout would choose the tokens; call model.eval() first")
        if tokens.shape[1] == 0 or (keep is not None and not keep.any(dim=1).all()):
            raise ValueError("a row of the prompt has no token; begin it with the model's start token")
        if keep is not None and bool(keep.all()):
            keep = None  # without padding no mask is needed at all
        if keep is not None:
            order = keep.long().argsort(dim=1, stable=True)  # False first: padding goes left, tokens keep their order
            tokens, keep = tokens.gather(1, order), keep.gather(1, order)
        self.readout, self.cache = model.readout, Cache()
        self.prompt, self.keep = tokens, keep
        self.memory, self.memory_keep = memory, memory_keep

    def check(self, limit: int) -> None:
        """Whether prompt and `limit` new tokens have room; the last token written is not read again."""
        stem: Any = self.decoder.stem
        positions = stem.positions
        longest = self.prompt.shape[1] + limit - 1
        if positions is not None and longest > positions.length:
            raise ValueError(
                f"a prompt of {self.prompt.shape[1]} tokens and limit={limit} need {longest} positions, "
                f"this model has {positions.length}; shorten the prompt or lower the limit"
            )

    def read(self, tokens: Tensor) -> Tensor:
        """tokens [B, T] -> logits [B, V] of what follows them"""
        if self.keep is not None and self.cache.length:
            self.keep = torch.cat((self.keep, torch.ones_like(tokens, dtype=torch.bool)), dim=1)
        hidden = self.decoder(tokens, self.keep, memory=self.memory, memory_keep=self.memory_keep, cache=self.cache)
        logits: Tensor = self.readout(hidden[:, -1:])[:, 0]
        return logits

    def select(self, rows: Tensor) -> None:
        """Go on with these rows of the batch, in this order."""
        self.cache.select(rows)
        self.keep, self.memory, self.memory_keep = (
            None if part is None else part.index_select(0, rows) for part in (self.keep, self.memory, self.memory_keep)
        )


@torch.no_grad()
def write(steps: Steps, choose: Rule, limit: int, stop: Set[int]) -> list[list[int]]:
    """Up to `limit` new tokens per row, a token of `stop` being the last; finished rows leave the batch."""
    if limit < 1:
        raise ValueError(f"limit={limit} leaves nothing to write; it must be at least 1")
    steps.check(limit)
    tokens = steps.prompt
    written: list[list[int]] = [[] for _ in range(len(tokens))]
    rows = list(range(len(tokens)))  # which row of the result each row of the batch is
    for _ in range(limit):
        chosen = choose(steps.read(tokens))
        for row, token in zip(rows, chosen.tolist(), strict=True):
            written[row].append(token)
        going = [i for i, row in enumerate(rows) if written[row][-1] not in stop]
        if not going:
            break
        if len(going) < len(rows):
            rows = [rows[i] for i in going]
            left = torch.tensor(going, device=tokens.device)
            steps.select(left)
            chosen = chosen.index_select(0, left)
        tokens = chosen[:, None]
    return written


def likeliest(logits: Tensor) -> Tensor:
    return logits.argmax(dim=-1)


def greedy(
    model: Model,
    tokens: Tensor,
    *,
    keep: Tensor | None = None,
    memory: Tensor | None = None,
    memory_keep: Tensor | None = None,
    limit: int,
    stop: Set[int] = frozenset(),
) -> list[list[int]]:
    """tokens [B, T] -> for every row the likeliest next tokens, one by one; the stop token is included.

    An encoder-decoder takes memory [B, S, D] (and memory_keep [B, S]) from its encoder; tokens are the
    target's first.
    """
    return write(Steps(model, tokens, keep, memory, memory_keep), likeliest, limit, stop)
