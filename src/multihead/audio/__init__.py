"""Sound: files to samples, spectrograms, windows, CTC and Whisper's rules. No model is opened here."""

from multihead.audio.decode import RATE, Audio, AudioError, AudioLimits, read_audio

__all__ = ["RATE", "Audio", "AudioError", "AudioLimits", "read_audio"]
