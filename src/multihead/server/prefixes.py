"""Prompts that were read already: a conversation's next turn begins with its last, and many prompts begin alike."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from multihead.attention import KVCache

SHORTEST = 16  # tokens; to look up and copy fewer is no faster than reading them
BYTES = 2**28  # of keys and values that are kept
TEXTS = 64


class PrefixStore:
    """The keys and values of texts that were read lately, as many as fit; the one that was used longest ago goes."""

    def __init__(self, most: int = BYTES) -> None:
        self.most, self.size = most, 0
        self._texts: OrderedDict[tuple[int, ...], KVCache] = OrderedDict()

    def __len__(self) -> int:
        return len(self._texts)

    def find(self, tokens: Sequence[int]) -> KVCache | None:
        """Return the longest stored beginning of a text, as a cache to read on with, or None.

        The last token is never part of it: reading it gives the scores of what follows.
        """
        best, length = None, SHORTEST - 1
        for stored in self._texts:
            shared = _shared(stored, tokens[:-1])
            if shared > length:
                best, length = stored, shared
        if best is None:
            return None
        self._texts.move_to_end(best)
        return cut(self._texts[best], length)

    def add(self, tokens: Sequence[int], cache: KVCache) -> None:
        """Keep what was read of a text. Stored texts that are its beginnings are dropped: it serves for them."""
        key = tuple(tokens[: cache.length])
        size = bytes_of(cache)
        if len(key) < SHORTEST or size > self.most:
            return
        for stored in [stored for stored in self._texts if stored == key[: len(stored)]]:
            self._drop(stored)
        self._texts[key] = _snapshot(cache)
        self.size += size
        while self.size > self.most or len(self._texts) > TEXTS:
            self._drop(next(iter(self._texts)))

    def _drop(self, key: tuple[int, ...]) -> None:
        self.size -= bytes_of(self._texts.pop(key))


def cut(cache: KVCache, length: int) -> KVCache:
    """Return the first tokens of a cache as a new one; the old one does not change when the new one grows."""
    found = KVCache()
    for name, part in cache.parts.items():
        if part.k is not None and part.v is not None:  # there is no cross-attention, but a place for it
            found[name].append(part.k[:, :, :length].clone(), part.v[:, :, :length].clone())
    return found


def _snapshot(cache: KVCache) -> KVCache:
    """The same tensors, which grow behind what is there, with a length that stays."""
    found = KVCache()
    for name, part in cache.parts.items():
        found[name].k, found[name].v, found[name].length = part.k, part.v, part.length
    return found


def bytes_of(cache: KVCache) -> int:
    return sum(x.nbytes for part in cache.parts.values() for x in (part.k, part.v) if x is not None)


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    most = min(len(a), len(b))
    return next((i for i in range(most) if a[i] != b[i]), most)
