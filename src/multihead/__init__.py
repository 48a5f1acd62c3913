"""A workbench for Transformers. Names are loaded on first use, so that `import multihead` costs nothing."""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, whose import takes 6 ms: the command catches Ctrl-C only after this file
if TYPE_CHECKING:  # what editors and mypy see; LAZY below is what runs, and a test compares the two
    from multihead.attention import KVCache, Mask, MultiHeadAttention, attend
    from multihead.inference import Pipeline
    from multihead.inspection import ablate, watch
    from multihead.models import Decoder, Encoder, EncoderDecoder, LanguageModel, ModelConfig
    from multihead.pretrained import list_models, load, save
    from multihead.server import serve
    from multihead.tasks import list_tasks
    from multihead.training import train

__version__ = "0.1.0"

LAZY = {
    "KVCache": "multihead.attention",
    "Mask": "multihead.attention",
    "MultiHeadAttention": "multihead.attention",
    "attend": "multihead.attention",
    "Decoder": "multihead.models",
    "Encoder": "multihead.models",
    "EncoderDecoder": "multihead.models",
    "LanguageModel": "multihead.models",
    "ModelConfig": "multihead.models",
    "ablate": "multihead.inspection",
    "watch": "multihead.inspection",
    "Pipeline": "multihead.inference",
    "load": "multihead.pretrained",
    "save": "multihead.pretrained",
    "list_models": "multihead.pretrained",
    "list_tasks": "multihead.tasks",
    "train": "multihead.training",
    "serve": "multihead.server",
}

__all__ = [  # noqa: RUF022 - in the order of LAZY: by room
    "KVCache",
    "Mask",
    "MultiHeadAttention",
    "attend",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "LanguageModel",
    "ModelConfig",
    "ablate",
    "watch",
    "Pipeline",
    "load",
    "save",
    "list_models",
    "list_tasks",
    "train",
    "serve",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in LAZY:
        raise AttributeError(f"module 'multihead' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(LAZY[name]), name)
    globals()[name] = value  # the next access is a plain lookup
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
