"""Images of every kind decode to the same arrays; every broken or hostile one is an ImageError that names it."""

from __future__ import annotations

import base64
import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from multihead.image import ImageError, decode_base64, decode_image, read_size


def picture(height: int = 12, width: int = 17, channels: int = 3) -> np.ndarray:
    rng = np.random.default_rng(7)
    rough = rng.integers(0, 256, (3, 4, channels), dtype=np.uint8)
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]
    image = Image.fromarray(rough[:, :, 0] if channels == 1 else rough, mode if channels == 1 else None)
    return np.array(image.resize((width, height), Image.Resampling.BICUBIC))


def encode(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def png(width: int, height: int, *, depth: int = 8, color: int = 0, data: bytes = b"", crc: bool = True) -> bytes:
    """A PNG by hand: any size may be announced, whatever the data."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        sum_ = zlib.crc32(kind + body) if crc else 0
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", sum_)

    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("form", ["PNG", "WEBP", "TIFF", "BMP", "PPM"])
def test_lossless_formats_give_the_pixels_back(form: str, tmp_path: Path) -> None:
    pixels = picture()
    path = tmp_path / "wrong_extension.jpg"  # the content decides, not the name
    path.write_bytes(encode(Image.fromarray(pixels), form, **({"lossless": True} if form == "WEBP" else {})))
    np.testing.assert_array_equal(decode_image(path), pixels)
    np.testing.assert_array_equal(decode_image(str(path)), pixels)
    np.testing.assert_array_equal(decode_image(path.read_bytes()), pixels)
    assert read_size(path) == pixels.shape[:2]


def test_jpeg_and_all_kinds_of_input_agree(tmp_path: Path) -> None:
    raw = encode(Image.fromarray(picture()), "JPEG", quality=95)
    want = np.array(Image.open(io.BytesIO(raw)))
    text = base64.b64encode(raw).decode()
    for source in (raw, bytearray(raw), f"data:image/jpeg;base64,{text}", decode_base64(text + "\n"), want,
                   Image.open(io.BytesIO(raw))):  # fmt: skip
        np.testing.assert_array_equal(decode_image(source), want)


@pytest.mark.parametrize("number", range(1, 9))
def test_exif_orientation(number: int) -> None:
    image = Image.fromarray(picture())
    exif = Image.Exif()
    exif[0x0112] = number
    raw = encode(image, "PNG", exif=exif)
    from PIL import ImageOps

    want = np.array(ImageOps.exif_transpose(Image.open(io.BytesIO(raw))))
    np.testing.assert_array_equal(decode_image(raw), want)
    assert read_size(raw) == want.shape[:2]


def test_transparency_is_laid_on_white() -> None:
    half = np.zeros((2, 3, 4), dtype=np.uint8)
    half[0, :, 3], half[1, :, 3] = 0, 255
    for source in (half, encode(Image.fromarray(half), "PNG"), encode(Image.fromarray(half), "WEBP", lossless=True)):
        pixels = decode_image(source)
        assert (pixels[0] == 255).all()
        assert (pixels[1] == 0).all()
    grey = Image.fromarray(half).convert("LA")
    assert (decode_image(encode(grey, "PNG"), "L")[0] == 255).all()
    palette = Image.new("P", (3, 2), 1)
    palette.putpalette([0, 0, 0, 9, 9, 9])
    assert (decode_image(encode(palette, "GIF", transparency=1)) == 255).all()
    assert (decode_image(encode(palette, "GIF")) == 9).all()


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    deep = np.array([[0, 257, 32768], [65535, 1000, 40000]], dtype=np.uint16)
    want = np.round(deep / 257).astype(np.uint8)
    np.testing.assert_array_equal(decode_image(encode(Image.fromarray(deep), "PNG"), "L"), want)
    np.testing.assert_array_equal(decode_image(encode(Image.fromarray(deep), "TIFF"))[:, :, 1], want)
    np.testing.assert_array_equal(decode_image(deep, "L"), want)


def test_cmyk_grey_bilevel_and_animation() -> None:
    color = Image.fromarray(picture())
    cmyk = color.convert("CMYK")
    np.testing.assert_array_equal(decode_image(encode(cmyk, "TIFF")), np.array(cmyk.convert("RGB")))
    assert np.abs(decode_image(encode(cmyk, "JPEG", quality=95)).astype(int) - picture()).mean() < 12
    np.testing.assert_array_equal(decode_image(encode(color, "PNG"), "L"), np.array(color.convert("L")))
    np.testing.assert_array_equal(decode_image(picture(), "L"), np.array(color.convert("L")))
    bilevel = Image.fromarray(picture()[:, :, 0] > 99)
    np.testing.assert_array_equal(decode_image(encode(bilevel, "PNG"), "L"), np.array(bilevel) * np.uint8(255))
    first, second = Image.new("RGB", (5, 4), "red"), Image.new("RGB", (5, 4), "blue")
    for form in ("GIF", "WEBP"):
        raw = encode(first, form, save_all=True, append_images=[second], duration=100, **(
            {"lossless": True} if form == "WEBP" else {}))  # fmt: skip
        assert (decode_image(raw) == [255, 0, 0]).all()


@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from(["L", "RGB", "RGBA", "LA", "1", "P", "I;16"]),
    st.sampled_from(["PNG", "TIFF"]),
    st.sampled_from(["RGB", "L"]),
)
def test_every_mode_gives_a_full_array(size: tuple[int, int], mode: str, form: str, wanted: str) -> None:
    if mode == "I;16":
        image = Image.fromarray(np.zeros(size[::-1], dtype=np.uint16))
    else:
        image = Image.new(mode, size)
    pixels = decode_image(encode(image, form), wanted)  # type: ignore[arg-type]
    assert pixels.dtype == np.uint8
    assert pixels.shape == (size[1], size[0], *([3] if wanted == "RGB" else []))


STARTS = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"II*\0", b"MM\0*", b"RIFF\x40\0\0\0WEBPVP8 ",
          b"BM", b"P6 9 9 255 "]  # fmt: skip


@given(st.binary(max_size=400), st.sampled_from(STARTS))
def test_random_bytes_never_crash(rest: bytes, start: bytes) -> None:
    message = ""
    try:
        decode_image(start + rest, name="x.png")
    except ImageError as error:
        message = str(error)
    assert not message or message.startswith("x.png: ")


def hostile() -> dict[str, bytes]:
    """Name -> bytes of files that are no usable image."""
    image = Image.fromarray(picture(60, 70))
    good = {form: encode(image, form) for form in ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "PPM")}
    files = {
        "empty.png": b"",
        "one_byte.jpg": b"\xff",
        "text.jpg": b"this is not an image\n",
        "page.png": b"<!doctype html><html>404</html>",
        "drawing.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        "document.pdf": b"%PDF-1.7 ...",
        "phone.heic": b"\0\0\0\x18ftypheic" + bytes(64),
        "pointer.png": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "archive.jpg": b"PK\x03\x04" + bytes(60),
        "script.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) run\n",
        "zeros.webp": bytes(1000),
        "bomb.png": png(60_000, 60_000, data=bytes(10_000_000)),
        "bomb_one_bit.png": png(30_000, 30_000, depth=1, data=bytes(1000)),
        "bomb_wide.png": png(2**31 - 1, 1),
        "no_data.png": png(100, 100),
        "zero_size.png": png(0, 10),
        "bad_crc.png": png(9, 9, data=bytes(90), crc=False),
        "bad_depth.png": png(9, 9, depth=7, data=bytes(90)),
        "bad_color.png": png(9, 9, color=5, data=bytes(90)),
        "text_bomb.png": good["PNG"][:33] + _text_bomb() + good["PNG"][33:],
        "bad_zlib.png": good["PNG"].replace(b"IDAT", b"IDAT\0\0\0\0", 1),
        "header_only.gif": b"GIF89a\x05\0\x05\0\0\0\0",
        "bomb.gif": b"GIF89a\xff\xff\xff\xff\0\0\0" + good["GIF"][13:],
        "bomb.tif": good["TIFF"][:8] + _tiff_directory(60_000, 60_000),
        "loop.tif": b"II*\0\x08\0\0\0" + struct.pack("<HHHII", 1, 256, 4, 1, 9) + struct.pack("<I", 8),
        "bomb.bmp": b"BM" + bytes(8) + struct.pack("<IIiiHHIIiiII", 54, 40, 50_000, 50_000, 1, 24, 0, 0, 0, 0, 0, 0),
        "negative.bmp": b"BM" + bytes(8) + struct.pack("<IIiiHHIIiiII", 54, 40, -5, 5, 1, 24, 0, 0, 0, 0, 0, 0),
        "bomb.ppm": b"P6 40000 40000 255\n",
        "letters.ppm": b"P6 a b 255\n",
        "nan.tif": encode(Image.fromarray(np.full((3, 3), np.nan, dtype=np.float32)), "TIFF"),
    }
    files |= {f"cut.{form.lower()}": raw[: len(raw) // 2] for form, raw in good.items()}
    files |= {f"start.{form.lower()}": raw[:20] for form, raw in good.items() if form != "PPM"}
    return files


def _text_bomb() -> bytes:
    body = b"zTXt" + b"Comment\0\0" + zlib.compress(bytes(80_000_000), 9)
    return struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))


def _tiff_directory(width: int, height: int) -> bytes:
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8),
               (277, 3, 1, 1), (278, 4, 1, height), (279, 4, 1, 100)]  # fmt: skip
    return struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries) + bytes(4)


HOSTILE = hostile()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])
    with pytest.raises(ImageError) as caught:
        decode_image(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert "; " in message, "no fix is given"


def test_there_are_enough_hostile_files() -> None:
    assert len(HOSTILE) >= 40


def test_places_that_are_no_files(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    for path in (tmp_path / "missing.png", tmp_path, pipe, Path("/dev/null")):
        with pytest.raises(ImageError, match="; "):
            decode_image(path)
    with pytest.raises(ImageError):
        decode_image("a\0b.png")


@pytest.mark.parametrize(
    ("array", "fault"),
    [
        (np.zeros((2, 2, 2), dtype=np.uint8), "shape"),
        (np.zeros((0, 5), dtype=np.uint8), "at least one"),
        (np.zeros((2, 2), dtype=np.int64), "int64"),
        (np.full((2, 2), np.nan), "NaN"),
        (np.full((2, 2), 3.0), "0 to 1"),
        (np.broadcast_to(np.uint8(0), (10_000, 10_000)), "at most"),
        (object(), "object"),
        (5, "int"),
    ],
)
def test_arrays_that_are_no_images(array: object, fault: str) -> None:
    with pytest.raises(ImageError, match=fault):
        decode_image(array)


@pytest.mark.parametrize("text", ["data:image/png,abc", "data:image/png;base64,", "!!!!", "abc", "é"])
def test_bad_base64(text: str) -> None:
    with pytest.raises(ImageError, match=r"row 5: .*; "):
        decode_image(decode_base64(text, "row 5"))


def test_odd_but_sound_sizes() -> None:
    assert decode_image(png(1, 1, data=bytes(2))).shape == (1, 1, 3)
    assert decode_image(png(30_000, 2, data=bytes(2 * 30_001))).shape == (2, 30_000, 3)


def test_damaged_pixels_are_not_black() -> None:
    """Pillow loads a PNG when it is asked for EXIF; the error must not be lost there."""
    raw = encode(Image.fromarray(picture(60, 70)), "PNG")
    for at in range(60, len(raw) - 30, 101):
        broken = raw[:at] + bytes([raw[at] ^ 0x55, raw[at + 1] ^ 0xAA]) + raw[at + 2 :]
        with pytest.raises(ImageError, match="damaged"):
            decode_image(broken)


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """All hostile files in one process that may hold 1 GB: none takes it down."""
    for name, raw in HOSTILE.items():
        (tmp_path / name).write_bytes(raw)
    script = (
        "import sys, resource, pathlib\n"
        "from multihead.image import decode_image, ImageError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    try: decode_image(path)\n"
        "    except ImageError: pass\n"
        "    else: sys.exit(f'{path} was decoded')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 300_000, "kilobytes beyond what the imports took"
