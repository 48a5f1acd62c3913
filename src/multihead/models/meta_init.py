"""Modules without numbers: a model that will be given its weights is made in no time and no memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

FILLS = {"normal_", "uniform_", "xavier_uniform_", "kaiming_uniform_", "zeros_", "ones_", "zero_", "fill_", "mul_"}


MAKES = {"empty", "zeros", "ones", "randn"}


class MetaInit(TorchFunctionMode):
    """Inside, `torch.empty` and its like give tensors without storage, and filling one does nothing; all else is as
    ever, so tables that are computed and never loaded (sines, angles) are real.

    Not `torch.device("meta")`: those tables would be hollow too, and its first arithmetic imports torch._dynamo,
    which takes longer than the rest of opening a model.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name in FILLS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **{**kwargs, "device": "meta"} if name in MAKES else kwargs)
