"""Recordings: what is read, and 30 broken or hostile ones, each a message with its name."""

import base64
import io
import resource
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from multihead.audio import AudioError, AudioLimits, read_audio

TONE = (0.3 * np.sin(2 * np.pi * 440 * np.arange(8000) / 8000)).astype(np.float32)


def encode(samples: np.ndarray, rate: int = 8000, form: str = "WAV", subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype=subtype)
    return file.getvalue()


def header(data: bytes, rate: int = 8000, channels: int = 1, promised: int | None = None, bits: int = 16) -> bytes:
    size = len(data) if promised is None else promised
    step = channels * bits // 8
    form = struct.pack("<HHIIHH", 1, channels & 0xFFFF, rate, (rate * step) & 0xFFFFFFFF, step & 0xFFFF, bits)
    return b"RIFF" + struct.pack("<I", (36 + size) & 0xFFFFFFFF) + b"WAVEfmt \x10\0\0\0" + form + b"data" + struct.pack("<I", size) + data  # fmt: skip # noqa: E501


WAV, FLAC = encode(TONE), encode(TONE, form="FLAC")
NAN = TONE.copy()
NAN[100] = np.nan
BROKEN: dict[str, bytes] = {
    "empty.wav": b"",
    "one_byte.wav": b"R",
    "riff_only.wav": b"RIFF",
    "head_only.wav": WAV[:20],
    "no_samples.wav": WAV[:44],
    "cut.wav": WAV[: len(WAV) // 2],
    "cut.flac": FLAC[: len(FLAC) // 2],
    "cut_head.flac": FLAC[:20],
    "flipped.flac": FLAC[:200] + b"\xff" * 400 + FLAC[600:],
    "cut.ogg": encode(TONE, form="OGG")[:60],
    "noise.mp3": b"\xff\xfb" + b"\x00" * 300,
    "id3_only.mp3": b"ID3\x04\0\0\0\0\0\0" + b"\0" * 50,
    "nan.wav": encode(NAN, subtype="FLOAT"),
    "inf.wav": encode(np.where(np.isnan(NAN), np.inf, NAN).astype(np.float32), subtype="FLOAT"),
    "integers_as_floats.wav": encode(TONE * 32767, subtype="FLOAT"),
    "1khz.wav": encode(TONE, 1000),
    "1hz.wav": encode(TONE, 1),
    "rate_0.wav": header(b"\0" * 100, 0),
    "rate_huge.wav": header(b"\0" * 100, 2**32 - 1),
    "no_channels.wav": header(b"\0" * 100, 8000, 0),
    "300_channels.wav": header(b"\0" * 600, 8000, 300),
    "promises_4gb.wav": header(b"\0" * 100, 8000, 1, 0xF0000000),
    "bits_0.wav": header(b"\0" * 100, bits=0),
    "png.wav": b"\x89PNG\r\n\x1a\n" + b"\0" * 100,
    "page.wav": b"<!DOCTYPE html><html>",
    "text.wav": "你好，世界".encode(),
    "json.flac": b'{"error": "not found"}',
    "zip.wav": b"PK\x03\x04" + b"\0" * 100,
    "video.wav": b"\0\0\0\x20ftypM4A " + b"\0" * 100,
    "webm.ogg": b"\x1aE\xdf\xa3" + b"\0" * 100,
    "pointer.wav": b"version https://git-lfs.github.com/spec/v1\noid sha256:1",
    "zeros.wav": b"\0" * 1000,
    "ogg_magic.ogg": b"OggS" + b"\xff" * 500,
    "caf_magic.caf": b"caff" + b"\xff" * 500,
    "aiff_magic.aiff": b"FORM" + b"\xff" * 500,
    "au_magic.au": b".snd" + b"\xff" * 500,
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_file_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(BROKEN[name])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(AudioError) as caught:
        read_audio(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB
    with pytest.raises(AudioError):
        read_audio(BROKEN[name])


def test_hours_of_packed_silence_are_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "bomb.flac"
    with soundfile.SoundFile(path, "w", 8000, 1, format="FLAC") as file:
        for _ in range(60):
            file.write(np.zeros(8000 * 60, dtype=np.int16))
    with pytest.raises(AudioError, match=r"bomb.flac: 3,600 s long, at most 600 s"):
        read_audio(path, limits=AudioLimits(seconds=600))
    with pytest.raises(AudioError, match="at most 1,000 are read"):
        read_audio(path, limits=AudioLimits(bytes=1000))


@pytest.mark.parametrize(
    "source",
    ["/nonexistent/a.wav", "https://example.org/a.wav", "a\0b.wav", "data:,abc", "data:;base64,@@", "/"],
)
def test_what_is_no_file_is_named(source: str) -> None:
    with pytest.raises(AudioError):
        read_audio(source)


@pytest.mark.parametrize(
    "call",
    [
        lambda: read_audio(TONE),
        lambda: read_audio(TONE, True),
        lambda: read_audio(np.zeros(0, dtype=np.float32), 8000),
        lambda: read_audio(np.zeros((2, 8000), dtype=np.float32), 8000),
        lambda: read_audio(np.array(["a"]), 8000),
        lambda: read_audio([[1.0], [1.0, 2.0]], 8000),
    ],
)
def test_wrong_samples(call: Callable[[], object]) -> None:
    with pytest.raises(AudioError):
        call()


@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3"])
@pytest.mark.parametrize(("rate", "channels"), [(8000, 1), (16000, 2), (44100, 8), (48000, 1)])
def test_formats_rates_channels(form: str, rate: int, channels: int, tmp_path: Path) -> None:
    if form == "MP3" and channels > 2:
        pytest.skip("MP3 has two channels at most")
    tone = (0.3 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)).astype(np.float32)
    path = tmp_path / "tone.txt"  # the extension does not matter
    path.write_bytes(encode(np.repeat(tone[:, None], channels, axis=1), rate, form))
    audio = read_audio(path)
    assert audio.samples.dtype == np.float32
    assert (audio.source_rate, audio.channels) == (rate, channels)
    assert abs(audio.seconds - 1) < 0.1
    spectrum = np.abs(np.fft.rfft(audio.samples[4000:12000]))
    assert abs(int(spectrum.argmax()) * 2 - 440) <= 4
    assert np.abs(audio.samples[4000:12000]).max() == pytest.approx(0.3, abs=0.05)


def test_ways_in_agree(tmp_path: Path) -> None:
    path = tmp_path / "tone.wav"
    path.write_bytes(WAV)
    text = "data:audio/wav;base64," + base64.b64encode(WAV).decode()
    expected = read_audio(path).samples
    for source in (str(path), WAV, text, base64.b64encode(WAV).decode()):
        np.testing.assert_array_equal(read_audio(source).samples, expected)
    integers = (TONE * 32768).astype(np.int16)
    np.testing.assert_allclose(read_audio(integers, 8000).samples, expected, atol=1e-4)
