"""Noise for pre-training: what is hidden from the model, which then has to say it.

It is a pure function of a seed and of the tokens themselves: the same in any batch, on any number of processes, and
after any restart. The loop seeds every step from (run's seed, step), so a text is hidden otherwise each time.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from multihead.text.tokenizer import Tokenizer

Ids = NDArray[Any]
MASKED, RANDOM = 0.8, 0.1  # of the hidden tokens: shown as the mask, as any token; the rest as they are (BERT)


def make_generator(seed: int, tokens: Ids) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed & (2**63 - 1), crc32(np.asarray(tokens, np.int32).tobytes())]))


def choose_masked(word: Ids, share: float, random: np.random.Generator) -> NDArray[np.bool_]:
    """Which tokens are hidden: all of some words, until they are this share of the tokens. word: -1 = none of them."""
    words, sizes = np.unique(word[word >= 0], return_counts=True)
    order = random.permutation(len(words))
    wanted = max(1.0, share * sizes.sum())
    chosen = words[order[np.cumsum(sizes[order]) - sizes[order] < wanted]]
    return np.isin(word, chosen) & (word >= 0)


def apply_masks(tokens: Ids, chosen: NDArray[np.bool_], mask: int, plain: Ids, random: np.random.Generator) -> Ids:
    """The tokens as the model sees them. plain: tokens that may stand for any."""
    kind = random.random(len(tokens))
    other = plain[random.integers(0, len(plain), len(tokens))]
    shown = np.where(kind < MASKED, mask, np.where(kind < MASKED + RANDOM, other, tokens))
    return np.where(chosen, shown, tokens)


def infill_spans(tokens: Ids, share: float, span: float, mask: int, random: np.random.Generator) -> Ids:
    """Stretches of tokens become one mask each, until this share is hidden; their lengths are Poisson-distributed, and
    0 puts a mask where nothing is missing (BART's text infilling, Lewis et al. 2020)."""
    budget = max(1, round(share * len(tokens)))
    lengths: list[int] = []
    while sum(lengths) < budget and len(lengths) <= budget:
        lengths.append(min(int(random.poisson(span)), budget - sum(lengths)))
    # Where they begin: places among what is left, so that no two of them touch the same token.
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
    """A text in which the mask token is spelled out ([MASK], <mask>), as tokens; nothing else in it is control."""
    name = tokenizer.named.get("mask", "")
    if not name or tokenizer.special.get("mask") is None:
        raise ValueError("this model's tokenizer has no mask token; it was not trained to fill gaps")
    if name not in text:
        raise ValueError(f"there is nothing to fill: write {name} where words are missing")
    empty = tokenizer.encode("")
    half = (len(empty) + 1) // 2
    ids = empty.ids[:half]
    for number, part in enumerate(text.split(name)):
        ids += [tokenizer.special["mask"]] if number else []
        ids += tokenizer.encode(part, special=False).ids if part else []
    ids += empty.ids[half:]
    if len(ids) > size:
        raise ValueError(f"the text is {len(ids)} tokens long, this model reads {size}; shorten it")
    return ids
