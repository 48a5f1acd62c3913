"""Losses shared by tasks. They are sums: the training loop divides once, by the count over the full step."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from multihead.kernels.dispatch import upcast_logits
from multihead.tasks.task import IGNORE


def class_loss(
    logits: Tensor, labels: Tensor, smoothing: float = 0.0, weight: Tensor | None = None, rdrop: float = 0.0
) -> Tensor:
    """Return the summed cross-entropy of logits [N, C] and labels [N] (IGNORE: none) or probabilities [N, C] (zeros:
    none), with class weights `weight` [C].

    smoothing: the share of each label that is spread evenly over all classes (Szegedy et al. 2016); 0 is bit-identical
    to the plain loss.
    rdrop: weight of the divergence between two forward passes; the second half of the batch repeats the first with
    other dropout masks (R-Drop, Liang et al. 2021): half of KL(p‖q) + KL(q‖p) = Σ (p − q)(log p − log q).
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
    """Return which labels count: [...] for class indices, [..., C] for probabilities."""
    return labels.sum(-1) > 0 if labels.is_floating_point() else labels != IGNORE


def label_loss(logits: Tensor, labels: Tensor, smoothing: float = 0.0, rdrop: float = 0.0) -> Tensor:
    """Return the summed binary cross-entropy of logits and labels [N, C], one per label; smoothing pulls labels to
    1/2."""
    logits = upcast_logits(logits)
    labels = labels.to(logits.dtype)
    if smoothing:
        labels = labels * (1 - smoothing) + smoothing / 2
    total = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    if rdrop:
        p, q = logits.chunk(2)
        total = total + rdrop / 2 * ((p.sigmoid() - q.sigmoid()) * (p - q)).sum()
    return total
