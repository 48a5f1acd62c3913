"""Tag sequences: legal transitions, the best path (Viterbi), and the probability of a span."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
NEVER = -1e6  # not infinity: a sum over sequences stays a number, and so does its gradient


class TransitionScores(NamedTuple):
    """Scores of starting with a tag [C], ending with it [C], and moving from one tag to another [C, C]."""

    start: Floats
    end: Floats
    step: Floats

    def __add__(self, addend: Any) -> TransitionScores:
        return TransitionScores(*(a + b for a, b in zip(self, addend, strict=True)))


def transition_rules(labels: Sequence[str]) -> TransitionScores:
    """Return BIO transitions: I-X follows B-X or I-X only, unless the labels have no B-X. NEVER if illegal, else 0."""
    known = set(labels)
    inner = [tag.startswith("I-") and f"B-{tag[2:]}" in known for tag in labels]
    start = np.where(inner, NEVER, 0.0)
    allowed = [[not bound or a[1:] == b[1:] for b, bound in zip(labels, inner, strict=True)] for a in labels]
    return TransitionScores(start, np.zeros(len(labels)), np.where(allowed, 0.0, NEVER))


def best_path(scores: Floats, moves: TransitionScores) -> NDArray[np.int64]:
    """Return the tag sequence with the highest score; scores [T, C]."""
    T, C = scores.shape
    if T == 0:
        return np.zeros(0, dtype=np.int64)
    best, back = scores[0] + moves.start, np.zeros((T, C), dtype=np.int64)
    for t in range(1, T):
        ways = best[:, None] + moves.step
        back[t] = ways.argmax(0)
        best = ways.max(0) + scores[t]
    path = np.empty(T, dtype=np.int64)
    path[-1] = (best + moves.end).argmax()
    for t in range(T - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    return path


def best_legal_path(scores: Floats, rules: TransitionScores) -> NDArray[np.int64]:
    """Return `best_path` where moves are free or forbidden; usually the best tag of every word is already legal."""
    greedy: NDArray[np.int64] = scores.argmax(1)
    if len(greedy) and not rules.start[greedy[0]] and not rules.step[greedy[:-1], greedy[1:]].any():
        return greedy
    return best_path(scores, rules)


class SpanProbabilities:
    """Probabilities of tag spans among all sequences (forward and backward sums)."""

    def __init__(self, scores: Floats, moves: TransitionScores) -> None:
        self.scores, self.moves = scores, moves
        ahead, behind = [moves.start + scores[0]], [moves.end]
        for t in range(1, len(scores)):
            ahead.append(np.logaddexp.reduce(ahead[-1][:, None] + moves.step, axis=0) + scores[t])
            behind.append(np.logaddexp.reduce(moves.step + (scores[-t] + behind[-1]), axis=1))
        self.ahead, self.behind = np.array(ahead), np.array(behind[::-1])  # [T, C]: words up to t; words after t
        self.total = float(np.logaddexp.reduce(self.ahead[-1] + moves.end))

    def of(self, path: NDArray[np.int64], start: int, stop: int) -> float:
        """Return p(words start to stop − 1 have these tags)."""
        between = range(start + 1, stop)
        inside = sum(self.moves.step[path[t - 1], path[t]] + self.scores[t, path[t]] for t in between)
        sure = self.ahead[start, path[start]] + inside + self.behind[stop - 1, path[stop - 1]] - self.total
        return float(np.exp(min(sure, 0.0)))
