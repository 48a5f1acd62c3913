"""Decoded and resized images in one memory-mapped file, made once per dataset and size.

`<folder>/<key>/pixels.npy` and `cache.json`, which is written last and says that the rest is whole. While it is made,
finished blocks are noted in `progress.json`, so that a killed build resumes where it was.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from multihead.image.decode import ImageError, Mode, Pixels, decode_image
from multihead.image.sources import ImageExample
from multihead.io.files import read_own_json, sync, write_json

BLOCK = 256  # images between two notes of progress


@dataclass(frozen=True)
class ImageCache:
    """pixels: uint8 [N, H, W] or [N, H, W, 3], mapped; broken: number of an example -> why it could not be decoded.

    Rows of broken examples are zeros.
    """

    pixels: NDArray[np.uint8]
    broken: dict[int, str]


def cache_key(examples: Sequence[ImageExample], shape: Sequence[int], fit: str) -> str:
    """A digest of all sources (files by path, size and time of change), the shape, and how images are made to fit."""
    digest = hashlib.sha256(f"1|{list(shape)}|{fit}".encode())
    for example in examples:
        if isinstance(example.image, str | Path):
            try:
                status = os.stat(example.image)
                part = f"{example.image}|{status.st_size}|{status.st_mtime_ns}".encode()
            except OSError:
                part = f"{example.image}|missing".encode()
        else:
            content = example.image.tobytes() if isinstance(example.image, np.ndarray) else bytes(example.image)
            part = hashlib.sha256(content).digest()
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]


def build_cache(
    examples: Sequence[ImageExample],
    folder: str | Path,
    size: tuple[int, int],
    fit: Callable[[Pixels], Pixels],
    mode: Mode = "RGB",
    name: str = "",
) -> ImageCache:
    """Open the cache of these examples, or make it; fit: a decoded image -> exactly `size` (`ImageProcessor.fit`).

    name: what `fit` does, part of the key.
    """
    shape = (len(examples), *size, *([3] if mode == "RGB" else []))
    place = Path(folder) / cache_key(examples, shape, f"{mode}|{name}")
    place.mkdir(parents=True, exist_ok=True)
    file, done = place / "pixels.npy", place / "cache.json"
    if done.exists():
        content = _read(done)
        if content is not None and file.exists():
            pixels = np.load(file, mmap_mode="r")
            if pixels.shape == shape and pixels.dtype == np.uint8:
                return ImageCache(pixels, content[1])
        done.unlink()
    start, broken = _progress(place, file, shape)
    pixels = np.lib.format.open_memmap(file, "r+" if start else "w+", np.uint8, shape)
    for row in range(start, len(examples)):
        example = examples[row]
        try:
            pixels[row] = fit(decode_image(example.image, mode, name=example.place))
        except ImageError as error:
            broken[row] = str(error)
        if (row + 1) % BLOCK == 0:
            pixels.flush()
            write_json(place / "progress.json", _state(row + 1, broken))
    pixels.flush()
    sync(file)
    write_json(done, _state(len(examples), broken))
    (place / "progress.json").unlink(missing_ok=True)
    return ImageCache(np.load(file, mmap_mode="r"), broken)


def _progress(place: Path, file: Path, shape: tuple[int, ...]) -> tuple[int, dict[int, str]]:
    """How many rows an earlier build finished, and what it found broken."""
    content = _read(place / "progress.json") if (place / "progress.json").exists() and file.exists() else None
    if content is None:
        return 0, {}
    try:
        if np.load(file, mmap_mode="r").shape != shape:
            return 0, {}
    except (OSError, ValueError):
        return 0, {}
    return min(content[0], shape[0]), content[1]


def _read(path: Path) -> tuple[int, dict[int, str]] | None:
    try:
        content = read_own_json(path)
        return int(content["rows"]), {int(row): str(why) for row, why in content["broken"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _state(rows: int, broken: dict[int, str]) -> dict[str, object]:
    return {"rows": rows, "broken": {str(row): why for row, why in broken.items()}}
