"""Attention: the mathematics. Imports torch only."""

from multihead.attention.bias import Sight
from multihead.attention.functional import attend, explicit, fused, kernel
from multihead.attention.kv_cache import Cache, KeyValues
from multihead.attention.mask import Mask
from multihead.attention.multihead import Attended, MultiHeadAttention
from multihead.attention.position import Alibi, Position, RelativeBias, Rotary

__all__ = [
    "Alibi",
    "Attended",
    "Cache",
    "KeyValues",
    "Mask",
    "MultiHeadAttention",
    "Position",
    "RelativeBias",
    "Rotary",
    "Sight",
    "attend",
    "explicit",
    "fused",
    "kernel",
]
