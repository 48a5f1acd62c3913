"""The configuration of a body: one frozen dataclass, with the base model of Vaswani et al. (2017) as its defaults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, get_type_hints

from multihead.io.config_ranges import RANGES, SCALING_RANGES
from multihead.io.type_checks import check_value

# The heads and feed-forward widths that pruning left.
PRUNING_FIELDS = ("kept_heads", "kept_cross_heads", "head_widths", "cross_head_widths", "ffn_widths")
FORMER_FIELDS = {  # their names in files that version 0.1 wrote
    "kept": "kept_heads",
    "cross_kept": "kept_cross_heads",
    "widths": "head_widths",
    "cross_widths": "cross_head_widths",
    "inners": "ffn_widths",
}


@dataclass(frozen=True)
class ModelConfig:
    # Input
    vocab: int = 32_000
    max_length: int = 512
    stem: Literal["tokens", "patches", "audio"] = "tokens"
    token_types: int = 0  # BERT's sentence A and B
    pad: int | None = None  # id of the padding token, if there is one
    embed_scale: float = 1.0  # embeddings are multiplied by it
    embed_norm: bool = False  # a norm after the embeddings
    image: tuple[int, int] = (224, 224)  # patches: height and width
    patch: int = 16
    channels: int = 3
    patch_bias: bool = True
    interpolate: bool = False  # patches: an image of another size gets interpolated positions
    mels: int = 80  # audio: rows of the spectrogram

    # The blocks
    dim: int = 512
    layers: int = 6
    heads: int = 8
    kv_heads: int | None = None  # None: as many as heads
    key_dim: int | None = None  # None: dim / heads
    value_dim: int | None = None
    inner: int | None = None  # None: 4 * dim
    activation: Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "silu"] = "relu"
    gated: bool = False
    norm: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-5
    norm_first: bool = False  # pre-norm: easier to train deep; the paper's base is post-norm
    final_norm: bool | None = None  # a norm behind the last block; None: with norm_first
    layer_scale: float | None = None  # encoders: what each part adds is scaled per column, from this value on
    attention_bias: str = "qkvo"  # which projections of attention have a bias
    inner_bias: bool = True
    scale: float | Literal["learned"] | None = None  # of the scores; None: key_dim ** -0.5
    qk_norm: Literal["rms", "layer"] | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0  # above 0, attention leaves the fused kernel on CPU while training
    window: int | None = None  # sliding window: attend to positions nearer than this

    # What pruning left, per layer; None: everything. Heads retain their original numbers.
    kept_heads: tuple[tuple[int, ...], ...] | None = None
    kept_cross_heads: tuple[tuple[int, ...], ...] | None = None
    head_widths: tuple[tuple[int, int], ...] | None = None  # instead of `key_dim` and `value_dim`
    cross_head_widths: tuple[tuple[int, int], ...] | None = None
    ffn_widths: tuple[int, ...] | None = None  # instead of `inner`

    # Positions
    positions: Literal["none", "sinusoidal", "learned", "rotary", "alibi", "relative"] = "sinusoidal"
    position_offset: int = 0  # rows of the learned table before position 0 (RoBERTa, BART: 2)
    rotary_theta: float = 10_000.0
    rotary_scaling: dict[str, Any] | None = None
    relative_buckets: int = 32
    relative_farthest: int = 128

    # Output, and cross-attention
    tied: bool = True  # the vocabulary readout uses the embedding table
    memory_dim: int | None = None  # decoder: width of the encoder's output, None: no cross-attention

    def __post_init__(self) -> None:
        for name, kind in field_types().items():
            check_value(name, getattr(self, name), kind, RANGES.get(name))
        if {*self.attention_bias} - {*"qkvo"}:
            raise ValueError(f"attention_bias={self.attention_bias!r}: letters of 'qkvo', or '' for none")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 0 and below 1")
        if self.stem == "tokens" and self.pad is not None and self.pad >= self.vocab:
            raise ValueError(f"pad is {self.pad}; use a token id below vocab = {self.vocab:,}")
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}; change one of them")
        self._check_positions()
        if self.key_dim is None and self.dim % self.heads:
            raise ValueError(f"dim={self.dim} is not a multiple of heads={self.heads}; change one, or give key_dim")
        for name in PRUNING_FIELDS:
            if (left := getattr(self, name)) is not None and len(left) != self.layers:
                raise ValueError(f"{name} has entries for {len(left)} layers, the model has {self.layers}")
        for numbers in (*(self.kept_heads or ()), *(self.kept_cross_heads or ())):
            group = self.heads // (self.kv_heads or self.heads)
            if not numbers or list(numbers) != sorted(set(numbers)) or not 0 <= numbers[0] <= numbers[-1] < self.heads:
                raise ValueError(f"kept heads {list(numbers)}: use at least one number, ascending, below {self.heads}")
            if {n for head in numbers for n in range(head - head % group, head - head % group + group)} != {*numbers}:
                raise ValueError(f"kept heads {list(numbers)}: {group} heads share their keys and stay together")
        for key, value in (*(self.head_widths or ()), *(self.cross_head_widths or ())):
            if not 1 <= key <= self.head_width or not 1 <= value <= self.value_width:
                limits = f"{self.head_width} and {self.value_width}"
                raise ValueError(f"widths {key} and {value}: use at least 1 and at most {limits}")
            if key < self.head_width and self.whole_keys:
                raise ValueError(
                    f"keys of width {key}: rotary positions and qk_norm need all {self.head_width} columns"
                )

    def _check_positions(self) -> None:
        if self.positions == "rotary":
            if self.head_width % 2:
                raise ValueError(f"heads are {self.head_width} wide; rotary positions need an even width")
            scaling = self.rotary_scaling or {}
            for name in scaling.keys() & SCALING_RANGES:
                kind = int if name == "original" else float
                check_value(f"rotary_scaling: {name}", scaling[name], kind, SCALING_RANGES[name])
            if scaling.get("kind") == "llama3" and scaling.get("low", 1.0) >= scaling.get("high", 4.0):
                raise ValueError(f"rotary_scaling: low is {scaling.get('low')}; it must be less than high")
        if self.positions == "relative" and self.relative_farthest <= self.relative_buckets // 2:
            raise ValueError(
                f"relative_farthest is {self.relative_farthest}; it must be more than half of "
                f"relative_buckets = {self.relative_buckets}"
            )

    def without_pruning(self) -> ModelConfig:
        """Return the configuration of the unpruned model."""
        return replace(
            self, kept_heads=None, kept_cross_heads=None, head_widths=None, cross_head_widths=None, ffn_widths=None
        )

    @property
    def head_width(self) -> int:
        return self.key_dim or self.dim // self.heads

    @property
    def whole_keys(self) -> bool:
        """Whether keys need all their columns: rotated or normalized keys cannot be narrowed."""
        return self.positions == "rotary" or self.qk_norm is not None

    @property
    def value_width(self) -> int:
        return self.value_dim or self.head_width


@cache
def field_types() -> dict[str, Any]:
    """Return the type of every field of ModelConfig."""
    return get_type_hints(ModelConfig)
