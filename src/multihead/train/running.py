"""The order of running text: every window of the corpus once an epoch, shuffled, as many per batch as fit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multihead.data.corpus import Corpus
from multihead.train.loop import Plan


class Running:
    """As `loop.Order`, for windows of equal size; it holds nothing but numbers."""

    def __init__(self, corpus: Corpus, plan: Plan) -> None:
        self.corpus, self.plan = corpus, plan
        self.rows = max(1, plan.batch_tokens // int(corpus.sizes[0]))
        self.per_epoch = -(-len(corpus) // (self.rows * plan.accumulate))
        self.steps = max(1, plan.steps if plan.steps is not None else round(plan.epochs * self.per_epoch))

    @property
    def warmup(self) -> int:
        return int(self.plan.warmup if self.plan.warmup >= 1 else self.plan.warmup * self.steps)

    def __getitem__(self, step: int) -> tuple[float, list[NDArray[np.int64]]]:
        """The epoch that step (from 0) lies in, as a fraction, and its micro-batches."""
        epoch, inside = divmod(step, self.per_epoch)
        each = self.rows * self.plan.accumulate
        rows = self.corpus.rows(epoch, inside * each, (inside + 1) * each, self.plan.seed)
        return epoch + inside / self.per_epoch, [
            rows[i : i + self.rows] for i in range(0, max(len(rows), 1), self.rows)
        ]
