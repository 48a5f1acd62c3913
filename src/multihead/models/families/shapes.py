"""Tensor shapes of a body, computed from its config and compared with a file before anything is built.

A config of a few bytes can ask for any amount of memory: sinusoidal and rotary tables, a list of heads. With this
check, every size must be confirmed by a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from multihead.models.config import ModelConfig
from multihead.models.families.spec import BodyConfig, TensorName

Sizes = Mapping[str, Sequence[int]]


def body_shapes(shape: BodyConfig) -> Iterator[tuple[str, list[int]]]:
    """Yield our names of a body's parameters (without "body.") with their shapes; tied ones more than once."""
    both = shape.encoder is not None and shape.decoder is not None
    for side, config in (("encoder", shape.encoder), ("decoder", shape.decoder)):
        if config is not None:
            memory = config.memory_dim
            if side == "decoder" and memory is None and shape.encoder is not None:
                memory = shape.encoder.dim
            for name, sizes in _side(config, None if side == "encoder" else memory):
                yield f"{side}.{name}" if both else name, sizes


def stored_shape(ours: Sequence[int], part: TensorName) -> list[int]:
    """Return the shape in a family's file of a tensor that has shape `ours` here."""
    rows, *rest = ours
    shape = [rows * part.of, *rest]
    if part.flat:
        return shape[-1:]
    return [1, *shape] if part.lead else shape[::-1] if part.flipped else shape


def _side(config: ModelConfig, memory: int | None) -> Iterator[tuple[str, list[int]]]:
    for name, sizes in _stem(config):
        yield f"stem.{name}", sizes
    if config.positions == "relative":
        yield "stack.position.table.weight", [config.relative_buckets, config.heads]
    if config.norm_first if config.final_norm is None else config.final_norm:
        yield from _norm("stack.norm", config, config.dim)
    for layer in range(config.layers):
        for name, sizes in _block(config, layer, memory):
            yield f"stack.blocks.{layer}.{name}", sizes


def _stem(config: ModelConfig) -> Iterator[tuple[str, list[int]]]:
    dim, rows = config.dim, config.max_length
    if config.stem == "tokens":
        yield "embedding.weight", [config.vocab, dim]
        if config.token_types:
            yield "types.weight", [config.token_types, dim]
        if config.embed_norm:
            yield from _norm("norm", config, dim)
    elif config.stem == "patches":
        yield from _linear("patches", [dim, config.channels, config.patch, config.patch], config.patch_bias)
        yield "whole", [1, 1, dim]
        if config.embed_norm:
            yield from _norm("norm", config, dim)
        height, width = config.image
        rows = (height // config.patch) * (width // config.patch) + 1
    else:
        yield from _linear("first", [dim, config.mels, 3], True)
        yield from _linear("second", [dim, dim, 3], True)
    if config.positions == "learned":
        yield "positions.table", [rows + config.position_offset, dim]


def _block(config: ModelConfig, layer: int, memory: int | None) -> Iterator[tuple[str, list[int]]]:
    dim, inner = config.dim, config.inner or 4 * config.dim
    inner = inner if config.ffn_widths is None else config.ffn_widths[layer]
    parts = [("attention", dim, config.kept_heads, config.head_widths)]
    if memory is not None:
        parts.append(("cross", memory, config.kept_cross_heads, config.cross_head_widths))
    for name, source, kept_heads, widths in parts:
        left = None if kept_heads is None else kept_heads[layer]
        yield from _attention(name, config, source, left, None if widths is None else widths[layer])
        yield from _norm(f"{name}_norm", config, dim)
    yield from _linear("feed_forward.up", [inner, dim], config.inner_bias)
    if config.gated:
        yield from _linear("feed_forward.gate", [inner, dim], config.inner_bias)
    yield from _linear("feed_forward.down", [dim, inner], config.inner_bias)
    yield from _norm("feed_forward_norm", config, dim)
    if config.layer_scale is not None:
        yield "attention_scale", [dim]
        yield "feed_forward_scale", [dim]


def _attention(
    name: str, config: ModelConfig, source: int, kept_heads: tuple[int, ...] | None, widths: tuple[int, int] | None
) -> Iterator[tuple[str, list[int]]]:
    heads, groups = config.heads, config.kv_heads or config.heads
    if kept_heads is not None:
        heads, groups = len(kept_heads), len(kept_heads) * groups // heads
    key, value = widths or (config.head_width, config.value_width)
    if config.scale == "learned":
        yield f"{name}.head_scale", [heads, 1, 1]
    for letter, sizes in (
        ("q", [heads * key, config.dim]),
        ("k", [groups * key, source]),
        ("v", [groups * value, source]),
        ("out", [config.dim, heads * value]),
    ):
        yield from _linear(f"{name}.{letter}", sizes, letter[0] in config.attention_bias)
    if config.qk_norm is not None:
        for letter in ("q", "k"):
            yield f"{name}.{letter}_norm.weight", [key]
            if config.qk_norm == "layer":
                yield f"{name}.{letter}_norm.bias", [key]


def _linear(name: str, sizes: list[int], bias: bool) -> Iterator[tuple[str, list[int]]]:
    yield f"{name}.weight", sizes
    if bias:
        yield f"{name}.bias", sizes[:1]


def _norm(name: str, config: ModelConfig, dim: int) -> Iterator[tuple[str, list[int]]]:
    yield f"{name}.weight", [dim]
    if config.norm == "layer":
        yield f"{name}.bias", [dim]
