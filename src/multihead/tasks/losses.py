"""Losses that tasks share. They are sums: the loop divides once, by the count over the whole step."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from multihead.kernels.dispatch import upcast_logits
from multihead.tasks.task import IGNORE


def class_loss(
    logits: Tensor, labels: Tensor, smoothing: float = 0.0, weight: Tensor | None = None, rdrop: float = 0.0
) -> Tensor:
    """Cross-entropy, summed: logits [N, C], labels [N] (IGNORE: none) or chances [N, C] (zeros: none), weight [C] of
    each class.

    smoothing: that share of every label is spread over all classes alike (Szegedy et al. 2016); with 0 the bits are
    those of the plain loss.
    agree: the second half reads the rows of the first again, with other dropout; so much counts how far the two are
    apart (R-Drop, Liang et al. 2021): half of KL(p‖q) + KL(q‖p) = Σ (p − q)(log p − log q).
    """
    logits = upcast_logits(logits)
    weight = None if weight is None else weight.to(logits.dtype)
    if labels.is_floating_point():
        real = label_mask(labels)
        logits, labels = logits[real], labels[real].to(logits.dtype)
    total = F.cross_entropy(
        logits, labels, weight=weight, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing
    )
    if rdrop:
        p, q = logits[label_mask(labels)].log_softmax(-1).chunk(2)
        total = total + rdrop / 2 * ((p.exp() - q.exp()) * (p - q)).sum()
    return total


def label_mask(labels: Tensor) -> Tensor:
    """Which labels count: [...] of numbers, [..., C] of chances."""
    return labels.sum(-1) > 0 if labels.is_floating_point() else labels != IGNORE


def label_loss(logits: Tensor, labels: Tensor, smoothing: float = 0.0, rdrop: float = 0.0) -> Tensor:
    """Binary cross-entropy, summed: logits and labels [N, C], each label on its own; smoothing pulls it to 1/2."""
    logits = upcast_logits(logits)
    labels = labels.to(logits.dtype)
    if smoothing:
        labels = labels * (1 - smoothing) + smoothing / 2
    total = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    if rdrop:
        p, q = logits.chunk(2)
        total = total + rdrop / 2 * ((p.sigmoid() - q.sigmoid()) * (p - q)).sum()
    return total
