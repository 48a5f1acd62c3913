"""Batch order for running text: every block of the corpus once per epoch, shuffled, as many per batch as fit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multihead.data.token_blocks import TokenBlocks
from multihead.training.loop import TrainSettings

AHEAD = 64  # steps


class BlockOrder:
    """Like `loop.BatchOrder`, for blocks of equal size; stores only numbers."""

    def __init__(self, corpus: TokenBlocks, plan: TrainSettings) -> None:
        self.corpus, self.plan = corpus, plan
        self.rows = max(1, plan.batch_tokens // int(corpus.sizes[0]))
        self.each = self.rows * plan.accumulate
        self.per_epoch = -(-len(corpus) // self.each)
        self.ahead: tuple[int, int, NDArray[np.int64]] = (-1, -1, np.zeros(0, dtype=np.int64))  # epoch, stretch, rows
        self.steps = max(1, plan.steps if plan.steps is not None else round(plan.epochs * self.per_epoch))

    @property
    def warmup(self) -> int:
        return int(self.plan.warmup if self.plan.warmup >= 1 else self.plan.warmup * self.steps)

    @property
    def epoch_steps(self) -> int:
        return self.per_epoch

    def __getitem__(self, step: int) -> tuple[float, list[NDArray[np.int64]]]:
        """Return the epoch of a step (from 0), as a fraction, and its micro-batches."""
        epoch, inside = divmod(step, self.per_epoch)
        stretch, at = divmod(inside, AHEAD)
        if self.ahead[:2] != (epoch, stretch):  # draw for several steps at once: a call costs as much as a hundred rows
            first = stretch * AHEAD * self.each
            self.ahead = (epoch, stretch, self.corpus.rows(epoch, first, first + AHEAD * self.each, self.plan.seed))
        rows = self.ahead[2][at * self.each : (at + 1) * self.each]
        return epoch + inside / self.per_epoch, [
            rows[i : i + self.rows] for i in range(0, max(len(rows), 1), self.rows)
        ]
