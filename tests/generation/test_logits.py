"""The largest of many numbers, and draws that depend on their place alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from multihead.generation import GenerationConfig
from multihead.generation.logits import ENOUGH, CounterRNG, argmax, sample, topk

seeds = st.integers(0, 10_000)


@given(seeds, st.integers(1, 9), st.sampled_from([3, 1024, 1025, 1087, 1088, 2000]))
def test_likeliest_is_argmax(seed: int, rows: int, size: int) -> None:
    scores = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))
    scores[0, seed % size] = 9.0
    assert torch.equal(argmax(scores), scores.argmax(1))
    assert torch.equal(argmax(scores.round()), scores.round().argmax(1))  # the first of equals


@given(seeds, st.integers(1, 4), st.integers(1, 5), st.sampled_from([3, 255, 256, 257, 300, 700]), st.integers(1, 12))
def test_best_of_all_texts(seed: int, inputs: int, texts: int, size: int, k: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    scores, start = torch.randn(inputs, texts, size, generator=draw), torch.randn(inputs, texts, generator=draw)
    scores[0, -1, size - 1 - seed % min(size, 50)] = 9.0  # often behind the last whole block
    if texts > 1:
        start[:, 1] = float("-inf")
    k = min(k, texts * size)
    values, text, token = map(torch.from_numpy, topk(scores, start.numpy(), k))
    total = scores + start[..., None]
    assert torch.equal(values, total.flatten(1).topk(k).values)
    assert torch.equal(total[torch.arange(inputs)[:, None], text, token], values)
    finite = values[0] > float("-inf")
    pairs = list(zip(text[0][finite].tolist(), token[0][finite].tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)


def test_draws_depend_on_seed_row_and_place_only() -> None:
    whole = CounterRNG(7, range(5), 3)
    table = torch.stack([whole.at(place) for place in range(40)])  # [40, 15]
    assert len(set(table.flatten().tolist())) == 600
    alone = CounterRNG(7, [3], 3)
    assert torch.equal(alone.at(11), table[11, 9:12])
    whole.select_rows(torch.tensor([10, 2]))
    assert torch.equal(whole.at(20), table[20, [10, 2]])
    assert not torch.equal(CounterRNG(8, range(5), 3).at(0), table[0])
    assert CounterRNG(2**80 + 1, [-3], 1).at(2**40) < 1  # any whole number is a seed, a row, a place


def test_draws_are_even() -> None:
    numbers = torch.cat([CounterRNG(1, range(200), 2).at(place) for place in range(100)]).numpy()
    counts = np.histogram(numbers, bins=50, range=(0, 1))[0]
    assert ((counts - 800) ** 2 / 800).sum() < 100  # chi-squared, 49 degrees of freedom
    lagged = np.corrcoef(numbers[:-400], numbers[400:])[0, 1]  # the same texts one place on
    assert abs(lagged) < 0.02


def shares(logits: torch.Tensor, settings: GenerationConfig, count: int = 20_000) -> np.ndarray:
    at = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens = sample(logits.log_softmax(-1)[None].expand(count, -1), settings, at)
    return np.bincount(tokens.numpy(), minlength=len(logits)) / count


@pytest.mark.parametrize(
    "settings",
    [
        GenerationConfig(sample=True),
        GenerationConfig(sample=True, temperature=0.5),
        GenerationConfig(sample=True, top_k=3),
        GenerationConfig(sample=True, top_p=0.7),
        GenerationConfig(sample=True, min_p=0.2),
        GenerationConfig(sample=True, temperature=2.0, top_k=6, top_p=0.8, min_p=0.1),
    ],
)
def test_as_transformers_filters(settings: GenerationConfig) -> None:
    transformers = pytest.importorskip("transformers")
    logits = torch.randn(12, generator=torch.Generator().manual_seed(2)) * 2
    filters = transformers.LogitsProcessorList(
        [
            transformers.TemperatureLogitsWarper(settings.temperature),
            *([transformers.TopKLogitsWarper(settings.top_k)] if settings.top_k else []),
            transformers.TopPLogitsWarper(settings.top_p),
            transformers.MinPLogitsWarper(settings.min_p),
        ]
    )
    want = filters(torch.zeros(1, 1, dtype=torch.long), logits[None].clone())[0].softmax(-1).numpy()
    assert shares(logits, settings) == pytest.approx(want, abs=2e-4)


def test_flat_distributions_are_sorted_whole() -> None:
    """More candidates than the quick look holds: top_p and min_p must see them all."""
    logits = torch.zeros(3 * ENOUGH)
    logits[:5] = 1.0
    for settings in (GenerationConfig(sample=True, top_p=0.9), GenerationConfig(sample=True, min_p=0.3)):
        found = (shares(logits, settings) > 0).sum()
        assert found > 2.5 * ENOUGH
    assert (shares(logits, GenerationConfig(sample=True, min_p=0.5)) > 0).sum() == 5


def test_forbidden_tokens_are_never_drawn() -> None:
    logp = torch.full((4, 9), float("-inf"))
    logp[:, 5] = -3.0
    at = torch.tensor([0.0, 0.3, 0.6, 1 - 2**-53], dtype=torch.float64)
    for settings in (
        GenerationConfig(sample=True),
        GenerationConfig(sample=True, top_k=4),
        GenerationConfig(sample=True, top_p=0.5),
    ):
        assert sample(logp, settings, at).tolist() == [5] * 4
