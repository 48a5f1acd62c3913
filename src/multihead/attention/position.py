"""Position encodings that act inside attention.

Absolute positions (sinusoidal, learned) are added to the embeddings by the stem. The encodings here either rotate q and
k (rotary) or add a bias to the scores (ALiBi, Press et al. 2022; relative buckets, Raffel et al. 2020).
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PositionEncoding(nn.Module):
    """Base class of position encodings: no rotation and no bias."""

    heads = 0  # number of heads with a bias; 0: no bias

    def rotate(self, x: Tensor, offset: int) -> Tensor:
        """Encode the positions of q or k [B, H, T, K], whose first token is at position `offset`."""
        return x

    def bias(self, t: Tensor, s: Tensor) -> Tensor:
        """Return the bias of queries at t and keys at s, which broadcast to shape X: [1, H, *X]."""
        raise NotImplementedError


class Rotary(PositionEncoding):
    """Rotary position embedding (Su et al. 2021): pairs of columns turn by an angle proportional to the position.

    Column i is paired with column i + width/2; columns beyond `width` are not rotated. `scaling` extends the context:
    {"kind": "linear", "factor": 4}, or kind "llama3" or "yarn" with their own keys (see `_scale_frequencies`).
    """

    def __init__(
        self, width: int, theta: float = 10_000.0, scaling: dict[str, Any] | None = None, length: int = 2048
    ) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"Rotary turns pairs of columns: width {width} is odd; use an even width")
        self.width = width
        frequency, self.gain = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width), 1.0
        if scaling:
            frequency, self.gain = _scale_frequencies(frequency, theta, width, scaling)
        self.frequency = frequency.float()  # not a buffer: half precision would change distant positions
        self.register_buffer("table", self._angles(0, length), persistent=False)
        self.table: Tensor

    def rotate(self, x: Tensor, offset: int) -> Tensor:
        last = offset + x.shape[2]
        table = self.table[:, offset:last] if last <= self.table.shape[1] else self._angles(offset, last)
        cos, sin = table.to(x)  # each [T, width/2]
        a, b, rest = x.split((self.width // 2, self.width // 2, x.shape[-1] - self.width), dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)

    def _angles(self, first: int, last: int) -> Tensor:
        """Return cos and sin of the angles, [2, T, width/2]."""
        angle = torch.arange(first, last)[:, None].to(self.frequency.dtype) * self.frequency
        return torch.stack((angle.cos(), angle.sin())) * self.gain


class Alibi(PositionEncoding):
    """Linear bias (ALiBi): subtract slope x distance from the scores; each head has its own slope."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        power = 2 ** math.floor(math.log2(heads))
        slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
        slopes += [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
        self.register_buffer("slopes", torch.tensor(slopes), persistent=False)
        self.slopes: Tensor

    def bias(self, t: Tensor, s: Tensor) -> Tensor:
        distance = (t - s).abs()
        return (-self.slopes.view(-1, *(1,) * distance.dim()) * distance)[None]


class RelativeBias(PositionEncoding):
    """Learned bias per head and bucket of distances (T5); far distances share buckets, logarithmically."""

    def __init__(self, heads: int, buckets: int = 32, farthest: int = 128, both_sides: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.buckets, self.farthest, self.both_sides = buckets, farthest, both_sides
        self.table = nn.Embedding(buckets, heads)

    def bias(self, t: Tensor, s: Tensor) -> Tensor:
        return F.embedding(self.bucket(s - t), self.table.weight).movedim(-1, 0)[None]

    def bucket(self, ahead: Tensor) -> Tensor:
        """Return the bucket of a distance (key position minus query position), of any shape."""
        if self.both_sides:
            buckets, first = self.buckets // 2, (ahead > 0).long() * (self.buckets // 2)
            distance = ahead.abs()
        else:
            buckets, first = self.buckets, torch.zeros_like(ahead)
            distance = (-ahead).clamp(min=0)
        exact = buckets // 2
        ratio = (distance.float() / exact).clamp(min=1).log() / math.log(self.farthest / exact)
        far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
        return first + torch.where(distance < exact, distance, far)


class HeadSubset(PositionEncoding):
    """The biases of some heads of another encoding: pruned and unpruned layers share one table."""

    def __init__(self, encoding: PositionEncoding, numbers: tuple[int, ...]) -> None:
        super().__init__()
        self.encoding, self.numbers, self.heads = encoding, list(numbers), len(numbers)

    def bias(self, t: Tensor, s: Tensor) -> Tensor:
        return self.encoding.bias(t, s)[:, self.numbers]


def _scale_frequencies(frequency: Tensor, theta: float, width: int, how: dict[str, Any]) -> tuple[Tensor, float]:
    """Return the scaled frequencies, and the gain on cos and sin."""
    kind, factor = how.get("kind"), float(how.get("factor", 1.0))
    if kind == "linear":
        return frequency / factor, 1.0
    original = int(how.get("original", 8192 if kind == "llama3" else 2048))
    if kind == "llama3":
        low, high = float(how.get("low", 1.0)), float(how.get("high", 4.0))
        turns = original * frequency / (2 * math.pi)  # how often a pair turns over the original context
        blend = ((turns - low) / (high - low)).clamp(0, 1)  # 0: stretch, 1: leave
        return frequency / factor * (1 - blend) + frequency * blend, 1.0
    if kind == "yarn":
        fast, slow = float(how.get("fast", 32.0)), float(how.get("slow", 1.0))

        def column(turns: float) -> float:
            return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

        first, last = max(math.floor(column(fast)), 0), min(math.ceil(column(slow)), width - 1)
        index = torch.arange(width // 2, dtype=torch.float64)
        blend = 1 - ((index - first) / max(last - first, 1e-3)).clamp(0, 1)
        gain = float(how.get("gain", 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0))
        return frequency / factor * (1 - blend) + frequency * blend, gain
    raise ValueError(f"rotary scaling {kind!r} is unknown; use linear, llama3 or yarn")
