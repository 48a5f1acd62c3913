"""Are weights numbers? NaN and infinities spread to every answer, so they are looked for where weights come and go."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


@torch.no_grad()
def first_not_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """The name of the first tensor that holds NaN or an infinity.

    A sum is a fifth of the cost of looking at every element, and only a sum that overflows must be looked at again.
    """
    for name, tensor in tensors:
        if tensor.is_floating_point() and not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
            return name
    return None
