"""A RandAugment-like policy (Cubuk et al. 2020) on whole batches.

Each image gets `count` operations, one after the other, chosen at random; images that drew the same operation are
changed together, so a batch costs about as much as a few of its operations and not as its images one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from multihead.image.transforms import blend, to_float, uniform

Operation = Callable[[Tensor, Tensor], Tensor]  # images [N, C, H, W] in 0..1, strengths [N] in -1..1


def rand_augment(images: Tensor, generator: Generator, count: int = 2, strength: float = 0.5) -> Tensor:
    """Apply `count` random operations to each image; float images 0..1 come back.

    strength: 0 changes nothing, 1 is the strongest; each image draws up to it, in both directions.
    """
    pixels = to_float(images).clone()
    for _ in range(count):
        chosen = torch.randint(len(OPERATIONS), (len(pixels),), generator=generator)
        amounts = uniform(len(pixels), -strength, strength, generator)
        for number, operation in enumerate(OPERATIONS.values()):
            rows = (chosen == number).nonzero()[:, 0]
            if len(rows):
                pixels[rows] = operation(pixels[rows], amounts[rows])
    return pixels


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Affine maps [N, 2, 3] from target to source, coordinates in -1..1, bilinear, zeros outside."""
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _affine(xx: Tensor, xy: Tensor, x: Tensor, yx: Tensor, yy: Tensor, y: Tensor) -> Tensor:
    return torch.stack((torch.stack((xx, xy, x), -1), torch.stack((yx, yy, y), -1)), 1)


def _rotate(images: Tensor, amounts: Tensor) -> Tensor:
    """Up to 30 degrees; the sides of the image need not be equal."""
    angle, ratio = amounts * math.radians(30), images.shape[-2] / images.shape[-1]
    zero = torch.zeros_like(angle)
    return warp(images, _affine(angle.cos(), -angle.sin() * ratio, zero, angle.sin() / ratio, angle.cos(), zero))


def _move(images: Tensor, x: Tensor, y: Tensor, shear_x: Tensor, shear_y: Tensor) -> Tensor:
    one = torch.ones_like(x)
    return warp(images, _affine(one, shear_x, x, shear_y, one, y))


def _sharpen(images: Tensor, amounts: Tensor) -> Tensor:
    kernel = torch.tensor([[1.0, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13
    C = images.shape[1]
    smooth = F.conv2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), kernel.expand(C, 1, 3, 3), groups=C)
    return blend(images, smooth, _factor(amounts))


def _posterize(images: Tensor, amounts: Tensor) -> Tensor:
    levels = (2 ** (8 - 4 * amounts.abs()).round())[:, None, None, None]
    return ((images * 255 * levels / 256).floor() * (256 / levels) / 255).clamp(0, 1)


def _solarize(images: Tensor, amounts: Tensor) -> Tensor:
    return torch.where(images > 1 - amounts.abs()[:, None, None, None], 1 - images, images)


def _autocontrast(images: Tensor, amounts: Tensor) -> Tensor:
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    return torch.where(high > low, (images - low) / (high - low).clamp(min=1e-6), images)


def _equalize(images: Tensor, amounts: Tensor) -> Tensor:
    """Every grey level becomes its rank among the pixels of its channel."""
    N, C, H, W = images.shape
    levels = (images * 255).round().long().view(N * C, H * W)
    counts = torch.zeros(N * C, 256).scatter_add_(1, levels, torch.ones(levels.shape))
    ranks = counts.cumsum(1)
    first = counts.gather(1, levels.amin(1, keepdim=True))  # the lowest level that occurs stays black
    ranks = ((ranks - first) / (H * W - first).clamp(min=1)).clamp(0, 1)
    new = ranks.gather(1, levels)
    return torch.where(first < H * W, new, images.reshape(N * C, H * W)).view(N, C, H, W)


def _factor(amounts: Tensor) -> Tensor:
    return (1 + 0.9 * amounts)[:, None, None, None]


def _grey_mean(images: Tensor) -> Tensor:
    return images.mean((1, 2, 3), keepdim=True)


def _zero(amounts: Tensor) -> Tensor:
    return torch.zeros_like(amounts)


OPERATIONS: dict[str, Operation] = {
    "identity": lambda images, amounts: images,
    "brightness": lambda images, amounts: (images * _factor(amounts)).clamp(0, 1),
    "contrast": lambda images, amounts: blend(images, _grey_mean(images), _factor(amounts)),
    "color": lambda images, amounts: blend(images, images.mean(1, keepdim=True), _factor(amounts)),
    "sharpness": _sharpen,
    "posterize": _posterize,
    "solarize": _solarize,
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "rotate": _rotate,
    "shear_x": lambda images, amounts: _move(images, _zero(amounts), _zero(amounts), 0.3 * amounts, _zero(amounts)),
    "shear_y": lambda images, amounts: _move(images, _zero(amounts), _zero(amounts), _zero(amounts), 0.3 * amounts),
    "translate_x": lambda images, amounts: _move(images, 0.6 * amounts, *[_zero(amounts)] * 3),
    "translate_y": lambda images, amounts: _move(images, _zero(amounts), 0.6 * amounts, *[_zero(amounts)] * 2),
}
