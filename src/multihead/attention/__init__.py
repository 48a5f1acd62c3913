"""Attention: the mathematics. Imports torch only."""

from multihead.attention.cache import Cache, KeyValues
from multihead.attention.dropout import add_dropped, dropout
from multihead.attention.kernels import attend, explicit, fused, kernel
from multihead.attention.mask import Mask
from multihead.attention.multihead import Attended, MultiHeadAttention
from multihead.attention.position import Alibi, Position, RelativeBias, Rotary
from multihead.attention.sight import Sight

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
    "add_dropped",
    "attend",
    "dropout",
    "explicit",
    "fused",
    "kernel",
]
