"""Half precision: whether this machine has it, and what kinds of numbers linear layers give."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from multihead.machine.precision import measure

WORKS = measure(("bf16",))["bf16"]


class LinearDtypes(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.kinds: set[torch.dtype] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is F.linear:
            self.kinds.add(found.dtype)
        return found
