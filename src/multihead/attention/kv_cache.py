"""Keys and values of tokens already read, so that decoding reads each token once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class LayerKVCache:
    """Keys [B,G,S,K] and values [B,G,S,W] of one attention, growing along S (or fixed, in cross-attention)."""

    def __init__(self) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append; returns all keys and values so far."""
        self._check(k)
        start, self.length = self.length, self.length + k.shape[2]
        self.k, self.v = _append_rows(self.k, k, start), _append_rows(self.v, v, start)
        return self.k[:, :, : self.length], self.v[:, :, : self.length]

    def project_once(self, project: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Project the memory at the first step, and never again."""
        if self.k is None or self.v is None:
            self.k, self.v = project()
            self.length = self.k.shape[2]
        return self.k, self.v

    def select(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order: beams that go on, sentences that are not finished."""
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k.index_select(0, rows), self.v.index_select(0, rows)

    def _check(self, k: Tensor) -> None:
        if self.k is not None and self.k.shape[0] != k.shape[0]:
            raise ValueError(
                f"the cache holds a batch of {self.k.shape[0]}, the input has {k.shape[0]}; "
                "use a new Cache, or cache.select(rows) to follow the batch"
            )


class KVCache:
    """One `LayerKVCache` per attention of a model, by its name."""

    def __init__(self) -> None:
        self.parts: dict[str, LayerKVCache] = {}

    def __getitem__(self, name: str) -> LayerKVCache:
        return self.parts.setdefault(name, LayerKVCache())

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return max((part.length for name, part in self.parts.items() if not name.endswith("cross")), default=0)

    def select(self, rows: Tensor) -> None:
        for part in self.parts.values():
            part.select(rows)


def _append_rows(old: Tensor | None, new: Tensor, start: int) -> Tensor:
    """`old` with `new` at `start`; the store doubles when full, so a step costs what it adds."""
    stop = start + new.shape[2]
    if torch.is_grad_enabled() and (new.requires_grad or (old is not None and old.requires_grad)):
        return new if old is None else torch.cat((old[:, :, :start], new), dim=2)  # writing in place loses gradients
    if old is None or old.shape[2] < stop:
        B, G, _, width = new.shape
        store = new.new_empty(B, G, max(stop, 2 * start), width)
        if old is not None:
            store[:, :, :start] = old[:, :, :start]
        old = store
    old[:, :, start:stop] = new
    return old
