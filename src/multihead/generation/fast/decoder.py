"""One decoding step in as few operations as possible: the same sums as the model's own forward pass.

A step processes one token per text, so its cost is the number of operations, not their size: queries, keys and values
come from one product; there is no time axis; plain matmuls and a softmax are faster here than the fused kernel, which
is made for many queries.

The n texts of one input share one KV cache, and a mask marks which entries each text attends to: those of its own
past. Reordering beams thus moves rows of the mask, never keys; and the prefill (the prompt, the encoder's memory) is
stored once, not n times. From time to time, keys that no text attends to are dropped.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from multihead.attention import KVCache, MultiHeadAttention, PositionEncoding
from multihead.generation.fast.cross_attention import PrecomputedCrossAttention
from multihead.generation.fast.layers import make_norm
from multihead.generation.fast.weight_cache import decoder_weights
from multihead.generation.incremental import Prompt

ROOM = 32  # new tokens that fit before the cache must be compacted or enlarged
# `PrecomputedCrossAttention` is used where it is faster: up to this many source tokens per head column, and entries per
# matrix. Beyond, keys and values take 0.97 (64 tokens, 4 heads of 32) to 0.66 (128, 8 of 64) of its time.
SHORT, TABLE = 1.5, 2**16


class FastDecoder:
    """Optimized `Stepper`. Shapes: B inputs, n texts each, G key/value heads of R queries, L layers, S keys in the
    cache."""

    def __init__(self, prompt: Prompt) -> None:
        decoder, self.prompt = prompt.decoder, prompt
        self.parts, self.stem, self.position = decoder_weights(prompt), decoder.stem, decoder.stack.position
        self.layers, self.readout, self.norm = self.parts.layers, self.parts.readout, self.parts.norm
        self.window = decoder.stack.window
        stem: Any = decoder.stem
        self.table, self.stem_norm = stem.embedding.weight, make_norm(stem.norm)
        self.types = None if stem.types is None else stem.types.weight[0]
        self.positions = stem.positions
        attention: MultiHeadAttention = next(iter(decoder.stack.blocks)).attention  # type: ignore[assignment]
        self.G, self.R, self.K = attention.kv_heads, attention.heads // attention.kv_heads, attention.key_dims[0]
        self.B, self.n = prompt.tokens.shape[0], 1
        self.column, self.used = 0, 0  # tokens processed; keys in the cache
        self.first: Tensor | None = None  # [B, 1]: padding before each prompt; None: none
        self.seen: Tensor | None = None  # [B, n, S]: 0 where a text attends to a key, else -inf; None: no mask
        self.apart: Tensor | None = None  # [n, n]: of new keys, a text attends only to its own
        self.places: Tensor | None = None  # [B, S]: positions of the keys, if a position bias needs them
        self.pool = prompt.tokens.new_empty(0)
        self.crossing: list[tuple[Tensor, Tensor]] = []
        self.recalls: list[PrecomputedCrossAttention] = []  # used instead for a single short source
        self.memory_seen: Tensor | None = None  # [B, S]
        self.across: Tensor | None = None  # the same for n texts and all heads

    def start(self) -> Tensor:
        prompt = self.prompt
        weight = self.table
        T = prompt.tokens.shape[1]
        shape = (len(self.layers), 2, self.B * self.G, (0 if T == 1 else T) + ROOM, self.K)
        self.pool = torch.empty(shape, dtype=weight.dtype, device=weight.device)
        if self.window is not None or (self.position is not None and self.position.heads):
            self.places = torch.zeros(self.B, shape[3], dtype=torch.long, device=weight.device)
        if self.window is not None:
            self.seen = self.pool.new_zeros(self.B, 1, shape[3])
        if prompt.memory is not None:
            self._prepare_memory(prompt.memory, prompt.memory_keep)
        return self.step(prompt.tokens) if T == 1 else self._prefill(T)

    def _prefill(self, T: int) -> Tensor:
        """Prefill: run the model on the full prompt and copy its keys and values to the cache."""
        prompt, cache = self.prompt, KVCache()
        source = {"memory": prompt.memory, "memory_keep": prompt.memory_keep}
        hidden = prompt.decoder(prompt.tokens, prompt.keep, cache=cache, **source)
        for part, block in zip(self.pool, prompt.decoder.stack.blocks, strict=True):
            entry = cache[block.address]  # type: ignore[index]
            part[0, :, :T] = entry.k[:, :, :T].flatten(0, 1)  # type: ignore[index]
            part[1, :, :T] = entry.v[:, :, :T].flatten(0, 1)  # type: ignore[index]
        if self.places is not None:
            self.places[:, :T] = torch.arange(T, device=self.places.device)
        if prompt.keep is not None:
            self.first = (~prompt.keep).sum(1, keepdim=True)
            self.seen = self.pool.new_zeros(self.B, 1, self.pool.shape[3]) if self.seen is None else self.seen
            self.seen[:, 0, :T].masked_fill_(~prompt.keep, float("-inf"))
        self.column = self.used = T
        logits: Tensor = self.readout(hidden[:, -1])
        return logits

    def _prepare_memory(self, memory: Tensor, keep: Tensor | None) -> None:
        """Compute the memory's keys [B*G, K, S] and values [B*G, S, K] of every layer, and its padding mask."""
        assert self.parts.remembers is not None
        assert self.parts.recalls is not None
        B, S, G, K = self.B, memory.shape[1], self.G, self.K
        flat = self.parts.remembers(memory.flatten(0, 1)).view(B, S, -1, 2, G, K)
        keys = flat[:, :, :, 0].permute(2, 0, 3, 4, 1).reshape(-1, B * G, K, S)
        values = flat[:, :, :, 1].permute(2, 0, 3, 1, 4).reshape(-1, B * G, S, K)
        short = S <= SHORT * K and S * self.parts.recalls.width <= TABLE
        if B == 1 and keep is None and short and memory.dtype.itemsize >= 4:
            self.recalls = self.parts.recalls.for_source(keys.flatten(0, 1), values.flatten(0, 1))
            return
        self.crossing = list(zip(keys, values, strict=True))
        if keep is not None:
            self.memory_seen = memory.new_zeros(keep.shape).masked_fill_(~keep, float("-inf"))

    def step(self, tokens: Tensor, parents: Tensor | None = None) -> Tensor:
        B, n = tokens.shape
        G, R, K, N = self.G, self.R, self.K, B * n
        if parents is not None:
            self._reorder(parents)
        add, start = self._extend_mask(n), self.used - n
        x = self._embed(tokens.reshape(N))
        keys = self.pool[:, 0, :, : self.used].transpose(2, 3).unbind()
        values = self.pool[:, 1, :, : self.used].unbind()
        new = self.pool.view(-1, 2, B, G, self.pool.shape[3], K)[:, :, :, :, start : self.used].unbind()
        across, sizes = self._cross_mask(n), (G * R * K, 2 * G * K)
        turned = self.position if self.position is not None and not self.position.heads else None
        for i, layer in enumerate(self.layers):
            first = layer.norm_first
            flat = layer.qkv(layer.norm(x) if first else x)  # [N, (G*R + 2*G) * K]
            if turned is not None:
                flat = self._rotate(turned, flat)
            asked, keys_values = flat.split_with_sizes(sizes, dim=1)
            new[i].copy_(keys_values.view(B, n, 2, G, K).permute(2, 0, 3, 1, 4))
            x = layer.out(self._attend(asked, keys[i], values[i], add, n)).add_(x)
            x = x if first else layer.norm(x)
            if layer.cross_q is not None:
                y = layer.cross_norm(x) if first else x
                if self.recalls:
                    x = self.recalls[i](y, x)
                else:
                    x = layer.cross_out(self._attend(layer.cross_q(y), *self.crossing[i], across, n)).add_(x)
                x = x if first else layer.cross_norm(x)
            x = layer.ffn(layer.feed_norm(x) if first else x).add_(x)
            x = x if first else layer.feed_norm(x)
        self.column += 1
        logits: Tensor = self.readout(self.norm(x))
        return logits

    def _attend(self, asked: Tensor, k: Tensor, v: Tensor, add: Tensor | None, n: int) -> Tensor:
        """Attend: asked [B*n, G*R*K], k [B*G, K, S], v [B*G, S, K], add [B*G, n*R, S] -> mixed [B*n, G*R*K]."""
        B, G, R, K = self.B, self.G, self.R, self.K
        if n == 1:
            q = asked.reshape(B * G, R, K)
        else:
            q = asked.view(B, n, G, R, K).transpose(1, 2).reshape(B * G, n * R, K)
        scores = torch.bmm(q, k) if add is None else torch.baddbmm(add, q, k)
        mixed = torch.bmm(torch.softmax(scores, dim=-1), v)
        if n == 1:
            return mixed.view(B, G * R * K)
        return mixed.view(B, G, n, R, K).transpose(1, 2).reshape(B * n, G * R * K)

    def _embed(self, tokens: Tensor) -> Tensor:
        """Embed tokens [N] -> [N, D]."""
        x = self.table.index_select(0, tokens)
        if self.stem.scale != 1.0:
            x.mul_(self.stem.scale)
        if self.types is not None:
            x.add_(self.types)
        if self.positions is not None:
            if self.first is None:
                x.add_(self.positions(slice(self.column, self.column + 1)))
            else:
                x.add_(self.positions((self.column - self.first).expand(self.B, self.n).reshape(-1)))
        return self.stem_norm(x)

    def _rotate(self, position: PositionEncoding, flat: Tensor) -> Tensor:
        """Rotate queries and keys, which are adjacent in `flat`."""
        heads = self.G * self.R + self.G
        x = flat[:, : heads * self.K].view(-1, heads, 1, self.K)
        return torch.cat((position.rotate(x, self.column).flatten(1), flat[:, heads * self.K :]), dim=1)

    def _extend_mask(self, n: int) -> Tensor | None:
        """Reserve n new keys in the cache; return the score mask [B*G, n*R, S], new keys included."""
        self.n = n
        if self.used + n > self.pool.shape[3]:
            self._make_room(n)
        start, self.used = self.used, self.used + n
        if self.places is not None:
            self.places[:, start : self.used] = self.column
        if self.seen is not None:
            if self.apart is None or self.apart.shape[0] != n:
                self.apart = torch.full((n, n), float("-inf"), dtype=self.seen.dtype, device=self.seen.device)
                self.apart.fill_diagonal_(0)
            self.seen[:, :, start : self.used] = self.apart
            if self.window is not None and self.places is not None:
                far = self.column - self.places[:, None, : self.used] >= self.window
                self.seen[:, :, : self.used].masked_fill_(far, float("-inf"))
        G = 1 if self.B == 1 else self.G  # the mask of one input is the same for all heads
        add = None if self.seen is None else self.seen[:, None, :, None, : self.used]
        if self.position is not None and self.position.heads and self.places is not None:
            here = self.places.new_full((1, 1), self.column)
            bias = self.position.bias(here, self.places[:, : self.used]).to(self.pool.dtype)  # [1, H, B, S]
            bias = bias.view(self.G, self.R, self.B, -1).permute(2, 0, 1, 3)[:, :, None]
            add, G = bias if add is None else add + bias, self.G
        return None if add is None else add.expand(-1, G, n, self.R, -1).reshape(-1, n * self.R, self.used)

    def _cross_mask(self, n: int) -> Tensor | None:
        if self.memory_seen is not None and (self.across is None or self.across.shape[1] != n * self.R):
            shape = (self.B, self.G, n * self.R, self.memory_seen.shape[1])
            self.across = self.memory_seen[:, None, None].expand(shape).reshape(-1, *shape[2:])
        return self.across

    def _reorder(self, parents: Tensor) -> None:
        """Reorder beams: text i continues text parents[:, i] and attends to its keys."""
        n = parents.shape[1]
        if self.seen is None and n > 1:  # all texts have the same parent
            self.seen = self.pool.new_zeros(self.B, 1, self.pool.shape[3])
        if self.seen is not None:
            if self.B > 1:
                parents = parents + torch.arange(0, self.B * self.n, self.n, device=parents.device)[:, None]
            S = self.seen.shape[2]
            self.seen = self.seen.view(-1, S).index_select(0, parents.flatten()).view(self.B, n, S)

    def _make_room(self, n: int) -> None:
        """Drop keys that no text attends to; then, if necessary, enlarge the cache."""
        if self.seen is not None and (n > 1 or self.window is not None):
            self._compact()
        size = self.pool.shape[3]
        if self.used + n * max(1, ROOM // 4) > size:
            self._resize(self.used + n * max(1, ROOM // 2) if n > 1 else 2 * self.used + n)

    def _compact(self) -> None:
        assert self.seen is not None
        live = (self.seen[:, :, : self.used] == 0).any(1)
        most = int(live.sum(1).max())
        order = (~live).long().argsort(dim=1, stable=True)[:, :most]  # [B, most]
        layers, two, rows, size, K = self.pool.shape
        first = torch.arange(0, rows * size, size, device=order.device).view(self.B, self.G, 1)
        places = (first + order[:, None]).flatten()  # full rows of K numbers: far faster than a gather
        compacted = self.pool.view(layers * two, rows * size, K).index_select(1, places)
        self.pool[:, :, :, :most] = compacted.view(layers, two, rows, most, K)
        self.seen[:, :, :most] = torch.take_along_dim(self.seen, order[:, None], dim=2)
        if self.places is not None:
            self.places[:, :most] = self.places.gather(1, order)
        self.used = most

    def _resize(self, size: int) -> None:
        keep = min(size, self.used)
        pool = self.pool.new_empty((*self.pool.shape[:3], size, self.K))
        pool[:, :, :, :keep] = self.pool[:, :, :, :keep]
        self.pool = pool
        if self.seen is not None:
            mask = self.seen.new_zeros(self.B, self.seen.shape[1], size)
            mask[:, :, :keep] = self.seen[:, :, :keep]
            self.seen = mask
        if self.places is not None:
            places = self.places.new_zeros(self.B, size)
            places[:, :keep] = self.places[:, :keep]
            self.places = places

    def select_rows(self, rows: Tensor) -> None:
        B, self.B, self.across = self.B, len(rows), None
        shape = self.pool.shape
        self.pool = self.pool.view(*shape[:2], B, -1).index_select(2, rows).view(*shape[:2], -1, *shape[3:])
        self.crossing = [(_rows(k, B, rows), _rows(v, B, rows)) for k, v in self.crossing]
        self.first, self.seen, self.places, self.memory_seen = (
            None if part is None else part.index_select(0, rows)
            for part in (self.first, self.seen, self.places, self.memory_seen)
        )


def _rows(x: Tensor, B: int, rows: Tensor) -> Tensor:
    return x.reshape(B, -1).index_select(0, rows).view(-1, *x.shape[1:])
