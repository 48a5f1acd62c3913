"""Stems: embeddings of tokens, image patches or audio frames as vectors [B, T, D]."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.kernels.dropout import dropout
from multihead.kernels.token_range import unknown_token
from multihead.models.config import ModelConfig
from multihead.models.norm import make_norm

SINES = 4096  # rows of the sinusoidal table; rows beyond it are computed when needed


class PositionEmbedding(nn.Module):
    """One vector per absolute position, added to the embeddings: learned, or sinusoidal.

    Sines fill the first half of the columns and cosines the second (the paper interleaves them, which is the same up to
    the order of columns; this order is the one of public translation models).
    """

    def __init__(self, config: ModelConfig, length: int) -> None:
        super().__init__()
        self.offset, self.length = config.position_offset, length
        if config.positions == "learned":
            self.table = nn.Parameter(torch.empty(length + self.offset, config.dim))
            nn.init.normal_(self.table, std=0.02)
        else:
            rows = torch.arange(min(length + self.offset, SINES))
            self.register_buffer("table", sinusoidal_embedding(rows, config.dim), persistent=False)

    def forward(self, at: Tensor | slice) -> Tensor:
        """Return the embeddings of positions `at` [B, T], or of a slice that all rows share."""
        rows = len(self.table)
        if isinstance(at, slice):
            first, last = at.start + self.offset, at.stop + self.offset
            if last <= rows or isinstance(self.table, nn.Parameter):
                return self.table[first:last]
            return sinusoidal_embedding(torch.arange(first, last), self.table.shape[1]).to(self.table)
        at = at + self.offset
        if self.length + self.offset <= rows or int(at.max()) < rows:
            return F.embedding(at, self.table)
        return sinusoidal_embedding(at, self.table.shape[1]).to(self.table)


def sinusoidal_embedding(at: Tensor, dim: int) -> Tensor:
    """Return sines and cosines of positions [...] as [..., D], in fp32."""
    frequency = 10_000 ** (-torch.arange((dim + 1) // 2, dtype=torch.float64) * 2 / dim)
    angle = at.cpu().double()[..., None] * frequency
    return torch.cat((angle.sin(), angle.cos()), dim=-1)[..., :dim].float()


def interpolate_positions(table: Tensor, before: tuple[int, int], after: tuple[int, int]) -> Tensor:
    """Positions [1 + rows * columns, D] of a grid of patches for another grid, bicubic; the first row stays."""
    grid = table[1:].reshape(*before, -1).permute(2, 0, 1)[None].float()
    grid = F.interpolate(grid, size=after, mode="bicubic", align_corners=False)
    return torch.cat((table[:1], grid[0].permute(1, 2, 0).reshape(-1, table.shape[1]).to(table)))


def absolute_positions(config: ModelConfig, length: int) -> PositionEmbedding | None:
    """Return the absolute position embedding of a config, or None."""
    return PositionEmbedding(config, length) if config.positions in ("sinusoidal", "learned") else None


class TokenEmbedding(nn.Module):
    """The sum of token, position and token-type embeddings."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale, self.dropout = config.embed_scale, config.dropout
        self.embedding = nn.Embedding(config.vocab, config.dim, padding_idx=config.pad)
        nn.init.normal_(self.embedding.weight, std=0.02 if config.embed_scale == 1.0 else config.dim**-0.5)
        self.positions = absolute_positions(config, config.max_length)
        self.types = nn.Embedding(config.token_types, config.dim) if config.token_types else None
        if self.types is not None:
            nn.init.normal_(self.types.weight, std=0.02)  # torch's 1.0 would dominate the token embeddings
        self.norm = make_norm(config) if config.embed_norm else nn.Identity()

    def forward(self, tokens: Tensor, at: Tensor | slice, types: Tensor | None = None) -> Tensor:
        """Embed tokens [B, T] at positions `at`; return [B, T, D]."""
        try:
            x = self.embedding(tokens)
        except IndexError:
            raise unknown_token(int(tokens.max()), self.embedding.num_embeddings) from None
        if self.scale != 1.0:
            x = x * self.scale
        if self.types is not None:
            x = x + (self.types.weight[0] if types is None else self.types(types))
        if self.positions is not None:
            x = x + self.positions(at)
        return dropout(self.norm(x), self.dropout, self.training)

    def check(self, length: int) -> None:
        """Raise ValueError for an input longer than the position table."""
        if self.positions is not None and length > self.positions.length:
            raise ValueError(
                f"the input is {length} tokens long, this model has {self.positions.length} positions; "
                "cut it into windows, or build the model with a larger max_length"
            )


class PatchEmbedding(nn.Module):
    """An image cut into patches, each a token, after one class token (Dosovitskiy et al. 2021)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        height, width = (side // config.patch for side in config.image)
        self.image, self.dropout = config.image, config.dropout
        self.grid, self.patch, self.interpolate = (height, width), config.patch, config.interpolate
        self.patches = nn.Conv2d(config.channels, config.dim, config.patch, stride=config.patch, bias=config.patch_bias)
        self.whole = nn.Parameter(torch.randn(1, 1, config.dim) * 0.02)
        self.positions = absolute_positions(config, height * width + 1)
        self.norm = make_norm(config) if config.embed_norm else nn.Identity()

    def forward(self, pixels: Tensor) -> Tensor:
        """pixels [B, channels, height, width] -> [B, 1 + patches, D]"""
        height, width = pixels.shape[-2:]
        if (height, width) != tuple(self.image) and not (self.interpolate and min(height, width) >= self.patch):
            raise ValueError(f"the image is {list(pixels.shape[-2:])}, this model takes {list(self.image)}; resize it")
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat((self.whole.expand(len(x), -1, -1), x), dim=1)
        if self.positions is not None:
            x = x + self._positions((height // self.patch, width // self.patch))
        return dropout(self.norm(x), self.dropout, self.training)

    def _positions(self, grid: tuple[int, int]) -> Tensor:
        assert self.positions is not None
        table = self.positions(slice(0, self.grid[0] * self.grid[1] + 1))
        return table if grid == self.grid else interpolate_positions(table, self.grid, grid)


class AudioEmbedding(nn.Module):
    """A log-mel spectrogram through two convolutions, the second with stride 2 (Radford et al. 2022)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.first = nn.Conv1d(config.mels, config.dim, 3, padding=1)
        self.second = nn.Conv1d(config.dim, config.dim, 3, stride=2, padding=1)
        self.positions = absolute_positions(config, config.max_length)

    def forward(self, frames: Tensor) -> Tensor:
        """Embed frames [B, mels, time]; return [B, time / 2, D]."""
        x = F.gelu(self.second(F.gelu(self.first(frames)))).transpose(1, 2)
        if self.positions is not None:
            if x.shape[1] > self.positions.length:
                raise ValueError(f"the audio has {x.shape[1]} frames, this model takes {self.positions.length}; cut it")
            x = x + self.positions(slice(0, x.shape[1]))
        return dropout(x, self.dropout, self.training)


STEMS = {"tokens": TokenEmbedding, "patches": PatchEmbedding, "audio": AudioEmbedding}
