"""Augmentation of image batches [B, C, H, W], uint8 or float in 0..1, on torch alone.

Every random choice comes from the generator that is passed in: with a generator made of (seed, step), a resumed
training sees the same pixels, bit for bit. All images of a batch are changed at once, with choices of their own.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from multihead.image.decode import ImageError, Pixels

GREY = (0.299, 0.587, 0.114)  # what red, green and blue count for in brightness


def uniform(count: int, low: float, high: float, generator: Generator) -> Tensor:
    """[count] numbers between low and high."""
    return torch.rand(count, generator=generator) * (high - low) + low


def to_float(images: Tensor) -> Tensor:
    """uint8 0..255 to float32 0..1; floats stay."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images


def center_crop(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """The middle (height, width) of one image [H, W] or [H, W, C]; zeros around where it is smaller."""
    height, width = pixels.shape[:2]
    rows, columns = size
    if rows > height or columns > width:
        # The same side gets the odd pixel as in transformers: rounded up above and left
        tall, broad = max(rows, height), max(columns, width)
        above, left = math.ceil((tall - height) / 2), math.ceil((broad - width) / 2)
        wider = np.zeros((tall, broad, *pixels.shape[2:]), dtype=pixels.dtype)
        wider[above : above + height, left : left + width] = pixels
        top, start = (height - rows) // 2 + above, (width - columns) // 2 + left
        return wider[max(0, top) : top + rows, max(0, start) : start + columns]
    top, start = (height - rows) // 2, (width - columns) // 2
    return pixels[top : top + rows, start : start + columns]


def random_flip(images: Tensor, generator: Generator, chance: float = 0.5) -> Tensor:
    """Mirror left and right, each image with this chance."""
    chosen = torch.rand(len(images), generator=generator) < chance
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)


def random_crop(images: Tensor, padding: int, generator: Generator) -> Tensor:
    """Pad with zeros on every side, then cut the old size out at a random place."""
    B, _, H, W = images.shape
    padded = F.pad(images, (padding, padding, padding, padding))
    top = torch.randint(2 * padding + 1, (B,), generator=generator)
    left = torch.randint(2 * padding + 1, (B,), generator=generator)
    rows = (top[:, None] + torch.arange(H))[:, None, :, None].expand(-1, images.shape[1], -1, padded.shape[3])
    columns = (left[:, None] + torch.arange(W))[:, None, None, :].expand(-1, images.shape[1], H, -1)
    return padded.gather(2, rows).gather(3, columns)


def random_resized_crop(
    images: Tensor,
    size: tuple[int, int],
    generator: Generator,
    area: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Cut out a random share of the area with a random ratio of its sides, and resize it: [B, C, *size].

    Drawn ten times at most, as torchvision does; then the middle of the image is taken.
    """
    B, _, H, W = images.shape
    shares = uniform(B * 10, *area, generator).view(B, 10) * H * W
    ratios = torch.exp(uniform(B * 10, math.log(ratio[0]), math.log(ratio[1]), generator)).view(B, 10)
    widths, heights = (shares * ratios).sqrt().round().long(), (shares / ratios).sqrt().round().long()
    places = torch.rand(B, 2, generator=generator)
    crops = []
    for row in range(B):
        fits = ((widths[row] <= W) & (heights[row] <= H) & (widths[row] > 0) & (heights[row] > 0)).nonzero()
        if len(fits):
            height, width = int(heights[row, fits[0, 0]]), int(widths[row, fits[0, 0]])
            top, left = int(places[row, 0] * (H - height + 1)), int(places[row, 1] * (W - width + 1))
        else:
            height, width = min(H, round(W / ratio[0])), min(W, round(H * ratio[1]))
            top, left = (H - height) // 2, (W - width) // 2
        crop = images[row : row + 1, :, top : top + height, left : left + width]
        crops.append(F.interpolate(crop, size=size, mode="bilinear", antialias=True))
    return torch.cat(crops)


def color_jitter(
    images: Tensor,
    generator: Generator,
    brightness: float = 0.4,
    contrast: float = 0.4,
    saturation: float = 0.4,
    hue: float = 0.0,
) -> Tensor:
    """Float images 0..1 with brightness, contrast and saturation times 1 ± strength, and hue turned by ± a share."""
    pixels, B = to_float(images), len(images)
    if brightness:
        pixels = (pixels * _per_image(uniform(B, 1 - brightness, 1 + brightness, generator))).clamp(0, 1)
    if contrast:
        factor = _per_image(uniform(B, 1 - contrast, 1 + contrast, generator))
        pixels = blend(pixels, _grey(pixels).mean((1, 2, 3), keepdim=True), factor)
    if saturation:
        pixels = blend(pixels, _grey(pixels), _per_image(uniform(B, 1 - saturation, 1 + saturation, generator)))
    if hue and pixels.shape[1] == 3:
        pixels = _turn_hue(pixels, uniform(B, -hue, hue, generator))
    return pixels


def blend(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    """other + factor * (images - other), between 0 and 1: factor 1 is the image, above it the difference grows."""
    return (other + factor * (images - other)).clamp(0, 1)


def random_erasing(
    images: Tensor,
    generator: Generator,
    chance: float = 0.25,
    area: tuple[float, float] = (0.02, 0.33),
    ratio: tuple[float, float] = (0.3, 3.3),
    value: float = 0.0,
) -> Tensor:
    """Fill a random rectangle of each image with a value, each image with this chance (Zhong et al. 2020)."""
    B, _, H, W = images.shape
    shares = uniform(B, *area, generator) * H * W
    ratios = torch.exp(uniform(B, math.log(ratio[0]), math.log(ratio[1]), generator))
    inside = _rectangles((shares * ratios).sqrt(), (shares / ratios).sqrt(), H, W, generator)
    inside &= (torch.rand(B, generator=generator) < chance)[:, None, None]
    return images.masked_fill(inside[:, None], value)


def mixup(images: Tensor, targets: Tensor, generator: Generator, alpha: float = 0.2) -> tuple[Tensor, Tensor]:
    """Mix each image and its targets [B, classes] with another's by one share of Beta(alpha, alpha) (Zhang 2018)."""
    other, share = _partner(len(images), generator), _draw_beta(alpha, generator)
    pixels = to_float(images)
    return pixels * share + pixels[other] * (1 - share), targets * share + targets[other] * (1 - share)


def cutmix(images: Tensor, targets: Tensor, generator: Generator, alpha: float = 1.0) -> tuple[Tensor, Tensor]:
    """Paste a rectangle of another image; targets [B, classes] are mixed by its area (Yun et al. 2019)."""
    B, _, H, W = images.shape
    other, share = _partner(B, generator), _draw_beta(alpha, generator)
    side = torch.full((1,), math.sqrt(1 - share))
    inside = _rectangles(side * W, side * H, H, W, generator)
    kept = 1 - float(inside.float().mean())
    return torch.where(inside[:, None], images[other], images), targets * kept + targets[other] * (1 - kept)


def one_hot(labels: Tensor, classes: int, smoothing: float = 0.0) -> Tensor:
    """Targets [B, classes] of class numbers [B]; smoothing: the share spread over all classes."""
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ImageError(f"class {int(labels.max())} does not exist; there are {classes}, from 0")
    return F.one_hot(labels, classes).float() * (1 - smoothing) + smoothing / classes


def _per_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def _grey(images: Tensor) -> Tensor:
    """[B, C, H, W] -> [B, 1, H, W]"""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    return torch.einsum("bchw,c->bhw", images, torch.tensor(GREY, dtype=images.dtype))[:, None]


def _turn_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Turn colors around the grey axis, by shares of a whole turn (in YIQ, where this is a rotation)."""
    to_yiq = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
    angle = turns * (2 * math.pi)
    turn = torch.zeros(len(images), 3, 3)
    turn[:, 0, 0] = 1
    turn[:, 1, 1] = turn[:, 2, 2] = angle.cos()
    turn[:, 1, 2], turn[:, 2, 1] = -angle.sin(), angle.sin()
    matrix = torch.linalg.inv(to_yiq) @ turn @ to_yiq
    return torch.einsum("bij,bjhw->bihw", matrix, images).clamp(0, 1)


def _rectangles(widths: Tensor, heights: Tensor, H: int, W: int, generator: Generator) -> Tensor:
    """Masks [B, H, W], True inside a rectangle of this size around a random place; parts outside are lost."""
    count = len(widths)
    y, x = (torch.rand(count, generator=generator) * side for side in (H, W))
    rows, columns = torch.arange(H) + 0.5, torch.arange(W) + 0.5
    tall = (rows - y[:, None]).abs() < heights[:, None] / 2
    broad = (columns - x[:, None]).abs() < widths[:, None] / 2
    return tall[:, :, None] & broad[:, None, :]


def _partner(count: int, generator: Generator) -> Tensor:
    return torch.randperm(count, generator=generator)


def _draw_beta(alpha: float, generator: Generator) -> float:
    """Beta(alpha, alpha) by numpy, seeded from the generator: torch's public Beta takes none."""
    if alpha <= 0:
        raise ImageError(f"alpha is {alpha}; a number above 0 is wanted")
    seed = int(torch.randint(2**62, (), generator=generator))
    return float(np.random.default_rng(seed).beta(alpha, alpha))
