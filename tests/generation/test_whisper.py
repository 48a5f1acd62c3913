"""Whisper's rules against transformers' own, its segments, and warping in time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor
from transformers.models.whisper.generation_whisper import _dynamic_time_warping, _median_filter

from multihead.audio.whisper import (
    WhisperTokens,
    group_tokens,
    mask_scores,
    median_filter,
    split_segments,
    warp_time,
)

TOKENS = WhisperTokens(
    start=11, end=10, no_timestamps=14, languages={"en": 12}, tasks={"transcribe": 13}, latest_start=3
)
V = 30


@given(st.lists(st.integers(0, V - 1), max_size=6), st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_rules_equal_transformers(line: list[int], seed: int) -> None:
    config = GenerationConfig(eos_token_id=10)
    config.no_timestamps_token_id, config.max_initial_timestamp_index = 14, 3
    scores = (torch.randn(1, V, generator=torch.Generator().manual_seed(seed)) * 3).log_softmax(-1)
    written = torch.tensor([line], dtype=torch.long)
    theirs = WhisperTimeStampLogitsProcessor(config, begin_index=0)(written, scores)
    torch.testing.assert_close(mask_scores(scores, written, TOKENS, True), theirs)


@given(st.integers(1, 8), st.integers(1, 12), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_warping_equals_transformers(T: int, S: int, seed: int) -> None:
    cost = np.random.default_rng(seed).normal(size=(T, S)).astype(np.float32).astype(np.float64)
    for ours, theirs in zip(warp_time(cost), _dynamic_time_warping(cost), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_median_equals_transformers() -> None:
    x = torch.randn(2, 3, 20, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(median_filter(x, 7), _median_filter(x[None], 7)[0])


def test_segments() -> None:
    first = TOKENS.first_time  # <|0.00|>
    segments, ahead = split_segments([first, 1, 2, first + 4, first + 4, 3, first + 9], TOKENS)
    assert [(s.start, s.end) for s in segments] == [(0.0, 0.08), (0.08, pytest.approx(0.18))]
    assert ahead == 3000
    segments, ahead = split_segments([first, 1, 2, first + 4, first + 4, 3], TOKENS)
    assert [(s.start, s.end) for s in segments] == [(0.0, 0.08)]
    assert ahead == 8  # the unfinished segment is read again
    segments, ahead = split_segments([first, 1, 2], TOKENS, 250)
    assert (segments[0].end, ahead) == (2.5, 250)


def test_prompt_and_words() -> None:
    assert TOKENS.prompt("en", timestamps=False) == [11, 12, 13, 14]
    with pytest.raises(ValueError, match="it knows: en"):
        TOKENS.prompt("xx")
    table = {1: " Hel", 2: "lo", 3: ",", 4: " you", 5: "."}
    decode = lambda tokens: "".join(table[t] for t in tokens)  # noqa: E731
    assert group_tokens([1, 2, 3, 4, 5], decode, "en") == [(" Hello,", [1, 2, 3]), (" you.", [4, 5])]
