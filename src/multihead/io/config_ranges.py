"""Allowed ranges of the numbers in a model's config, by field; files are checked before tensors are made."""

from __future__ import annotations

from multihead.io.type_checks import Range

COUNT = 2**31 - 1
# Smallest and largest allowed value. Types alone would let a config ask for more memory than there is before
# any tensor is read; no product of these that becomes a tensor size exceeds 64 bits.
RANGES: dict[str, Range] = {
    "vocab": (1, COUNT),
    "max_length": (1, 2**24),
    "token_types": (0, 2**20),
    "pad": (-1, COUNT),  # -1: none, in some files
    "embed_scale": (-1e6, 1e6),
    "image": (1, 2**16),
    "patch": (1, 2**12),
    "channels": (1, 2**12),
    "mels": (1, 2**12),
    "dim": (1, 2**24),
    "layers": (0, 10_000),
    "heads": (1, 2**16),
    "kv_heads": (1, 2**16),
    "key_dim": (1, 2**20),
    "value_dim": (1, 2**20),
    "inner": (1, COUNT),
    "norm_eps": (0.0, 1.0),
    "layer_scale": (0.0, 1e6),
    "scale": (-1e6, 1e6),
    "window": (1, COUNT),
    "kept_heads": (0, 2**16),
    "kept_cross_heads": (0, 2**16),
    "head_widths": (1, 2**20),
    "cross_head_widths": (1, 2**20),
    "ffn_widths": (1, COUNT),
    "position_offset": (0, COUNT),
    "rotary_theta": (2.0, 1e12),
    "relative_buckets": (4, 2**20),
    "relative_farthest": (3, COUNT),
    "memory_dim": (1, 2**24),
}
# The keys of `rotary_scaling`.
SCALING_RANGES: dict[str, Range] = {
    "factor": (1e-3, 1e6),
    "low": (1e-3, 1e6),
    "high": (1e-3, 1e6),
    "fast": (1e-3, 1e6),
    "slow": (1e-3, 1e6),
    "gain": (1e-3, 1e3),
    "original": (1, 2**24),
}
