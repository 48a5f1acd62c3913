"""Image files to arrays: JPEG, PNG, WebP, GIF, TIFF, BMP and PPM become uint8, grey or RGB.

A file is foreign data: its bytes and the pixels that its header announces are bounded before anything is decoded, only
the listed formats are tried (Pillow's others include one that starts a program), and every failure is an `ImageError`.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import stat
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # [height, width] or [height, width, 3]
Mode = Literal["RGB", "L"]  # Pillow's names: color, grey
ImageSource = Any  # a path, a data: URL, bytes, an array or a PIL image

MAX_BYTES = 256 << 20  # of a file
MAX_PIXELS = 64_000_000  # what 64 megapixels take as RGBA and RGB together: 450 MB
MAX_SIDE = 65_535  # of an array that a caller gives; the formats have limits of their own
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "PPM")
KNOWN = "JPEG, PNG, WebP, GIF, TIFF, BMP, PPM"
LFS = b"version https://git-lfs.github.com/spec/"
ORIENTATION = 0x0112  # of EXIF
ALPHA_MODES = ("RGBA", "LA", "PA", "RGBa", "La")


class ImageError(ValueError):
    """An image that cannot be used; the message names it, the fault and the fix."""


def decode_image(source: ImageSource, mode: Mode = "RGB", *, name: str = "", max_pixels: int = MAX_PIXELS) -> Pixels:
    """Decode one image: uint8 [height, width, 3] for mode "RGB", [height, width] for "L".

    source: a path, a `data:` URL, bytes of a file, an array ([H, W], [H, W, 1], [H, W, 3] or [H, W, 4]: uint8,
    uint16, bool, or float from 0 to 1) or a PIL image.
    name: what errors call the image, instead of its path.

    EXIF orientation is applied, transparency is laid on white, 16 bits become 8, of an animation the first frame is
    taken.

    >>> decode_image(np.zeros((2, 3), dtype=np.uint8)).shape
    (2, 3, 3)
    """
    if isinstance(source, np.ndarray):
        return _convert_array(source, mode, name or "the array", max_pixels)
    image, label = _open(source, name, max_pixels)
    try:
        image.load()  # here and nowhere later: asking for EXIF loads too, and an error there would be taken for no EXIF
        return _convert(_orient(image), mode, label)
    except ImageError:
        raise
    except (MemoryError, RecursionError):
        raise ImageError(f"{label}: too large for the memory of this machine; make it smaller") from None
    except Exception as error:  # decoders raise what they like: OSError, SyntaxError, ValueError, struct.error, …
        raise ImageError(f"{label}: cut short or damaged ({_first_line(error)}); get the file again") from None


def read_size(source: ImageSource, *, name: str = "") -> tuple[int, int]:
    """Return (height, width) as the header says, EXIF orientation applied; pixels are not decoded."""
    if isinstance(source, np.ndarray):
        return int(source.shape[0]), int(source.shape[1])
    image, _ = _open(source, name, MAX_PIXELS)
    width, height = image.size
    return (width, height) if _orientation(image) >= 5 else (height, width)


def decode_base64(text: str, name: str = "the base64 text") -> bytes:
    """Decode base64 to bytes, with or without a `data:` URL before it; white space is allowed."""
    if text.startswith("data:"):
        head, comma, text = text.partition(",")
        if not comma or not head.endswith(";base64"):
            raise ImageError(f"{name}: a data: URL without ';base64,'; encode the image as base64")
    if len(text) > MAX_BYTES // 3 * 4:
        raise ImageError(f"{name}: {len(text):,} characters of base64, {MAX_BYTES // 3 * 4:,} at most; make it smaller")
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageError(f"{name}: not base64 ({_first_line(error)}); encode the file again") from None
    if not raw:
        raise ImageError(f"{name}: the image is empty; encode the file again")
    return raw


def read_image_file(path: str | Path, name: str = "") -> bytes:
    """Read the bytes of an image file, bounded."""
    label = name or str(path)
    try:
        # O_NONBLOCK: opening a pipe must not wait for a writer
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise ImageError(f"{label}: not a regular file; give an image file")
            if status.st_size > MAX_BYTES:
                raise ImageError(f"{label}: {status.st_size:,} bytes, {MAX_BYTES:,} at most; make it smaller")
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ImageError(f"{label}: no such file; check the path") from None
    except IsADirectoryError:
        raise ImageError(f"{label}: a directory; give an image file") from None
    except (OSError, ValueError) as error:
        if isinstance(error, ImageError):
            raise
        raise ImageError(f"{label}: cannot be read ({_first_line(error)}); check the file") from None
    return raw


def import_pillow() -> Any:
    """Return the module PIL.Image, or raise with the command that installs it."""
    try:
        import PIL.Image
    except ImportError:
        raise ImageError("images need Pillow; run pip install 'multihead[image]'") from None
    return PIL.Image


def _open(source: ImageSource, name: str, max_pixels: int) -> tuple[Any, str]:
    """Return a PIL image that is not decoded yet and is known to be small enough, and its name in errors."""
    pillow = import_pillow()
    if isinstance(source, pillow.Image):
        label = name or getattr(source, "filename", "") or "the image"
        _check_pixels(source.size, label, max_pixels)
        return source, str(label)
    if isinstance(source, str) and source.startswith("data:"):
        label = name or "the data: URL"
        raw = decode_base64(source, label)
    elif isinstance(source, str | Path):
        label = name or str(source)
        raw = read_image_file(source, label)
    elif isinstance(source, bytes | bytearray | memoryview):
        label, raw = name or "the image", bytes(source)
    else:
        kind = type(source).__name__
        raise ImageError(f"{name or 'the image'}: a {kind}; give a path, bytes, a data: URL, an array or a PIL image")
    return _open_bytes(raw, label, max_pixels), label


def _open_bytes(raw: bytes, label: str, max_pixels: int) -> Any:
    pillow = import_pillow()
    if not raw:
        raise ImageError(f"{label}: the file is empty; get it again")
    if raw.startswith(LFS):
        raise ImageError(f"{label}: a Git LFS pointer, not the image itself; run git lfs pull")
    if len(raw) > MAX_BYTES:
        raise ImageError(f"{label}: {len(raw):,} bytes, {MAX_BYTES:,} at most; make it smaller")
    try:
        image = pillow.open(io.BytesIO(raw), formats=FORMATS)
    except pillow.UnidentifiedImageError:
        raise ImageError(f"{label}: {_guess(raw)}; images are {KNOWN}") from None
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise ImageError(f"{label}: more than {max_pixels:,} pixels, which is the limit; make it smaller") from None
    except (MemoryError, RecursionError):
        raise ImageError(f"{label}: too large for the memory of this machine; make it smaller") from None
    except Exception as error:
        raise ImageError(f"{label}: cut short or damaged ({_first_line(error)}); get the file again") from None
    _check_pixels(image.size, label, max_pixels)
    return image


def _check_pixels(size: tuple[int, int], label: str, max_pixels: int) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise ImageError(f"{label}: {width} x {height} pixels; an image has at least one")
    if width * height > max_pixels:
        raise ImageError(f"{label}: {width:,} x {height:,} pixels, {max_pixels:,} in all at most; make it smaller")


def _guess(raw: bytes) -> str:
    """Say what a file that is no image may be."""
    start = raw[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<svg", b"<?xml")):
        return "SVG or XML, which is drawn and not decoded"
    if start.startswith((b"<!doctype html", b"<html")):
        return "a web page and no image"
    if start.startswith(b"%pdf"):
        return "a PDF and no image"
    if raw[4:8] == b"ftyp":
        return "HEIC, AVIF or a video, which is not supported"
    return "not an image, or damaged at its start"


def _orientation(image: Any) -> int:
    """The EXIF orientation, 1 to 8; 1 where there is none or the EXIF block is damaged.

    Before it is loaded, a PNG is asked only if the block stands before the pixels: Pillow would decode them.
    """
    if image.format == "PNG" and "exif" not in image.info:
        return 1
    try:
        value = image.getexif().get(ORIENTATION, 1)
    except Exception:  # a damaged block does not make the picture unusable
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _orient(image: Any) -> Any:
    turn = import_pillow().Transpose
    methods = {
        2: turn.FLIP_LEFT_RIGHT, 3: turn.ROTATE_180, 4: turn.FLIP_TOP_BOTTOM, 5: turn.TRANSPOSE,
        6: turn.ROTATE_270, 7: turn.TRANSVERSE, 8: turn.ROTATE_90,
    }  # fmt: skip
    method = methods.get(_orientation(image))
    return image if method is None else image.transpose(method)


def _convert(image: Any, mode: Mode, label: str) -> Pixels:
    if image.mode.startswith(("I", "F")):  # 16 or 32 bits per pixel: Pillow would clip them at 255
        return _convert_array(_narrow(np.asarray(image), label), mode, label, MAX_PIXELS)
    if image.mode in ALPHA_MODES or "transparency" in image.info:
        pillow = import_pillow()
        image = image.convert("RGBA")
        white = pillow.new("RGBA", image.size, (255, 255, 255, 255))
        image = pillow.alpha_composite(white, image)
    return np.array(image if image.mode == mode else image.convert("RGB").convert(mode), dtype=np.uint8)


def _narrow(values: NDArray[Any], label: str) -> NDArray[Any]:
    """Grey values of 16 bits, 32 bits or floats as an array that `_convert_array` takes."""
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise ImageError(f"{label}: holds NaN or infinite pixels; save it with 8 or 16 bits")
        return values if values.max() <= 1 and values.min() >= 0 else np.clip(values, 0, 255).astype(np.uint8)
    return np.clip(values, 0, 65_535).astype(np.uint16)


def _convert_array(array: NDArray[Any], mode: Mode, label: str, max_pixels: int) -> Pixels:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise ImageError(f"{label}: shape {array.shape}; give [height, width] or [height, width, 3]")
    height, width = array.shape[:2]
    _check_pixels((width, height), label, max_pixels)
    if max(height, width) > MAX_SIDE:
        raise ImageError(f"{label}: {width:,} x {height:,} pixels, sides up to {MAX_SIDE:,}; make it smaller")
    pixels = _to_bytes(array, label)
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        alpha = pixels[:, :, 3:].astype(np.uint16)
        laid = pixels[:, :, :3] * alpha + 255 * (255 - alpha)
        pixels = ((laid + 127) // 255).astype(np.uint8)
    if mode == "RGB":
        return pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)
    return pixels if pixels.ndim == 2 else to_grey(pixels)


def _to_bytes(array: NDArray[Any], label: str) -> Pixels:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype == np.uint16:
        return ((array.astype(np.uint32) * 255 + 32_767) // 65_535).astype(np.uint8)
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ImageError(f"{label}: holds NaN or infinite pixels; give finite ones")
        if array.min() < 0 or array.max() > 1:
            raise ImageError(f"{label}: floats from {array.min():g} to {array.max():g}; give 0 to 1, or uint8")
        return np.round(array * 255).astype(np.uint8)
    raise ImageError(f"{label}: {array.dtype} pixels; give uint8, uint16, bool, or float from 0 to 1")


def to_grey(pixels: Pixels) -> Pixels:
    """RGB [..., 3] to grey [...], with Pillow's integer weights."""
    red, green, blue = np.moveaxis(pixels.astype(np.uint32), -1, 0)
    return ((red * 19_595 + green * 38_470 + blue * 7_471 + 0x8000) >> 16).astype(np.uint8)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:120] or type(error).__name__
