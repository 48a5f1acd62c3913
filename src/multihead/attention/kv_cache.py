"""KV cache: keys and values of earlier tokens, so that a decoding step processes new tokens only."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class LayerKVCache:
    """Keys [B,G,S,K] and values [B,G,S,W] of one attention layer, growing along S (or fixed, in cross-attention)."""

    def __init__(self) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys [B,G,T,K] and values [B,G,T,W]; return all keys and values so far."""
        self._check(k)
        start, self.length = self.length, self.length + k.shape[2]
        self.k, self.v = _append_rows(self.k, k, start), _append_rows(self.v, v, start)
        return self.k[:, :, : self.length], self.v[:, :, : self.length]

    def project_once(self, project: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the memory, projected at the first decoding step only."""
        if self.k is None or self.v is None:
            self.k, self.v = project()
            self.length = self.k.shape[2]
        return self.k, self.v

    def select(self, rows: Tensor) -> None:
        """Select batch rows, in this order: surviving beams, or examples that are not finished."""
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k.index_select(0, rows), self.v.index_select(0, rows)

    def _check(self, k: Tensor) -> None:
        if self.k is not None and self.k.shape[0] != k.shape[0]:
            raise ValueError(
                f"the cache holds a batch of {self.k.shape[0]}, the input has {k.shape[0]}; "
                "use a new KVCache, or cache.select(rows) to follow the batch"
            )


class KVCache:
    """One `LayerKVCache` per attention layer of a model, by name ("decoder.2", "decoder.2.cross").

    Example:
        >>> cache = KVCache()
        >>> hidden = decoder(prompt, cache=cache)  # prefill
        >>> hidden = decoder(next_token, cache=cache)  # one decoding step
    """

    def __init__(self) -> None:
        self.parts: dict[str, LayerKVCache] = {}

    def __getitem__(self, name: str) -> LayerKVCache:
        return self.parts.setdefault(name, LayerKVCache())

    @property
    def length(self) -> int:
        """Number of tokens in the cache."""
        return max((part.length for name, part in self.parts.items() if not name.endswith("cross")), default=0)

    def select(self, rows: Tensor) -> None:
        """Select batch rows in every layer."""
        for part in self.parts.values():
            part.select(rows)


def _append_rows(old: Tensor | None, new: Tensor, start: int) -> Tensor:
    """Return `old` with `new` written at `start`; storage doubles when full, so a step costs only what it adds."""
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
