"""Whisper's conventions (Radford et al. 2022): its prompt, what may be written next, tokens of time, words and times.

Pure functions of tokens and tensors; `generation/whisper.py` runs the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

NEVER = float("-inf")
TICK = 0.02  # seconds between two tokens of time; also between two frames of the encoder
WINDOW_FRAMES = 3000  # of the spectrogram, 10 ms each: 30 seconds
MEDIAN_WIDTH = 7  # frames over which alignment heads are smoothed
SPACELESS = ("zh", "ja", "th", "lo", "my", "yue")  # written without spaces: words are characters
# Punctuation belongs to the word behind it, or before it.
OPENING, CLOSING = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"

Costs = NDArray[np.float64]


@dataclass(frozen=True)
class WhisperTokens:
    """The numbers of the control tokens, and what is never written; from generation_config.json."""

    start: int
    end: int
    no_timestamps: int
    languages: Mapping[str, int]  # "en" -> its token; empty: English only
    tasks: Mapping[str, int]
    suppress: tuple[int, ...] = ()
    suppress_first: tuple[int, ...] = ()
    latest_start: int | None = 50  # the first token of time is at most this many ticks
    alignment_heads: tuple[tuple[int, int], ...] = ()
    longest: int = 448  # tokens that the decoder has positions for, prompt included

    @property
    def first_time(self) -> int:
        """The token <|0.00|>; all behind it are times too."""
        return self.no_timestamps + 1

    @classmethod
    def from_config(cls, config: Mapping[str, Any], where: str = "generation_config.json") -> WhisperTokens:
        """Read generation_config.json, which is checked: it may come from anywhere."""

        def number(name: str, default: int | None = None) -> int:
            value = config.get(name, default)
            if type(value) is not int or not 0 <= value < 1 << 31:
                raise ValueError(f"{where}: {name} is {value!r}, the number of a token is wanted; not a Whisper's?")
            return value

        def numbers(name: str) -> tuple[int, ...]:
            values = config.get(name) or []
            if not isinstance(values, list) or not all(type(v) is int and 0 <= v < 1 << 31 for v in values):
                raise ValueError(f"{where}: {name} is no list of tokens; fetch the file again")
            return tuple(values)

        def table(name: str) -> dict[str, int]:
            values = config.get(name) or {}
            if not isinstance(values, dict) or not all(type(v) is int and v >= 0 for v in values.values()):
                raise ValueError(f"{where}: {name} is no table of tokens; fetch the file again")
            return {str(key).strip("<|>"): value for key, value in values.items()}

        heads = config.get("alignment_heads") or []
        if not isinstance(heads, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and all(type(v) is int and v >= 0 for v in pair) for pair in heads
        ):
            raise ValueError(f"{where}: alignment_heads are no pairs [layer, head]; fetch the file again")
        latest = config.get("max_initial_timestamp_index", 50)
        if latest is not None and (type(latest) is not int or latest < 0):
            raise ValueError(f"{where}: max_initial_timestamp_index is {latest!r}, a whole number is wanted")
        return cls(
            start=number("decoder_start_token_id"),
            end=number("eos_token_id"),
            no_timestamps=number("no_timestamps_token_id"),
            languages=table("lang_to_id"),
            tasks=table("task_to_id"),
            suppress=numbers("suppress_tokens"),
            suppress_first=numbers("begin_suppress_tokens"),
            latest_start=latest,
            alignment_heads=tuple((layer, head) for layer, head in heads),
            longest=number("max_length", 448),
        )

    def prompt(
        self,
        language: str | None = None,
        task: Literal["transcribe", "translate"] = "transcribe",
        timestamps: bool = True,
    ) -> list[int]:
        """Return the decoder's first tokens; a multilingual model wants a language."""
        tokens = [self.start]
        if self.languages:
            if language is None or language not in self.languages:
                known = ", ".join(sorted(self.languages))
                raise ValueError(f"language {language!r} is none of this model's; it knows: {known}")
            if task not in self.tasks:
                raise ValueError(f"task {task!r} is none of this model's; it knows: {', '.join(self.tasks)}")
            tokens += [self.languages[language], self.tasks[task]]
        elif language not in (None, "en") or task != "transcribe":
            raise ValueError(f"this model transcribes English alone, not language={language!r}, task={task!r}")
        return tokens if timestamps else [*tokens, self.no_timestamps]


def mask_scores(scores: Tensor, written: Tensor, tokens: WhisperTokens, timestamps: bool) -> Tensor:
    """Return scores [N, V] with -inf for tokens that may not follow `written` [N, t] (the prompt is not in it)."""
    scores = scores.clone()
    V = scores.shape[1]
    never = [token for token in tokens.suppress if token < V]
    scores[:, never] = NEVER
    if not written.shape[1]:
        scores[:, [token for token in tokens.suppress_first if token < V]] = NEVER
    return _mask_times(scores, written, tokens) if timestamps else scores


def _mask_times(scores: Tensor, written: Tensor, tokens: WhisperTokens) -> Tensor:
    """Times come in pairs (the end of a segment and the start of the next), never fall, and begin the text."""
    first = tokens.first_time
    scores[:, tokens.no_timestamps] = NEVER
    if not written.shape[1]:
        scores[:, :first] = NEVER
        if tokens.latest_start is not None:
            scores[:, first + tokens.latest_start + 1 :] = NEVER
    for row, line in enumerate(written.tolist()):
        times = [token for token in line if token >= first]
        last_is_time = bool(line) and line[-1] >= first
        pair = last_is_time and (len(line) < 2 or line[-2] >= first)
        if pair:  # text follows
            scores[row, first:] = NEVER
        elif last_is_time:  # the end of a segment: another time, or the end of all
            scores[row, : tokens.end] = NEVER
        if times:
            # The start of a segment may be the end of the one before; an end is later than its start.
            scores[row, first : times[-1] + (0 if last_is_time and not pair else 1)] = NEVER
    # Where all times together are likelier than every other token, it is a time.
    total = scores[:, first:].logsumexp(dim=1)
    likeliest = scores[:, :first].amax(dim=1)
    scores[:, :first].masked_fill_((total > likeliest)[:, None], NEVER)
    return scores


@dataclass(frozen=True)
class TokenSegment:
    """Tokens of a stretch of speech, times included; start and end in seconds of the window."""

    start: float
    end: float
    tokens: list[int]


def split_segments(
    written: Sequence[int], tokens: WhisperTokens, frames: int = WINDOW_FRAMES
) -> tuple[list[TokenSegment], int]:
    """Cut a window's text at its pairs of times; also return how many frames to go on by, as OpenAI's code does.

    written: the new tokens, without the end token.  frames: of the window that hold sound. Behind the last pair the
    text is unfinished, and the next window begins there; without a pair the whole window is one segment.
    """
    first = tokens.first_time
    is_time = [token >= first for token in written]
    cuts = [i + 1 for i in range(len(written) - 1) if is_time[i] and is_time[i + 1]]
    if not cuts:
        times = [token for token in written if token >= first and token != first]
        end = (times[-1] - first) * TICK if times else frames / 100
        return [TokenSegment(0.0, end, list(written))], frames
    ends_alone = is_time[-2:] == [False, True]  # a single time at the end: no speech behind it
    segments, last = [], 0
    for cut in [*cuts, len(written)] if ends_alone else cuts:
        part = list(written[last:cut])
        segments.append(TokenSegment((part[0] - first) * TICK, (part[-1] - first) * TICK, part))
        last = cut
    return segments, frames if ends_alone else (written[last - 1] - first) * 2


@dataclass(frozen=True)
class TimedWord:
    """A word and when it is said, in seconds."""

    text: str
    start: float
    end: float
    score: float = 1.0


def align_times(weights: Tensor) -> list[tuple[int, int]]:
    """Return the first and the last frame of each token.

    weights [heads, T, S]: what the alignment heads looked at, T tokens (the end token last) and S frames; rows of sum
    1. Every frame's weights are normalized over the tokens, smoothed by a median, averaged and warped (DTW).
    """
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, correction=0)
    smooth = median_filter((weights - mean) / deviation.clamp(min=1e-9), MEDIAN_WIDTH)
    rows, columns = warp_time(-smooth.mean(dim=0).double().cpu().numpy())
    jumps = np.flatnonzero(np.diff(rows, prepend=-1))
    starts = columns[jumps].tolist()
    return list(zip(starts, [*starts[1:], int(columns[-1])], strict=True))


def median_filter(x: Tensor, width: int) -> Tensor:
    """Median over `width` (odd) neighbours along the last axis, mirrored at the edges."""
    pad = width // 2
    if x.shape[-1] <= pad:
        return x
    padded = F.pad(x, (pad, pad), mode="reflect") if x.dim() > 2 else F.pad(x[None], (pad, pad), mode="reflect")[0]
    return padded.unfold(-1, width, 1).sort(dim=-1).values[..., pad]


def warp_time(cost: Costs) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the cheapest monotonic path through cost [T, S] as its rows and columns (dynamic time warping).

    All cells of an anti-diagonal are worked out at once: 40 times faster than cell by cell.
    """
    T, S = cost.shape
    total = np.full((T + 1, S + 1), np.inf)
    total[0, 0] = 0.0
    came = np.zeros((T + 1, S + 1), dtype=np.int8)  # 0: diagonally, 1: from the row above, 2: from the left
    for diagonal in range(2, T + S + 1):
        i = np.arange(max(1, diagonal - S), min(T, diagonal - 1) + 1)
        j = diagonal - i
        both, above, left = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        step = np.where((both < above) & (both < left), 0, np.where((above < both) & (above < left), 1, 2))
        total[i, j] = cost[i - 1, j - 1] + np.choose(step, (both, above, left))
        came[i, j] = step
    came[0, :], came[:, 0] = 2, 1
    rows, columns, i, j = [], [], T, S
    while i > 0 or j > 0:
        rows.append(i - 1)
        columns.append(j - 1)
        way = int(came[i, j])
        i, j = i - (way != 2), j - (way != 1)
    return np.array(rows[::-1]), np.array(columns[::-1])


def group_tokens(
    tokens: Sequence[int], decode: Callable[[list[int]], str], language: str | None
) -> list[tuple[str, list[int]]]:
    """Return the words of a text, each with its tokens: at spaces, or character by character where there are none."""
    pieces: list[tuple[str, list[int]]] = []
    pending: list[int] = []
    for token in tokens:
        pending.append(token)
        text = decode(pending)
        if "\ufffd" not in text:  # a character may be spread over several tokens
            pieces.append((text, pending))
            pending = []
    if pending:
        pieces.append((decode(pending), pending))
    if language not in SPACELESS:
        pieces = _join_subwords(pieces)
    return _join_punctuation(pieces)


def _join_subwords(pieces: Sequence[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    words: list[tuple[str, list[int]]] = []
    for text, tokens in pieces:
        punctuation = bool(text.strip()) and text.strip() in OPENING + CLOSING
        if not words or text.startswith(" ") or punctuation:
            words.append((text, tokens))
        else:
            words[-1] = (words[-1][0] + text, words[-1][1] + tokens)
    return words


def _join_punctuation(words: Sequence[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    joined: list[tuple[str, list[int]]] = []
    for text, tokens in words:
        before = joined[-1] if joined else None
        closes = bool(text.strip()) and text == text.strip() and all(sign in CLOSING for sign in text)
        opens = before is not None and before[0].startswith(" ") and before[0].strip() in [*OPENING]
        if before is not None and (closes or opens):
            joined[-1] = (before[0] + text, before[1] + tokens)
        else:
            joined.append((text, tokens))
    return [(text, tokens) for text, tokens in joined if text.strip()]
