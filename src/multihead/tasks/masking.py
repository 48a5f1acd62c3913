"""Noise for pre-training: which tokens are masked for the model to predict.

Masks are a pure function of a seed and the tokens themselves: the same in any batch, on any number of processes, and
after a resume. The loop seeds every step from (run seed, step), so each epoch masks a text differently.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from multihead.text.tokenizer import Tokenizer

Ids = NDArray[Any]
MASKED, RANDOM = 0.8, 0.1  # shares of masked tokens that become [MASK] or a random token; the rest stay (BERT)


def make_generator(seed: int, tokens: Ids) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed & (2**63 - 1), crc32(np.asarray(tokens, np.int32).tobytes())]))


def choose_masked(word: Ids, share: float, random: np.random.Generator) -> NDArray[np.bool_]:
    """Choose tokens to mask: all tokens of random words, up to this share of the tokens. word: -1 = not maskable."""
    words, sizes = np.unique(word[word >= 0], return_counts=True)
    order = random.permutation(len(words))
    budget = max(1.0, share * sizes.sum())
    chosen = words[order[np.cumsum(sizes[order]) - sizes[order] < budget]]
    return np.isin(word, chosen) & (word >= 0)


def apply_masks(tokens: Ids, chosen: NDArray[np.bool_], mask: int, plain: Ids, random: np.random.Generator) -> Ids:
    """Return the corrupted tokens. plain: tokens that random replacement may draw."""
    kind = random.random(len(tokens))
    replacements = plain[random.integers(0, len(plain), len(tokens))]
    shown = np.where(kind < MASKED, mask, np.where(kind < MASKED + RANDOM, replacements, tokens))
    return np.where(chosen, shown, tokens)


def infill_spans(tokens: Ids, share: float, span: float, mask: int, random: np.random.Generator) -> Ids:
    """Replace spans of tokens by one mask each until this share is masked. Span lengths are Poisson-distributed; length
    0 inserts a mask where nothing is missing (BART's text infilling, Lewis et al. 2020)."""
    budget = max(1, round(share * len(tokens)))
    lengths: list[int] = []
    while sum(lengths) < budget and len(lengths) <= budget:
        lengths.append(min(int(random.poisson(span)), budget - sum(lengths)))
    # Start positions are drawn among the unmasked tokens, so that no two spans share a token.
    left = len(tokens) - sum(lengths)
    places = np.sort(random.integers(0, left + 1, len(lengths)))
    shown: list[Ids] = []
    at = gone = 0
    for place, length in zip(places.tolist(), random.permutation(lengths).tolist(), strict=True):
        shown += [tokens[at : place + gone], np.array([mask], dtype=tokens.dtype)]
        gone += length
        at = place + gone
    return np.concatenate([*shown, tokens[at:]])


def encode_with_masks(tokenizer: Tokenizer, text: str, size: int) -> list[int]:
    """Encode a text in which mask tokens are spelled out ([MASK], <mask>); nothing else in it is treated as special."""
    name = tokenizer.named.get("mask", "")
    if not name or tokenizer.special.get("mask") is None:
        raise ValueError("this model's tokenizer has no mask token; use a masked language model")
    if name not in text:
        raise ValueError(f"the text has no mask token; write {name} where words are missing")
    empty = tokenizer.encode("")
    half = (len(empty) + 1) // 2
    ids = empty.ids[:half]
    for number, part in enumerate(text.split(name)):
        ids += [tokenizer.special["mask"]] if number else []
        ids += tokenizer.encode(part, special=False).ids if part else []
    ids += empty.ids[half:]
    if len(ids) > size:
        raise ValueError(f"the text has {len(ids)} tokens, the model's limit is {size}; shorten it")
    return ids
