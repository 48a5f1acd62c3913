"""Which of the waiting windows are read together next."""

from __future__ import annotations

from collections.abc import Sequence

SLACK = 256  # padding tokens that cost less than a second pass over the weights
SHARE = 4  # of a large batch, one part may be padding


def choose_batch(lengths: Sequence[int], seed: int, budget: int) -> list[int]:
    """Return the places of the windows that are read with window `seed`, which is the first of them.

    lengths: tokens of every waiting window, in the order in which they came.  budget: rows x longest, at most; a
    longer window is read alone. Windows join nearest length first, as long as little of the rectangle is padding, and
    the oldest of equals. As the seed is always the window that waited longest, none waits for ever.
    """
    chosen, filled, widest = [seed], lengths[seed], lengths[seed]
    order = sorted((abs(lengths[i] - lengths[seed]), i) for i in range(len(lengths)) if i != seed)
    for _, i in order:
        width = max(widest, lengths[i])
        area = width * (len(chosen) + 1)
        if area > budget or area - filled - lengths[i] > max(SLACK, area // SHARE):
            continue
        chosen.append(i)
        filled, widest = filled + lengths[i], width
    return chosen
