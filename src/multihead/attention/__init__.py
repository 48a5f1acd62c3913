"""Scaled dot-product attention: masks, position encodings, KV cache and the multi-head layer. Depends on torch only."""

from multihead.attention.bias import AttentionBias
from multihead.attention.functional import attend, attend_fused, attend_reference, choose_kernel
from multihead.attention.kv_cache import KVCache, LayerKVCache
from multihead.attention.mask import Mask
from multihead.attention.multihead import AttentionRecord, MultiHeadAttention
from multihead.attention.position import Alibi, PositionEncoding, RelativeBias, Rotary

__all__ = [
    "Alibi",
    "AttentionBias",
    "AttentionRecord",
    "KVCache",
    "LayerKVCache",
    "Mask",
    "MultiHeadAttention",
    "PositionEncoding",
    "RelativeBias",
    "Rotary",
    "attend",
    "attend_fused",
    "attend_reference",
    "choose_kernel",
]
