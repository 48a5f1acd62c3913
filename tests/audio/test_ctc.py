"""CTC against brute force over all paths."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multihead.audio.ctc import align_tokens, collapse_path, ctc_loss, decode_greedy, needed_frames, search_prefixes


def all_texts(log_probs: torch.Tensor) -> dict[tuple[int, ...], float]:
    T, V = log_probs.shape
    table: dict[tuple[int, ...], float] = {}
    for path in product(range(V), repeat=T):
        text = tuple(collapse_path(path))
        table[text] = table.get(text, 0.0) + float(log_probs[range(T), list(path)].double().sum().exp())
    return table


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_search_equals_all_paths(seed: int, T: int, V: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_probs = (torch.randn(T, V, generator=generator, dtype=torch.float64) * 2).log_softmax(-1)
    table = all_texts(log_probs)
    found = search_prefixes(log_probs, beam=10_000, nbest=10_000)
    assert {tuple(h.tokens): pytest.approx(h.score, abs=1e-6) for h in found} == {
        text: math.log(p) for text, p in table.items()
    }
    assert found[0].score == max(h.score for h in found)
    text = found[0].tokens
    loss, count = ctc_loss(log_probs[None], torch.tensor([T]), [text])
    assert count == 1
    assert -float(loss) == pytest.approx(found[0].score, abs=1e-4)


@given(st.integers(0, 10_000), st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_alignment_is_the_best_path(seed: int, T: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(T, 3, generator=generator, dtype=torch.float64).log_softmax(-1)
    text = torch.randint(1, 3, (2,), generator=generator).tolist()
    if needed_frames(text) > T:
        with pytest.raises(ValueError, match="frames cannot hold"):
            align_tokens(log_probs, text)
        return
    paths = [path for path in product(range(3), repeat=T) if collapse_path(path) == text]
    best = max(paths, key=lambda path: float(log_probs[range(T), list(path)].sum()))
    frames = [token for span in align_tokens(log_probs, text) for token in range(span.start, span.stop)]
    assert frames == [i for i, token in enumerate(best) if token]


def test_greedy_respects_lengths() -> None:
    path = torch.tensor([[1, 1, 0, 1, 2, 2], [2, 0, 0, 0, 1, 1]])
    logits = torch.nn.functional.one_hot(path, 3).float()
    assert decode_greedy(logits, torch.tensor([6, 4])) == [[1, 1, 2], [2]]
