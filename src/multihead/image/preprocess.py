"""Preprocessing as preprocessor_config.json says: resize, crop, rescale, normalize, equal to transformers'."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multihead.image.decode import ImageError, ImageSource, Mode, Pixels, decode_image
from multihead.image.resample import RESAMPLE, Resample, resize, shortest_edge_size
from multihead.image.transforms import center_crop
from multihead.io.files import read_json, write_json

FILE = "preprocessor_config.json"
LARGEST = 4096  # a side that a config may ask for
HALF = (0.5, 0.5, 0.5)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _sides(size: Iterable[int] | int | None) -> list[int]:
    return [] if size is None else [size] if isinstance(size, int) else list(size)


@dataclass(frozen=True)
class ImageProcessor:
    """Turns images of any size into the pixels that a model was trained with.

    size: (height, width), or one number: the length of the shorter side.  crop: the middle (height, width) of that.
    mean, std: per channel, after rescaling; one number makes the images grey.

    >>> ImageProcessor(size=(8, 8))(np.zeros((4, 6, 3), dtype=np.uint8)).shape
    torch.Size([1, 3, 8, 8])
    """

    size: tuple[int, int] | int | None = (224, 224)
    resample: Resample = "bilinear"
    crop: tuple[int, int] | None = None
    scale: float | None = 1 / 255
    mean: tuple[float, ...] | None = HALF
    std: tuple[float, ...] | None = HALF
    kind: str = "ViTImageProcessor"

    def __post_init__(self) -> None:
        sides = [*_sides(self.size), *_sides(self.crop)]
        if any(not 1 <= side <= LARGEST for side in sides):
            raise ImageError(f"a size of {max(sides, key=abs)} pixels; 1 to {LARGEST} is allowed")
        if (self.mean is None) != (self.std is None):
            raise ImageError("image_mean and image_std go together; give both, or neither")
        if self.std is not None and self.mean is not None:
            if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
                raise ImageError(f"{len(self.mean)} means and {len(self.std)} deviations; give 1 or 3 of both")
            if not np.isfinite([*self.mean, *self.std]).all() or min(self.std) <= 0:
                raise ImageError(f"image_mean {self.mean}, image_std {self.std}; give finite ones, deviations above 0")
        if self.scale is not None and not 0 < self.scale < 1e6:
            raise ImageError(f"rescale_factor is {self.scale}; a number above 0 is wanted")
        if self.resample not in RESAMPLE:
            raise ImageError(f"resample is {self.resample!r}; known: {', '.join(RESAMPLE)}")

    @property
    def mode(self) -> Mode:
        return "L" if self.mean is not None and len(self.mean) == 1 else "RGB"

    @property
    def shape(self) -> tuple[int, int] | None:
        """(height, width) that every image has afterwards; None: it depends on the image."""
        if self.crop is not None:
            return self.crop
        return self.size if isinstance(self.size, tuple) else None

    def __call__(self, images: ImageSource | list[ImageSource]) -> Tensor:
        """One image, or a list of them -> float32 [B, C, H, W]"""
        several = images if isinstance(images, list | tuple) else [images]
        if not several:
            raise ImageError("no image was given; give at least one")
        pixels = [self.fit(decode_image(image, self.mode)) for image in several]
        sizes = {array.shape for array in pixels}
        if len(sizes) > 1:
            raise ImageError("the images have different sizes afterwards; set crop_size, or pass them one by one")
        return self.normalize(torch.from_numpy(np.stack(pixels)))

    def fit(self, pixels: Pixels) -> Pixels:
        """Resize and crop one decoded image; what a cache holds."""
        if self.size is not None:
            height, width = pixels.shape[:2]
            size = self.size if isinstance(self.size, tuple) else shortest_edge_size(height, width, self.size)
            pixels = resize(pixels, size, self.resample)
        if self.crop is not None:
            pixels = center_crop(pixels, self.crop)
        return np.ascontiguousarray(pixels, dtype=np.uint8)

    def normalize(self, pixels: Tensor) -> Tensor:
        """uint8 [B, H, W] or [B, H, W, C] -> float32 [B, C, H, W], rescaled and normalized."""
        channels = pixels[:, None] if pixels.dim() == 3 else pixels.permute(0, 3, 1, 2)
        values = channels.to(torch.float32, memory_format=torch.contiguous_format)
        factor = 1.0 if self.scale is None else self.scale
        if self.mean is None or self.std is None:
            return values.mul_(factor)
        mean, std = (torch.tensor(row, dtype=torch.float64)[:, None, None] for row in (self.mean, self.std))
        # One multiplication and one addition per pixel, with constants worked out in float64
        return values.mul_((factor / std).float()).sub_((mean / std).float())

    @classmethod
    def from_config(cls, config: dict[str, Any], where: str = FILE) -> ImageProcessor:
        """Read what preprocessor_config.json says; missing fields are the defaults of its kind."""
        kind = _kind(config, where)
        default = KINDS[kind]
        try:
            return _read(default, config)
        except (ImageError, TypeError, ValueError, OverflowError) as error:
            raise ImageError(f"{where}: {error}") from None

    def to_config(self) -> dict[str, Any]:
        """What preprocessor_config.json says of it, as transformers reads it."""
        config: dict[str, Any] = {
            "image_processor_type": self.kind,
            "do_resize": self.size is not None,
            "do_center_crop": self.crop is not None,
            "do_rescale": self.scale is not None,
            "do_normalize": self.mean is not None,
            "do_convert_rgb": self.mode == "RGB",
            "resample": RESAMPLE.index(self.resample),
        }
        if self.size is not None:
            config["size"] = _size_fields(self.size)
        if self.crop is not None:
            config["crop_size"] = _size_fields(self.crop)
        if self.scale is not None:
            config["rescale_factor"] = self.scale
        if self.mean is not None and self.std is not None:
            config |= {"image_mean": list(self.mean), "image_std": list(self.std)}
        return config

    @classmethod
    def load(cls, directory: str | Path) -> ImageProcessor:
        path = Path(directory) / FILE
        return cls.from_config(read_json(path), str(path))

    def save(self, directory: str | Path) -> None:
        write_json(Path(directory) / FILE, self.to_config())


KINDS = {
    "ViTImageProcessor": ImageProcessor(),
    "DeiTImageProcessor": ImageProcessor((256, 256), "bicubic", (224, 224), kind="DeiTImageProcessor"),
    "CLIPImageProcessor": ImageProcessor(
        224, "bicubic", (224, 224), mean=CLIP_MEAN, std=CLIP_STD, kind="CLIPImageProcessor"
    ),
    # DINOv2's files say their own mean, deviation and size of 256
    "BitImageProcessor": ImageProcessor(
        224, "bicubic", (224, 224), mean=CLIP_MEAN, std=CLIP_STD, kind="BitImageProcessor"
    ),
}
DINOV2 = replace(KINDS["BitImageProcessor"], size=256, mean=IMAGENET_MEAN, std=IMAGENET_STD)


def _kind(config: dict[str, Any], where: str) -> str:
    name = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "ViTImageProcessor")
    kind = name.removesuffix("Fast").removesuffix("Pil").replace("FeatureExtractor", "ImageProcessor")
    if kind not in KINDS:
        raise ImageError(f"{where}: image_processor_type is {name[:60]!r}; known: {', '.join(KINDS)}")
    return kind


def _read(default: ImageProcessor, config: dict[str, Any]) -> ImageProcessor:
    def wants(field: str, value: object) -> bool:
        given = config.get(field)
        if given is not None and not isinstance(given, bool):
            raise ImageError(f"{field} is {given!r}; true or false is wanted")
        return value is not None if given is None else given

    square = isinstance(default.size, tuple)
    size = _size(config["size"], "size", square) if config.get("size") is not None else default.size
    crop = _size(config["crop_size"], "crop_size", True) if config.get("crop_size") is not None else default.crop
    if isinstance(crop, int):
        raise ImageError("crop_size names a shortest_edge; give height and width")
    scale = float(config.get("rescale_factor", default.scale or 1 / 255))
    mean, std = (
        _row(config.get(name), name) or value
        for name, value in (("image_mean", default.mean), ("image_std", default.std))
    )
    resample = config.get("resample", RESAMPLE.index(default.resample))
    if not isinstance(resample, int) or not 0 <= resample < len(RESAMPLE):
        raise ImageError(f"resample is {resample!r}; a number from 0 to {len(RESAMPLE) - 1} is wanted")
    normalized = wants("do_normalize", default.mean)
    return ImageProcessor(
        size if wants("do_resize", default.size) else None,
        RESAMPLE[resample],
        crop if wants("do_center_crop", default.crop) else None,
        scale if wants("do_rescale", default.scale) else None,
        mean if normalized else None,
        std if normalized else None,
        default.kind,
    )


def _size(value: Any, field: str, square: bool) -> tuple[int, int] | int:
    """A size as files have it: a number, [height, width], or an object with their names."""
    if isinstance(value, dict):
        numbers = {name: value[name] for name in ("height", "width", "shortest_edge") if value.get(name) is not None}
        if set(numbers) == {"height", "width"}:
            value = [numbers["height"], numbers["width"]]
        elif set(numbers) == {"shortest_edge"}:
            value, square = numbers["shortest_edge"], False
    if isinstance(value, list | tuple) and len(value) == 2 and all(type(side) is int for side in value):
        return value[0], value[1]
    if type(value) is int:
        return (value, value) if square else value
    raise ImageError(f"{field} is {str(value)[:80]}; give height and width, or shortest_edge")


def _row(value: Any, field: str) -> tuple[float, ...] | None:
    if value is None:
        return None
    values = value if isinstance(value, list | tuple) else [value] * 3
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in values):
        raise ImageError(f"{field} is {str(value)[:80]}; give a number per channel")
    return tuple(map(float, values))


def _size_fields(size: tuple[int, int] | int) -> dict[str, int]:
    return {"shortest_edge": size} if isinstance(size, int) else {"height": size[0], "width": size[1]}
