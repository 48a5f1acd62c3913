"""One decoding step for texts of different lengths, each with its own keys and values: texts join and leave in between.

`decode.lean.Lean` keeps all texts of a batch at one column: a text that joins later would have to stand as far right as
the others, and one that is longer than they are does not fit. Here every text has a slot, left-aligned, and its own
length; the parts of the layers are the same. `CacheReader` does the same, text by text, for models that `lean` does
not know (adapters, pruned heads).
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from multihead.attention import KVCache, PositionEncoding
from multihead.attention.position import Rotary
from multihead.generation.fast.layers import is_supported, make_norm
from multihead.generation.fast.weight_cache import decoder_weights
from multihead.generation.incremental import Prompt
from multihead.models import Decoder, TaskModel

ROOM = 64  # tokens by which the slots grow at least


class SlotReader(Protocol):
    """Texts by their places 0, 1, 2 …; the last one takes the place of one that leaves."""

    def join(self, cache: KVCache) -> None:
        """Take in a text of which a prefix was read into a cache of its own."""

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of every text: tokens [B] -> logits [B, V]."""

    def leave(self, place: int) -> None:
        """Forget a text; the last one moves to its place."""

    def cache_of(self, place: int) -> KVCache:
        """Return what a text has read as a cache of its own, as `join` took it."""


def make_reader(model: TaskModel) -> SlotReader:
    """Return the fast reader where it knows every part of the model."""
    prompt = Prompt(model, torch.zeros(1, 1, dtype=torch.long, device=model.device))
    return BatchReader(prompt) if is_supported(prompt) else CacheReader(model)


class CacheReader:
    """Every text for itself, by the model's own forward pass."""

    def __init__(self, model: TaskModel) -> None:
        self.model = model
        self.caches: list[KVCache] = []

    def join(self, cache: KVCache) -> None:
        self.caches.append(cache)

    def step(self, tokens: Tensor) -> Tensor:
        rows = [read_on(self.model, tokens[i : i + 1], cache) for i, cache in enumerate(self.caches)]
        return torch.cat(rows)

    def leave(self, place: int) -> None:
        self.caches[place] = self.caches[-1]
        self.caches.pop()

    def cache_of(self, place: int) -> KVCache:
        return self.caches[place]


def read_on(model: TaskModel, tokens: Tensor, cache: KVCache) -> Tensor:
    """Read more tokens [T] of the text in a cache; logits [1, V] of what follows."""
    hidden = model.body(tokens[None], cache=cache)
    logits: Tensor = model.readout(hidden[:, -1:])[:, 0]
    return logits


class BatchReader:
    """All texts in one product. Shapes: B texts, G key/value heads of R queries, L layers, S keys of the longest."""

    def __init__(self, prompt: Prompt) -> None:
        decoder: Any = prompt.decoder
        self.parts, self.stem = decoder_weights(prompt), decoder.stem
        self.position: PositionEncoding | None = decoder.stack.position
        self.window: int | None = decoder.stack.window
        self.addresses = [block.address for block in decoder.stack.blocks]
        attention = decoder.stack.blocks[0].attention
        self.G, self.R, self.K = attention.kv_heads, attention.heads // attention.kv_heads, attention.key_dims[0]
        self.table, self.stem_norm = self.stem.embedding.weight, make_norm(self.stem.norm)
        self.types = None if self.stem.types is None else self.stem.types.weight[0]
        self.lengths: list[int] = []
        self.pool = self.table.new_zeros(len(self.addresses), 2, 0, self.G, 0, self.K)  # [L, 2, B, G, S, K]
        self.angles: Tensor | None = None  # [S, K]: cos and sin of every position, where positions are turned

    def join(self, cache: KVCache) -> None:
        place, length = len(self.lengths), cache.length
        self._make_room(place + 1, length + 1)
        for layer, address in enumerate(self.addresses):
            part = cache[address]
            assert part.k is not None
            assert part.v is not None
            self.pool[layer, 0, place, :, :length] = part.k[0, :, :length]
            self.pool[layer, 1, place, :, :length] = part.v[0, :, :length]
        self.lengths.append(length)

    def cache_of(self, place: int) -> KVCache:
        cache, length = KVCache(), self.lengths[place]
        for layer, address in enumerate(self.addresses):
            k, v = self.pool[layer, :, place : place + 1, :, :length].clone()
            cache[address].append(k, v)
        return cache

    def leave(self, place: int) -> None:
        last = len(self.lengths) - 1
        if place < last:
            length = self.lengths[last]
            self.pool[:, :, place, :, :length] = self.pool[:, :, last, :, :length]
            self.lengths[place] = length
        self.lengths.pop()

    def step(self, tokens: Tensor) -> Tensor:
        B, G, K = len(self.lengths), self.G, self.K
        S = max(self.lengths) + 1
        self._make_room(B, S)
        at = torch.tensor(self.lengths, device=tokens.device)  # [B]: where the new tokens stand
        rows, sizes = torch.arange(B, device=tokens.device), (G * self.R * K, 2 * G * K)
        add, angles = self._bias(at, S), self._angles_at(at)
        x = self._embed(tokens, at)
        for layer, (keys, values) in zip(self.parts.layers, self.pool, strict=True):
            first = layer.norm_first
            flat = layer.qkv(layer.norm(x) if first else x)  # [B, (G * R + 2 * G) * K]
            if angles is not None:
                flat = self._turn(flat, angles)
            asked, new = flat.split_with_sizes(sizes, dim=1)
            keys[rows, :, at], values[rows, :, at] = new.view(B, 2, G, K).unbind(1)
            k, v = keys[:B].flatten(0, 1)[:, :S], values[:B].flatten(0, 1)[:, :S]  # [B * G, S, K], not copied
            q = asked.reshape(B * G, self.R, K)
            scores = torch.bmm(q, k.mT) if add is None else torch.baddbmm(add, q, k.mT)
            mixed = torch.bmm(torch.softmax(scores, dim=-1), v).view(B, -1)
            x = layer.out(mixed).add_(x)
            x = x if first else layer.norm(x)
            x = layer.ffn(layer.feed_norm(x) if first else x).add_(x)
            x = x if first else layer.feed_norm(x)
        self.lengths = [length + 1 for length in self.lengths]
        logits: Tensor = self.parts.readout(self.parts.norm(x))
        return logits

    def _embed(self, tokens: Tensor, at: Tensor) -> Tensor:
        """tokens [B] standing at `at` [B] -> [B, D]"""
        x = self.table.index_select(0, tokens)
        if self.stem.scale != 1.0:
            x.mul_(self.stem.scale)
        if self.types is not None:
            x.add_(self.types)
        if self.stem.positions is not None:
            x.add_(self.stem.positions(at))
        return self.stem_norm(x)

    def _bias(self, at: Tensor, S: int) -> Tensor | None:
        """What is added to the scores [B * G, R, S]: -inf for keys that a text has not, or that are too far behind."""
        B, places = len(at), torch.arange(S, device=at.device)[None]  # [1, S]
        add: Tensor | None = None
        behind = at[:, None] - places  # [B, S]
        hidden = behind < 0 if self.window is None else (behind < 0) | (behind >= self.window)
        if bool(hidden.any()):
            add = self.pool.new_zeros(B, 1, 1, S).masked_fill_(hidden[:, None, None], float("-inf"))
        if self.position is not None and self.position.heads:
            bias = self.position.bias(at[:, None], places).to(self.pool.dtype)  # [1, H, B, S]
            bias = bias[0].view(self.G, self.R, B, S).permute(2, 0, 1, 3)
            add = bias if add is None else bias + add
        return None if add is None else add.expand(B, self.G, self.R, S).reshape(B * self.G, self.R, S)

    def _angles_at(self, at: Tensor) -> Tensor | None:
        """cos and sin [B, K] of where the new tokens stand."""
        if not isinstance(self.position, Rotary):
            return None
        most = int(at.max()) + 1
        if self.angles is None or len(self.angles) < most:
            # Turned by each position, (1, 0) becomes (cos, sin).
            half = self.position.width // 2
            basis = self.pool.new_zeros(1, 1, 2 * most, self.K)
            basis[..., :half] = 1.0
            self.angles = self.position.rotate(basis, 0)[0, 0]
        return self.angles.index_select(0, at)

    def _turn(self, flat: Tensor, angles: Tensor) -> Tensor:
        """Turn queries and keys, which stand side by side."""
        assert isinstance(self.position, Rotary)
        heads, half = self.G * self.R + self.G, self.position.width // 2
        x = flat[:, : heads * self.K].view(-1, heads, self.K)
        cos, sin = angles[:, None, :half], angles[:, None, half : 2 * half]
        a, b, rest = x.split((half, half, self.K - 2 * half), dim=-1)
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)
        return torch.cat((turned.flatten(1), flat[:, heads * self.K :]), dim=1)

    def _make_room(self, texts: int, length: int) -> None:
        """Grow the slots. What is not written yet is 0: it is masked, but 0 x NaN would not be."""
        L, two, B, G, S, K = self.pool.shape
        if texts <= B and length <= S:
            return
        size = S if length <= S else max(length + ROOM, S * 3 // 2)
        pool = self.pool.new_zeros(L, two, max(texts, B), G, size, K)
        pool[:, :, :B, :, :S] = self.pool
        self.pool = pool


def is_decoder(model: TaskModel) -> bool:
    return isinstance(model.body, Decoder)
