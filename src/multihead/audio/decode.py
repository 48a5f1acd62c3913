"""Recordings to 16 kHz mono samples: WAV, FLAC, OGG, MP3 (and AIFF, AU, CAF) through libsndfile, resampled by soxr.

What a file says of itself is bounded before it is decoded, and it is decoded block by block, so that neither a lying
header nor hours of well-packed silence can fill the memory. Every failure is an `AudioError`: file, fault, fix.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

Samples = NDArray[np.float32]

RATE = 16_000  # of all that leaves this module; what Whisper, wav2vec2 and our own models read
LOWEST_RATE, HIGHEST_RATE = 4_000, 768_000  # telephones have 8 kHz; studios at most 384
LOUDEST = 64.0  # float samples lie in [-1, 1]; mixes reach a few more, integers taken for floats reach 32,767
BLOCK_VALUES = 1 << 20  # numbers (frames x channels) that are decoded at once
LONGEST_PATH = 4096  # characters; a longer text is base64
LFS = b"version https://git-lfs.github.com/spec/"
# Containers that libsndfile opens and we let through: the first bytes decide, never the file's extension.
MAGIC = (b"RIFF", b"RIFX", b"RF64", b"fLaC", b"OggS", b"ID3", b"FORM", b".snd", b"caff")
ENDLESS = 0xFFFF_FFFF - 0x1000  # a size of about 2**32: a WAV that was written into a pipe


class AudioError(ValueError):
    """A recording that cannot be used: the file, the fault and the fix in one line."""


@dataclass(frozen=True)
class AudioLimits:
    """What is read at most."""

    seconds: float = 7200.0  # two hours take 460 MB as 16 kHz float32
    bytes: int = 1 << 30
    channels: int = 32


@dataclass(frozen=True)
class Audio:
    """samples: float32 [T] at 16 kHz, mono; source_rate and channels: what the recording had."""

    samples: Samples
    source_rate: int
    channels: int
    name: str

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE


def read_audio(
    source: str | Path | bytes | ArrayLike,
    rate: int | None = None,
    *,
    name: str | None = None,
    limits: AudioLimits | None = None,
) -> Audio:
    """Return a recording as 16 kHz mono float32.

    source: a path; the bytes of a file; base64 (a `data:` URI, or a text longer than any path); or samples [T] or
        [T, channels], floats in [-1, 1] or integers, with their `rate`.
    name: what errors call it; the path by default.
    Raises AudioError.

    >>> read_audio(np.zeros(8000, dtype=np.float32), 8000).samples.shape
    (16000,)
    """
    limits = limits or AudioLimits()
    if isinstance(source, str) and (source.startswith("data:") or len(source) > LONGEST_PATH):
        name = name or "the recording (base64)"
        source = _decode_base64(source, name, limits)
    if isinstance(source, bytes | bytearray | memoryview):
        return _read_bytes(bytes(source), name or "the recording (bytes)", limits)
    if isinstance(source, str | Path):
        return _read_path(Path(source), name or str(source), limits)
    return _read_samples(source, rate, name or "the recording (samples)", limits)


def _decode_base64(text: str, name: str, limits: AudioLimits) -> bytes:
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        if not head.endswith(";base64"):
            raise AudioError(f"{name}: a data: URI without ;base64; encode the file's bytes as base64")
    if len(text) > limits.bytes * 4 // 3 + 4:
        raise AudioError(f"{name}: {len(text):,} characters of base64; at most {limits.bytes:,} bytes are read")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise AudioError(f"{name}: not base64 ({error}); encode the file's bytes as base64") from None


def _read_path(path: Path, name: str, limits: AudioLimits) -> Audio:
    if "://" in str(path) or str(path).startswith(("http:/", "https:/")):
        raise AudioError(f"{name}: an address; nothing is fetched from the network, give a file")
    try:
        if not path.exists():
            raise AudioError(f"{name}: no such file; check the path")
        if not path.is_file():
            raise AudioError(f"{name}: not a regular file; give a recording")
        size = path.stat().st_size
        with path.open("rb") as file:
            return _read_file(file, size, name, limits)
    except OSError as error:
        raise AudioError(f"{name}: cannot be read ({error.strerror or error}); check the file") from None
    except ValueError as error:  # a zero byte in the path
        if isinstance(error, AudioError):
            raise
        raise AudioError(f"{name!r}: not a path ({error}); check it") from None


def _read_bytes(content: bytes, name: str, limits: AudioLimits) -> Audio:
    return _read_file(io.BytesIO(content), len(content), name, limits)


def _read_file(file: BinaryIO, size: int, name: str, limits: AudioLimits) -> Audio:
    import soundfile

    if size == 0:
        raise AudioError(f"{name}: the file is empty; record or fetch it again")
    if size > limits.bytes:
        raise AudioError(f"{name}: {size:,} bytes, at most {limits.bytes:,} are read; cut the recording into parts")
    _check_magic(file.read(64), name)
    if (missing := _missing_bytes(file, size)) > 0:
        raise AudioError(f"{name}: cut short: {missing:,} bytes that its header promises are missing; fetch it again")
    file.seek(0)
    try:
        with soundfile.SoundFile(file) as sound:
            return _decode(sound, name, limits)
    except soundfile.LibsndfileError as error:
        reason = str(getattr(error, "error_string", error)).strip().rstrip(".")
        raise AudioError(f"{name}: cannot be decoded ({reason}); save it as WAV or FLAC") from None
    except (RuntimeError, TypeError, AssertionError, OverflowError, struct.error) as error:
        # soundfile raises these for headers that it does not expect.
        raise AudioError(f"{name}: cannot be decoded ({error}); save it as WAV or FLAC") from None


def _check_magic(head: bytes, name: str) -> None:
    """Reject what is no recording before a parser sees it, and say what it is."""
    mpeg = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0
    if head.startswith(MAGIC) or mpeg:
        return
    known = {
        LFS: "a Git LFS pointer, not the recording; run git lfs pull",
        b"\x1aE\xdf\xa3": "a WebM or Matroska file; save it as WAV, FLAC, OGG or MP3",
        b"\x89PNG": "a PNG image; give a recording",
        b"\xff\xd8": "a JPEG image; give a recording",
        b"PK\x03\x04": "a zip archive; unpack it and give a recording",
        b"<": "a web page or XML; fetch the recording again",
        b"{": "a JSON text; give a recording",
    }
    what = next((text for start, text in known.items() if head.startswith(start)), None)
    if head[4:8] == b"ftyp":
        what = "an MP4 or M4A file; save it as WAV, FLAC, OGG or MP3"
    raise AudioError(f"{name}: {what or 'no sound format that is known here; save it as WAV, FLAC, OGG or MP3'}")


def _missing_bytes(file: BinaryIO, size: int) -> int:
    """How many bytes of a WAV's samples are not there: libsndfile would say nothing and give what is left."""
    file.seek(0)
    head = file.read(12)
    if head[:4] not in (b"RIFF", b"RIFX") or head[8:12] != b"WAVE":
        return 0
    order, place = "<" if head[:4] == b"RIFF" else ">", 12
    for _ in range(1000):
        file.seek(place)
        chunk = file.read(8)
        if len(chunk) < 8:
            return 0
        length = struct.unpack(f"{order}I", chunk[4:])[0]
        if chunk[:4] == b"data":
            return 0 if length >= ENDLESS else place + 8 + length - size
        place += 8 + length + length % 2
    return 0


def _decode(sound: Any, name: str, limits: AudioLimits) -> Audio:
    """Decode block by block: mean of the channels, then 16 kHz."""
    rate, channels, promised = sound.samplerate, sound.channels, sound.frames
    _check_shape(rate, channels, name, limits)
    if promised > limits.seconds * rate and promised < 1 << 62:  # beyond: the length is not known (streams)
        raise _too_long(promised / rate, name, limits)
    count = 0

    def blocks() -> Iterator[Samples]:
        nonlocal count
        step = max(1, BLOCK_VALUES // channels)
        while len(block := sound.read(step, dtype="float32", always_2d=True)):
            count += len(block)
            if count > limits.seconds * rate:
                raise _too_long(count / rate, name, limits)
            yield _mix(block, name)

    samples = _resample(blocks(), rate, name)
    if not count:
        raise AudioError(f"{name}: holds no sample; record or fetch it again")
    # A FLAC's header counts its frames; an MP3's is an estimate and an OGG's is its last page.
    if sound.format == "FLAC" and count < promised < 1 << 62:
        raise AudioError(
            f"{name}: cut short: {promised / rate:.2f} s promised, {count / rate:.2f} s are there; fetch it again"
        )
    return Audio(samples, rate, channels, name)


def _read_samples(source: ArrayLike, rate: int | None, name: str, limits: AudioLimits) -> Audio:
    try:
        array = np.asarray(source)
    except (ValueError, TypeError, RuntimeError) as error:
        raise AudioError(f"{name}: not an array of samples ({error}); give [T] or [T, channels]") from None
    if rate is None:
        raise AudioError(f"{name}: samples without their rate; give rate=, as in read_audio(samples, 16000)")
    if isinstance(rate, bool) or not isinstance(rate, int | np.integer):
        raise AudioError(f"{name}: rate is {rate!r}; a whole number of samples per second is wanted")
    if array.ndim not in (1, 2) or array.dtype.kind not in "fiu" or not array.size:
        raise AudioError(f"{name}: {array.dtype} {list(array.shape)} are no samples; give numbers [T] or [T, channels]")
    array = array[:, None] if array.ndim == 1 else array
    if array.shape[1] > limits.channels:
        raise AudioError(f"{name}: {array.shape[1]:,} channels; samples are [T, channels], transpose them")
    _check_shape(int(rate), array.shape[1], name, limits)
    if len(array) > limits.seconds * rate:
        raise _too_long(len(array) / rate, name, limits)
    if array.dtype.kind == "f":
        floats = array.astype(np.float32)
    else:
        info = np.iinfo(array.dtype)
        middle = 0.0 if array.dtype.kind == "i" else (float(info.max) + 1) / 2  # unsigned 8 bit: 128 is silence
        full = float(info.max) + 1 - middle
        floats = ((array.astype(np.float64) - middle) / full).astype(np.float32)
    return Audio(_resample(iter([_mix(floats, name)]), int(rate), name), int(rate), array.shape[1], name)


def _check_shape(rate: int, channels: int, name: str, limits: AudioLimits) -> None:
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise AudioError(
            f"{name}: {rate:,} samples per second; {LOWEST_RATE:,} to {HIGHEST_RATE:,} are read, record it again"
        )
    if not 1 <= channels <= limits.channels:
        raise AudioError(f"{name}: {channels:,} channels, at most {limits.channels} are read; mix them down")


def _too_long(seconds: float, name: str, limits: AudioLimits) -> AudioError:
    return AudioError(
        f"{name}: {seconds:,.0f} s long, at most {limits.seconds:,.0f} s are read; cut the recording into parts"
    )


def _mix(block: Samples, name: str) -> Samples:
    """[T, channels] -> their mean [T], finite and within bounds."""
    # One pass: the largest magnitude is nan where any sample is.
    peak = float(np.abs(block).max(initial=0.0))
    if not np.isfinite(peak):
        raise AudioError(f"{name}: holds samples that are not numbers (nan or infinite); record or convert it again")
    if peak > LOUDEST:
        raise AudioError(
            f"{name}: samples reach {peak:,.0f}, floats lie in [-1, 1]; divide them by their largest value"
        )
    return block[:, 0] if block.shape[1] == 1 else block.mean(axis=1, dtype=np.float32)


def _resample(blocks: Iterator[Samples], rate: int, name: str) -> Samples:
    if rate == RATE:
        parts = [block.copy() for block in blocks]
        return np.ascontiguousarray(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.float32)
    import soxr

    stream = soxr.ResampleStream(rate, RATE, 1, dtype="float32")
    parts = [stream.resample_chunk(np.ascontiguousarray(block)) for block in blocks]
    parts.append(stream.resample_chunk(np.zeros(0, dtype=np.float32), last=True))
    samples = np.concatenate(parts)
    if not len(samples):
        raise AudioError(f"{name}: too short to hold a sample at {RATE:,} Hz; record it again")
    return samples
