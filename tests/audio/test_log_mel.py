"""Spectrograms against transformers'; SpecAugment; windows; manifests."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from transformers import WhisperFeatureExtractor

from multihead.audio import RATE, AudioError
from multihead.audio.log_mel import log_mel, whisper_log_mel
from multihead.audio.sources import read_speech
from multihead.audio.spec_augment import SpecAugment
from multihead.audio.windows import Window, find_silence, merge_windows, split_windows


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("count", [1, 100, 399, 16_000, 479_990, 480_000, 700_000])
def test_equals_whisper(mels: int, count: int) -> None:
    samples = np.random.default_rng(count).normal(size=count).astype(np.float32) * 0.1
    theirs = WhisperFeatureExtractor(feature_size=mels)(samples, sampling_rate=RATE, return_tensors="pt")
    ours = whisper_log_mel(torch.from_numpy(samples), mels)
    torch.testing.assert_close(ours, theirs.input_features[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("count", [0, 1, 511, 512, 5000])
def test_plain_log_mel_is_finite(count: int) -> None:
    features = log_mel(torch.zeros(count), 40)
    assert features.isfinite().all()
    noise = log_mel(torch.randn(16_000, generator=torch.Generator().manual_seed(0)), 40)
    assert noise.shape == (40, 100)
    torch.testing.assert_close(noise.mean(dim=1), torch.zeros(40), atol=1e-5, rtol=0)


def test_spec_augment_is_a_function_of_its_generator() -> None:
    features = torch.randn(40, 100, generator=torch.Generator().manual_seed(0))
    policy = SpecAugment(1, 10, 1, 20)
    first, again = (policy(features, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, again)
    assert 0 < int((first != features).sum()) < 40 * 100
    long, short = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    policy(features, long)
    policy(features[:, :5], short)
    assert torch.equal(torch.rand(3, generator=long), torch.rand(3, generator=short))


@dataclass(frozen=True)
class Said:
    text: str
    start: float
    end: float


def test_windows_cut_in_silence_and_merge() -> None:
    noise = np.random.default_rng(0).normal(size=50 * RATE).astype(np.float32) * 0.1
    noise[25 * RATE : 26 * RATE] = 0
    assert [(p.start // RATE, p.stop // RATE) for p in find_silence(noise)] == [(25, 26)]
    windows = split_windows(noise)
    assert windows == [Window(0, int(25.5 * RATE)), Window(int(25.5 * RATE), 50 * RATE)]
    noise[25 * RATE : 26 * RATE] = noise[:RATE]
    windows = split_windows(noise)
    assert windows == [Window(0, 30 * RATE), Window(25 * RATE, 50 * RATE)]
    words = [[Said("a", 1, 2), Said("b", 26, 27), Said("c", 28.9, 29.9)], [Said("b", 1, 2), Said("c", 4, 5)]]
    assert merge_windows(windows, words) == [Said("a", 1, 2), Said("b", 26, 27), Said("c", 29, 30)]


def test_manifests(tmp_path: Path) -> None:
    for name in ("7_jackson_0.wav", "3_theo_12.wav"):
        soundfile.write(tmp_path / name, np.zeros(800), 8000)
    assert [(i.text, i.speaker, i.take) for i in read_speech(tmp_path)] == [
        ("three", "theo", 12),
        ("seven", "jackson", 0),
    ]
    manifest = tmp_path / "m.jsonl"
    manifest.write_text(
        '{"audio_filepath": "7_jackson_0.wav", "text": "seven"}\n{"text": 1}\n[]\nx\n{"audio": "no.wav", "text": ""}\n'
    )
    faults: list[str] = []
    assert [item.place for item in read_speech(manifest, faults)] == [f"{manifest}:1"]
    assert [fault.split(": ")[0] for fault in faults] == [f"{manifest}:{n}" for n in (2, 3, 4, 5)]
    with pytest.raises(AudioError, match=r"m.jsonl:2: no path"):
        list(read_speech(manifest))
    table = tmp_path / "m.csv"
    table.write_text("path,sentence,speaker\n7_jackson_0.wav,今天,anna\n")
    assert [(i.text, i.speaker, i.audio.name) for i in read_speech(table)] == [("今天", "anna", "7_jackson_0.wav")]
    libri = tmp_path / "84" / "1"
    libri.mkdir(parents=True)
    soundfile.write(libri / "84-1-0.flac", np.zeros(800), 8000)
    (libri / "84-1.trans.txt").write_text("84-1-0 GO DO YOU HEAR\n")
    assert [(i.text, i.speaker) for i in read_speech(tmp_path / "84")] == [("GO DO YOU HEAR", "84")]
