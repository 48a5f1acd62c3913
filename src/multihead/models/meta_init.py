"""Construct modules without storage: a model whose weights will be loaded takes neither time nor memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

FILLS = {"normal_", "uniform_", "xavier_uniform_", "kaiming_uniform_", "zeros_", "ones_", "zero_", "fill_", "mul_"}


MAKES = {"empty", "zeros", "ones", "randn"}


class MetaInit(TorchFunctionMode):
    """Within this mode, `torch.empty` and similar functions return meta tensors, and filling one does nothing.

    Everything else is unchanged, so tables that are computed and never loaded (sines, angles) are real. Unlike
    `torch.device("meta")`, which would make those tables meta tensors too, and whose first arithmetic imports
    torch._dynamo, which takes longer than the rest of loading a model.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name in FILLS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **{**kwargs, "device": "meta"} if name in MAKES else kwargs)
