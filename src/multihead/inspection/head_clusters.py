"""Clusters of heads with similar attention."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ALIKE = 0.85


def cluster_heads(similarity: NDArray[np.float64], least: float = ALIKE) -> list[list[int]]:
    """Cluster by average linkage: merge two clusters while their mean similarity is at least `least`.

    similarity [N, N], 1 = identical; returns clusters of two or more, largest first.
    """
    clusters = [[i] for i in range(len(similarity))]
    between = similarity.astype(np.float64).copy()
    np.fill_diagonal(between, -np.inf)
    while len(clusters) > 1:
        a, b = sorted(divmod(int(between.argmax()), len(clusters)))
        if between[a, b] < least:
            break
        sizes = len(clusters[a]), len(clusters[b])
        joined = (sizes[0] * between[a] + sizes[1] * between[b]) / sum(sizes)
        between[a], between[:, a] = joined, joined
        between[a, a] = -np.inf
        between = np.delete(np.delete(between, b, 0), b, 1)
        clusters[a] += clusters.pop(b)
    return sorted((sorted(c) for c in clusters if len(c) > 1), key=lambda c: (-len(c), c))
