"""Significance of the difference of two systems on the same samples: paired bootstrap, and McNemar's exact test."""

from dataclasses import dataclass
from math import exp, lgamma, log

import numpy as np
from numpy.typing import ArrayLike

from multihead.metrics.bootstrap import percentile
from multihead.metrics.metric import ConfidenceInterval, Floats, Metric


@dataclass(frozen=True, slots=True)
class Difference:
    """Second minus first. p_value: two-sided, no smaller than 2 / (replicates + 1)."""

    value: float
    interval: ConfidenceInterval
    p_value: float


@dataclass(frozen=True, slots=True)
class Flips:
    """Samples that only the second (gained) or only the first system (lost) had right; McNemar's exact two-sided p."""

    gained: int
    lost: int
    p_value: float


def compare_paired(first: Metric, second: Metric, level: float = 0.95) -> dict[str, Difference]:
    """Return the difference of every score that both have replicates of.

    Both must have counted the same sample numbers with the same seed: then each replicate weighted the same samples in
    both, and the difference needs only the two results.
    """
    if first.bootstrap_sample != second.bootstrap_sample:
        raise ValueError(f"the metrics have different samples: {first.bootstrap_sample} and {second.bootstrap_sample}")
    befores, afters = first.replicates(), second.replicates()
    if not befores:
        raise ValueError("a comparison needs replicates: they were switched off (replicates=0)")
    old, new = first.result(), second.result()
    return {
        name: difference(new[name].value - old[name].value, afters[name] - befores[name], level)
        for name in befores
        if name in afters
    }


def difference(value: float, replicates: Floats, level: float = 0.95) -> Difference:
    """Return a difference from replicates [R]: p is twice the smaller share at or beyond zero."""
    defined = replicates[np.isfinite(replicates)]
    beyond = min(int((defined <= 0).sum()), int((defined >= 0).sum()))
    return Difference(value, percentile(replicates, level), min(1.0, 2 * (1 + beyond) / (1 + len(defined))))


def count_flips(gold: ArrayLike, first: ArrayLike, second: ArrayLike) -> Flips:
    """Count the flips between two systems' answers [N] against gold [N]; answers may be of any comparable type."""
    truth, before, after = np.asarray(gold), np.asarray(first), np.asarray(second)
    if not truth.shape == before.shape == after.shape or truth.ndim != 1:
        raise ValueError(f"shapes {truth.shape}, {before.shape}, {after.shape}: expected three times [N]")
    gained = int(((before != truth) & (after == truth)).sum())
    lost = int(((before == truth) & (after != truth)).sum())
    return Flips(gained, lost, mcnemar(gained, lost))


def mcnemar(gained: int, lost: int) -> float:
    """Return the two-sided exact p that gained and lost come from a fair coin; 1 without flips."""
    n, small = gained + lost, min(gained, lost)
    if min(gained, lost) < 0:
        raise ValueError(f"{gained} gained, {lost} lost: counts cannot be negative")
    logs = (lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) - n * log(2) for i in range(small + 1))
    return min(1.0, 2 * sum(exp(value) for value in logs))
