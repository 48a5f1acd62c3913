"""A device that is not the processor, for machines that have none: its tensors live in the processor's memory, but
only meet their own kind, as on a graphics card. (A number without axes may come from the processor, as there.)"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

aten = torch.ops.aten


class Backend(_DummyBackendModule):
    def manual_seed(self, seed: int) -> None:
        """Its noise is the processor's."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


_setup_privateuseone_for_python_backend("far", backend_module=Backend())
FAR = torch.device("far", 0)


class Far(torch.Tensor):
    """A tensor there; `raw` is what it holds."""

    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> Far:
        made: Far = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, raw.shape, strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=raw.dtype, device=FAR
        )
        return made

    def __init__(self, raw: torch.Tensor) -> None:
        self.raw = raw

    def tolist(self) -> Any:
        return self.raw.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, *args, **(kwargs or {}))


def _run(func: Any, *args: Any, **kwargs: Any) -> Any:
    moves = func in (aten.copy_.default, aten._to_copy.default)

    def inner(x: Any) -> Any:
        if isinstance(x, Far):
            return x.raw
        if isinstance(x, torch.Tensor) and x.dim() and not moves:
            raise RuntimeError(f"{func}: a tensor {tuple(x.shape)} of the processor among those of another device")
        return torch.device("cpu") if isinstance(x, torch.device) else x

    home = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu"
    found = func(*tree_map(inner, args), **tree_map(inner, kwargs))
    if func._schema.name.endswith("_") and func._schema.returns:
        return args[0]  # changed in place
    with torch.inference_mode(False):  # torch would count versions of the views of such tensors, and cannot
        return found if home else tree_map(lambda x: Far(x) if isinstance(x, torch.Tensor) else x, found)


# What is made there begins without a tensor that could say so. Kept by its name: the registration ends with it.
library = torch.library.Library("_", "IMPL")
library.fallback(_run, "PrivateUse1")
