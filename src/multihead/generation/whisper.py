"""Transcription with a Whisper: language detection, windows of 30 seconds, segments and words with their times."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from multihead.attention import AttentionRecord
from multihead.audio.decode import RATE, Samples
from multihead.audio.log_mel import whisper_log_mel
from multihead.audio.whisper import (
    TICK,
    WINDOW_FRAMES,
    TimedWord,
    WhisperTokens,
    align_times,
    group_tokens,
    mask_scores,
    split_segments,
)
from multihead.generation.beam_search import BeamSearch
from multihead.generation.config import GenerationConfig, Hypothesis
from multihead.generation.constraints import LogitsConstraints
from multihead.generation.generate import make_stepper
from multihead.generation.incremental import Prompt
from multihead.generation.logits import CounterRNG
from multihead.generation.sampler import Sampler
from multihead.models import EncoderDecoder, TaskModel

Decode = Callable[[list[int]], str]


@dataclass(frozen=True)
class WhisperOptions:
    """How a recording is transcribed.

    temperatures: the first is tried; the next ones only where a text repeats itself (it compresses by more than
        `most_compression`) or the model is unsure (mean log p below `least_score`). 0 is greedy, or beam search.
    """

    language: str | None = None  # None: detected from the first window
    task: Literal["transcribe", "translate"] = "transcribe"
    timestamps: bool = True
    words: bool = False
    beam: int = 1
    temperatures: tuple[float, ...] = (0.0,)
    most_compression: float = 2.4
    least_score: float = -1.0
    seed: int = 0


@dataclass(frozen=True)
class Segment:
    start: float
    end: float
    text: str
    tokens: list[int]
    words: list[TimedWord] = field(default_factory=list)


@dataclass(frozen=True)
class Transcript:
    text: str
    language: str
    segments: list[Segment]
    tokens: list[int]  # of all windows, times included, without prompts and end tokens

    @property
    def words(self) -> list[TimedWord]:
        return [word for segment in self.segments for word in segment.words]


class WhisperRules(LogitsConstraints):
    """What a Whisper may write next; takes the place of the general rules in greedy search, beam search and draws."""

    def __init__(self, tokens: WhisperTokens, timestamps: bool) -> None:
        self.tokens, self.timestamps = tokens, timestamps
        self.looks_back, self.forbids = True, True

    def penalize(self, logits: Tensor, written: Tensor) -> Tensor:
        return logits

    def forbid(self, scores: Tensor, written: Tensor) -> Tensor:
        return mask_scores(scores, written, self.tokens, self.timestamps)

    def select_rows(self, rows: Tensor) -> None:
        """The rules are the same for every row."""


def encode_features(model: TaskModel, features: Tensor) -> Tensor:
    """features [B, mels, 3000] -> memory [B, 1500, D]"""
    body = model.body
    if not isinstance(body, EncoderDecoder):
        raise ValueError(f"{model.source}: a {type(body).__name__} is no Whisper; open an encoder-decoder")
    with torch.inference_mode():
        return body.encoder(features)


def detect_language(model: TaskModel, memory: Tensor, tokens: WhisperTokens) -> list[dict[str, float]]:
    """memory [B, S, D] -> for each recording the probability of every language; English-only models: {"en": 1}."""
    if not tokens.languages:
        return [{"en": 1.0}] * len(memory)
    body: Any = model.body
    with torch.inference_mode():
        start = torch.full((len(memory), 1), tokens.start, device=memory.device)
        logits = model.readout(body.decoder(start, memory=memory))[:, -1]
        shares = logits[:, list(tokens.languages.values())].float().softmax(dim=1)
    return [dict(zip(tokens.languages, row, strict=True)) for row in shares.tolist()]


def decode_memory(
    model: TaskModel,
    memory: Tensor,
    prompts: Sequence[Sequence[int]],
    tokens: WhisperTokens,
    options: WhisperOptions,
    temperature: float = 0.0,
) -> list[Hypothesis]:
    """Write the text of B windows at once, memory [B, S, D], prompts of one length; the end token is left out.

    Scores are the mean log p of a token.
    """
    limit = tokens.longest - len(prompts[0])
    rules, stop = WhisperRules(tokens, options.timestamps), {tokens.end}
    prompt = Prompt(model, torch.tensor(prompts, device=memory.device), memory=memory)
    limits = [limit] * len(memory)
    if temperature == 0.0 and options.beam > 1:
        settings = GenerationConfig(beam=options.beam)
        best = [several[0] for several in BeamSearch(make_stepper(prompt), rules, settings, limits, stop).run()]
        return [Hypothesis(_without(text, tokens.end), score) for text, score in best]
    settings = GenerationConfig(sample=True, temperature=temperature) if temperature else GenerationConfig()
    draws = CounterRNG(options.seed, range(len(memory)), 1) if temperature else None
    texts: list[list[int]] = [[] for _ in limits]
    sums = [0.0] * len(limits)
    for chosen in Sampler(make_stepper(prompt), rules, draws, settings).run(limits, stop):
        for row, token, score in zip(*chosen, strict=True):
            texts[row].append(token)
            sums[row] += score
    return [
        Hypothesis(_without(text, tokens.end), total / max(1, len(text)))
        for text, total in zip(texts, sums, strict=True)
    ]


def transcribe(
    model: TaskModel, samples: Samples, tokens: WhisperTokens, decode: Decode, options: WhisperOptions | None = None
) -> Transcript:
    """Transcribe a recording of any length.

    samples: 16 kHz mono.  decode: tokens -> text, special tokens left out (a tokenizer's).
    Longer ones than 30 seconds go window by window, each from the last time that the one before was sure of.
    """
    options = options or WhisperOptions()
    body: Any = model.body
    features, frames = read_features(samples, body.encoder.config.mels)
    language, seek = options.language, 0
    segments: list[Segment] = []
    everything: list[int] = []
    long = frames > WINDOW_FRAMES
    if long and not options.timestamps:
        raise ValueError("a recording of more than 30 seconds is cut by its times; set timestamps=True")
    while seek < frames:
        window = features[:, seek : seek + WINDOW_FRAMES]
        heard = min(WINDOW_FRAMES, frames - seek)
        memory = encode_features(model, F.pad(window, (0, WINDOW_FRAMES - window.shape[1]))[None])
        if language is None:
            shares = detect_language(model, memory, tokens)[0]
            language = max(shares, key=lambda code: shares[code])
        prompt = tokens.prompt(language if tokens.languages else None, options.task, options.timestamps)
        text = _decode_window(model, memory, prompt, tokens, decode, options)
        cut, ahead = split_segments(text, tokens, heard)
        # All words of a window at once: what one segment says is not looked for in the sound of another.
        written = [token for part in cut for token in part.tokens]
        words = _words(model, memory, written, tokens, decode, language, heard) if options.words else []
        offset = seek / 100
        for part in cut:
            count = len(group_tokens([t for t in part.tokens if t < tokens.end], decode, language)) if words else 0
            moved = [TimedWord(word.text, word.start + offset, word.end + offset, word.score) for word in words[:count]]
            words = words[count:]
            plain = [token for token in part.tokens if token < tokens.end]
            segments.append(Segment(part.start + offset, part.end + offset, decode(plain), part.tokens, moved))
            everything += part.tokens
        seek += ahead if ahead > 0 else heard
    segments = [segment for segment in segments if segment.text.strip()]
    return Transcript("".join(segment.text for segment in segments).strip(), language or "en", segments, everything)


def read_features(samples: Samples, mels: int) -> tuple[Tensor, int]:
    """Return the spectrogram [mels, frames] and how many frames hold sound: 30 seconds padded with silence, or all."""
    sound = torch.from_numpy(np.ascontiguousarray(samples))
    if len(samples) <= WINDOW_FRAMES * RATE // 100:
        return whisper_log_mel(sound, mels), max(1, -(-len(samples) * 100 // RATE))
    features = whisper_log_mel(sound, mels, seconds=None)
    return features, features.shape[1]


def _decode_window(
    model: TaskModel, memory: Tensor, prompt: list[int], tokens: WhisperTokens, decode: Decode, options: WhisperOptions
) -> list[int]:
    """The first temperature whose text neither repeats itself nor is unsure; the last one whatever it gives."""
    for temperature in options.temperatures[:-1]:
        text, score = decode_memory(model, memory, [prompt], tokens, options, temperature)[0]
        plain = decode([token for token in text if token < tokens.end]).encode()
        compression = len(plain) / max(1, len(zlib.compress(plain)))
        if compression <= options.most_compression and score >= options.least_score:
            return text
    return decode_memory(model, memory, [prompt], tokens, options, options.temperatures[-1])[0].tokens


def _words(
    model: TaskModel,
    memory: Tensor,
    written: Sequence[int],
    tokens: WhisperTokens,
    decode: Decode,
    language: str,
    heard: int,
) -> list[TimedWord]:
    """When each word is said: the text is read once more, and what the alignment heads look at is followed."""
    plain = [token for token in written if token < tokens.end]
    if not plain:
        return []
    prompt = tokens.prompt(language if tokens.languages else None, timestamps=False)
    row = torch.tensor([[*prompt, *plain, tokens.end]], device=memory.device)
    weights, logits = read_cross_attention(model, row, memory, tokens.alignment_heads)
    # The row of a token looks at what the next one says: the last of the prompt at the first word.
    times = align_times(weights[:, len(prompt) - 1 : -1, : max(1, heard // 2)])
    chances = logits[len(prompt) - 1 : -2].float().softmax(dim=1)
    words, place = [], 0
    for text, inside in group_tokens(plain, decode, language):
        place = _find(plain, inside, place)
        start, end = times[place][0], times[place + len(inside) - 1][1]
        score = float(chances[range(place, place + len(inside)), inside].mean())
        words.append(TimedWord(text, start * TICK, end * TICK, score))
        place += len(inside)
    return words


def _find(plain: Sequence[int], inside: Sequence[int], place: int) -> int:
    """Where a word's tokens stand: blank pieces before it belong to no word."""
    while list(plain[place : place + len(inside)]) != list(inside):
        place += 1
    return place


def read_cross_attention(
    model: TaskModel, tokens: Tensor, memory: Tensor, heads: Sequence[tuple[int, int]]
) -> tuple[Tensor, Tensor]:
    """tokens [1, T], memory [1, S, D] -> weights [heads, T, S] of these (layer, head), and the logits [T, V].

    Without heads: all of the upper half of the layers.
    """
    body: Any = model.body
    blocks: list[Any] = list(body.decoder.stack.blocks)
    if not heads:
        layers = range(len(blocks) // 2, len(blocks))
        heads = [(layer, head) for layer in layers for head in range(blocks[layer].cross.heads)]
    if any(layer >= len(blocks) or head >= blocks[layer].cross.heads for layer, head in heads):
        raise ValueError(f"{model.source}: alignment_heads {list(heads)} are not all heads of this model's decoder")
    seen: dict[int, Tensor] = {}

    def tap(layer: int) -> Callable[[AttentionRecord], Tensor]:
        def record(attended: AttentionRecord) -> Tensor:
            group = attended.q.shape[1] // attended.k.shape[1]
            keys = attended.k.repeat_interleave(group, dim=1)
            seen[layer] = torch.softmax(attended.q @ keys.transpose(-1, -2) * attended.scale, dim=-1)[0]
            return attended.mixed

        return record

    taps = {layer: tap(layer) for layer in {layer for layer, _ in heads}}
    for layer, record in taps.items():
        blocks[layer].cross.taps.append(record)
    try:
        with torch.inference_mode():
            logits = model.readout(body.decoder(tokens, memory=memory))[0]
    finally:
        for layer, record in taps.items():
            blocks[layer].cross.taps.remove(record)
    return torch.stack([seen[layer][head] for layer, head in heads]), logits


def _without(text: list[int], end: int) -> list[int]:
    return text[:-1] if text and text[-1] == end else text
