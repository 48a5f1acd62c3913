"""Log-mel spectrograms: Whisper's, equal to the original within 1e-4, and a plain one for models from scratch."""

from __future__ import annotations

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from multihead.audio.decode import RATE

WINDOW, HOP = 400, 160  # samples: 25 ms every 10 ms, as Whisper and most recognizers have them
CHUNK_SECONDS = 30  # what a Whisper encoder reads at once
FLOOR = 1e-10  # power below which Whisper hears nothing
RANGE = 8.0  # powers of ten under the loudest bin that Whisper keeps


def whisper_log_mel(samples: Tensor, mels: int = 80, *, seconds: int | None = CHUNK_SECONDS) -> Tensor:
    """Return Whisper's features [mels, frames] of 16 kHz samples [T].

    seconds: the recording is padded with silence or cut to this length (3,000 frames for 30); None: as it is.
    """
    total = len(samples) if seconds is None else seconds * RATE
    frames = total // HOP
    samples = samples[:total].float()
    # Frames that see nothing but padding are FLOOR exactly: only those that see samples are worked out.
    heard = F.pad(samples, (0, min(total - len(samples), 2 * WINDOW)))
    if len(heard) <= WINDOW // 2:  # reflection needs more samples than it mirrors
        heard = F.pad(heard, (0, WINDOW))
    power = _power(heard, WINDOW, WINDOW, HOP)[:, :frames]
    log = (mel_filters(mels, WINDOW) @ power).clamp_(min=FLOOR).log10_()
    log = F.pad(log, (0, frames - log.shape[1]), value=math.log10(FLOOR))
    floor = float(log.max()) - RANGE if frames else 0.0
    return (log.clamp_(min=floor) + 4.0) / 4.0


def log_mel(samples: Tensor, mels: int = 80, *, normalize: bool = True, fft: int = 512) -> Tensor:
    """Return features [mels, frames] of 16 kHz samples [T]: log power of 25 ms windows every 10 ms.

    normalize: every mel band has mean 0 over the recording, and all of them together deviation 1, which takes away
        the microphone and the loudness. One deviation for each band would blow up bands without sound: recordings of
        8 kHz have nothing above 4.
    """
    samples = samples.float()
    if len(samples) < fft:
        samples = F.pad(samples, (0, fft - len(samples)))
    power = mel_filters(mels, fft) @ _power(samples, fft, WINDOW, HOP)
    # What is 80 dB below the loudest bin is noise of the recording, not speech.
    features = power.clamp_(min=max(FLOOR, float(power.max()) * 10**-RANGE)).log_()
    if not normalize:
        return features
    features = features - features.mean(dim=1, keepdim=True)
    return features / (features.std(correction=0) + 1e-3)


def _power(samples: Tensor, fft: int, window: int, hop: int) -> Tensor:
    """[T] -> [fft / 2 + 1, T // hop]; the last frame is left out, as Whisper does."""
    spectrum = torch.stft(samples, fft, hop, window, _hann(window), center=True, return_complex=True)
    real = torch.view_as_real(spectrum[:, :-1])
    return real.square().sum(-1)


@cache
def _hann(window: int) -> Tensor:
    return torch.hann_window(window)


@cache
def mel_filters(mels: int, fft: int, rate: int = RATE) -> Tensor:
    """Return triangles [mels, fft / 2 + 1] of equal area, evenly spaced on Slaney's mel scale from 0 to rate / 2."""
    frequencies = torch.linspace(0, rate / 2, fft // 2 + 1, dtype=torch.float64)
    corners = _mel_to_hertz(torch.linspace(0, _hertz_to_mel(rate / 2), mels + 2, dtype=torch.float64))
    width = corners.diff()
    slopes = corners[:, None] - frequencies[None]
    rising, falling = -slopes[:-2] / width[:-1, None], slopes[2:] / width[1:, None]
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return (triangles * (2.0 / (corners[2:] - corners[:-2]))[:, None]).float()


# Slaney's scale: linear up to 1 kHz (15 mels), then logarithmic, 27 mels for each factor of 6.4.
_KNEE, _STEP, _LOG = 1000.0, 200.0 / 3, math.log(6.4) / 27


def _hertz_to_mel(hertz: float) -> float:
    return hertz / _STEP if hertz < _KNEE else _KNEE / _STEP + math.log(hertz / _KNEE) / _LOG


def _mel_to_hertz(mel: Tensor) -> Tensor:
    knee = _KNEE / _STEP
    return torch.where(mel < knee, mel * _STEP, _KNEE * torch.exp(_LOG * (mel - knee)))
