"""Connectionist temporal classification (Graves et al. 2006): a label or a blank for every frame.

A path over the frames stands for the text that is left when repeats are joined and blanks are dropped. Greedy decoding
takes the likeliest path, prefix beam search (Hannun et al. 2014) the likeliest text, alignment the likeliest path of a
given text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

NEVER = float("-inf")
LogProbs = NDArray[np.float64]


class CtcHypothesis(NamedTuple):
    """score: log p of the text, summed over all its paths that the beam kept."""

    tokens: list[int]
    score: float


class TokenSpan(NamedTuple):
    """A token of an aligned text: frames start..stop, and the mean probability of its frames."""

    token: int
    start: int
    stop: int
    score: float


def ctc_loss(logits: Tensor, lengths: Tensor, targets: Sequence[Sequence[int]], blank: int = 0) -> tuple[Tensor, int]:
    """Return the summed negative log-likelihood and the number of recordings that it is of.

    logits [B, T, V]; lengths [B]: frames of each recording; targets: the tokens of each. A recording that has fewer
    frames than its text needs cannot be learned from: it adds nothing and is not counted.
    """
    possible = [needed_frames(target) <= int(length) for target, length in zip(targets, lengths.tolist(), strict=True)]
    sizes = torch.tensor([len(target) for target in targets])
    flat = torch.tensor([token for target in targets for token in target], dtype=torch.long)
    log_probs = logits.float().log_softmax(dim=-1).transpose(0, 1)
    losses = F.ctc_loss(log_probs, flat, lengths.cpu(), sizes, blank, reduction="none", zero_infinity=True)
    return losses.sum(), sum(possible)


def needed_frames(tokens: Sequence[int]) -> int:
    """Return the fewest frames that can hold a text: one per token, and a blank between equal ones."""
    return len(tokens) + sum(a == b for a, b in pairwise(tokens))


def collapse_path(path: Sequence[int], blank: int = 0) -> list[int]:
    """Join repeats, then drop blanks: [a, a, -, a, b] -> [a, a, b]."""
    return [token for i, token in enumerate(path) if token != blank and (i == 0 or token != path[i - 1])]


def decode_greedy(log_probs: Tensor, lengths: Tensor | None = None, blank: int = 0) -> list[list[int]]:
    """log_probs (or logits) [B, T, V] -> the text of the likeliest path of each recording."""
    paths = log_probs.argmax(dim=-1).tolist()
    counts = [len(path) for path in paths] if lengths is None else lengths.tolist()
    return [collapse_path(path[:count], blank) for path, count in zip(paths, counts, strict=True)]


def search_prefixes(
    log_probs: Tensor, beam: int = 16, *, nbest: int = 1, blank: int = 0, cutoff: float = NEVER
) -> list[CtcHypothesis]:
    """Return the `nbest` likeliest texts of one recording, log_probs [T, V], normalized.

    beam: prefixes that are kept from frame to frame; with one for every prefix the search is exact.
    cutoff: tokens of a frame below this log p are not tried; -inf tries all.
    """
    if beam < 1 or nbest < 1:
        raise ValueError(f"beam={beam}, nbest={nbest}: both must be at least 1")
    table: LogProbs = log_probs.detach().double().cpu().numpy()
    # prefix -> (log p of paths that end in a blank, log p of those that end in its last token)
    beams: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, NEVER)}
    for frame in table:
        tokens = [token for token in np.flatnonzero(frame > cutoff).tolist() if token != blank]
        beams = _extend(beams, frame.tolist(), tokens, blank)
        if len(beams) > beam:
            best = sorted(beams, key=lambda prefix: -_log_add(*beams[prefix]))[:beam]
            beams = {prefix: beams[prefix] for prefix in best}
    scores = [(prefix, _log_add(*ends)) for prefix, ends in beams.items()]
    return [CtcHypothesis(list(prefix), score) for prefix, score in sorted(scores, key=lambda pair: -pair[1])[:nbest]]


def _extend(
    beams: dict[tuple[int, ...], tuple[float, float]], frame: list[float], tokens: list[int], blank: int
) -> dict[tuple[int, ...], tuple[float, float]]:
    new: dict[tuple[int, ...], tuple[float, float]] = {}
    for prefix, (in_blank, in_token) in beams.items():
        total = _log_add(in_blank, in_token)
        _add(new, prefix, 0, total + frame[blank])
        last = prefix[-1] if prefix else None
        for token in tokens:
            if token == last:
                _add(new, prefix, 1, in_token + frame[token])  # a repeat of the same token is the same text
                _add(new, (*prefix, token), 1, in_blank + frame[token])  # behind a blank it is a second one
            else:
                _add(new, (*prefix, token), 1, total + frame[token])
    return new


def _add(beams: dict[tuple[int, ...], tuple[float, float]], prefix: tuple[int, ...], end: int, score: float) -> None:
    if score == NEVER:
        return
    in_blank, in_token = beams.get(prefix, (NEVER, NEVER))
    beams[prefix] = (in_blank, _log_add(in_token, score)) if end else (_log_add(in_blank, score), in_token)


def _log_add(a: float, b: float) -> float:
    if a < b:
        a, b = b, a
    return a if b == NEVER else a + math.log1p(math.exp(b - a))


def align_tokens(log_probs: Tensor, tokens: Sequence[int], blank: int = 0) -> list[TokenSpan]:
    """Return where each token of a known text stands: the likeliest path of log_probs [T, V] that gives the text.

    Raises ValueError where the recording has fewer frames than the text needs.
    """
    frames, needed = len(log_probs), needed_frames(tokens)
    if needed > frames:
        raise ValueError(f"{frames} frames cannot hold {len(tokens)} tokens, {needed} are needed; check the text")
    if not tokens:
        return []
    table: LogProbs = log_probs.detach().double().cpu().numpy()
    states = np.full(2 * len(tokens) + 1, blank)
    states[1::2] = tokens
    path = _best_path(table, states, blank)
    spans = []
    for number, token in enumerate(tokens):
        inside = np.flatnonzero(path == 2 * number + 1)
        start, stop = int(inside[0]), int(inside[-1]) + 1
        spans.append(TokenSpan(token, start, stop, float(np.exp(table[start:stop, token]).mean())))
    return spans


def _best_path(table: LogProbs, states: NDArray[np.int64], blank: int) -> NDArray[np.int64]:
    """Viterbi over blank, token, blank, token, …: the state of every frame."""
    count = len(states)
    skips = np.zeros(count, dtype=bool)  # a token may follow another one without a blank, unless they are equal
    skips[3::2] = states[3::2] != states[1:-2:2]
    score = np.full(count, NEVER)
    score[:2] = table[0, states[:2]]
    steps = np.zeros((len(table), count), dtype=np.int8)
    for frame in range(1, len(table)):
        options = np.full((3, count), NEVER)
        options[0] = score
        options[1, 1:] = score[:-1]
        options[2, 2:] = np.where(skips[2:], score[:-2], NEVER)
        steps[frame] = options.argmax(axis=0)
        score = options.max(axis=0) + table[frame, states]
    state = count - 1 if score[-1] >= score[-2] else count - 2
    path = np.empty(len(table), dtype=np.int64)
    for frame in range(len(table) - 1, -1, -1):
        path[frame] = state
        state -= int(steps[frame, state])
    return path


def group_words(spans: Sequence[TokenSpan], separator: int) -> list[list[TokenSpan]]:
    """Group the spans of a text of characters into its words."""
    words: list[list[TokenSpan]] = [[]]
    for span in spans:
        if span.token == separator:
            words.append([])
        else:
            words[-1].append(span)
    return [word for word in words if word]
