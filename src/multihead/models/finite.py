"""Check weights for NaN and infinities, which would spread to every output; run when weights are loaded or saved."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


@torch.no_grad()
def first_not_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """Return the name of the first tensor with NaN or an infinity, or None.

    A sum costs a fifth of a check of every element; only a sum that is not finite needs the full check.
    """
    for name, tensor in tensors:
        if tensor.is_floating_point() and not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
            return name
    return None
