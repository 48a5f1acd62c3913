"""The chain against all sequences written out, in float64."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from multihead.models import ClassifierReadout
from multihead.models.crf import CRFReadout, crf_nll, log_partition, path_score


def case(seed: int, lengths: list[int], classes: int) -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return 3 * torch.randn(*shape, generator=draw, dtype=torch.float64)

    rows, longest = len(lengths), max(*lengths, 1)
    tags = torch.randint(0, classes, (rows, longest), generator=draw)
    return (
        normal(rows, longest, classes), tags, torch.tensor(lengths),
        normal(rows, classes), normal(rows, classes), normal(classes, classes),
    )  # fmt: skip


def by_hand(emissions: Tensor, tags: list[int], start: Tensor, end: Tensor, step: Tensor) -> float:
    total = start[tags[0]] + end[tags[-1]] + sum(emissions[t, y] for t, y in enumerate(tags))
    return float(total + sum(step[a, b] for a, b in pairwise(tags)))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 5), min_size=2, max_size=4), st.integers(1, 4))
def test_every_sequence_written_out(seed: int, lengths: list[int], classes: int) -> None:
    emissions, tags, sizes, start, end, step = case(seed, lengths, classes)
    lost = crf_nll(emissions, tags, sizes, start, end, step)
    for row, n in enumerate(lengths):
        if not n:
            assert lost[row] == 0
            continue
        ends = start[row], end[row], step
        scores = [by_hand(emissions[row], list(path), *ends) for path in product(range(classes), repeat=n)]
        mine = by_hand(emissions[row], tags[row, :n].tolist(), *ends)
        total = float(torch.logsumexp(torch.tensor(scores, dtype=torch.float64), 0))
        assert float(lost[row]) == pytest.approx(total - mine, rel=1e-10, abs=1e-10)
    assert (lost >= -1e-9).all()


def test_gradients() -> None:
    emissions, tags, sizes, start, end, step = case(0, [4, 1, 3, 0], 3)
    leaves = tuple(x.requires_grad_() for x in (emissions, start, end, step))
    assert torch.autograd.gradcheck(lambda e, a, b, s: crf_nll(e, tags, sizes, a, b, s), leaves)
    crf_nll(emissions, tags, sizes, start, end, step).sum().backward()
    assert emissions.grad is not None
    assert emissions.grad[1, 1:].abs().max() == 0  # behind the end nothing matters
    assert emissions.grad[3].abs().max() == 0
    # log Z's gradient are the chances of the tags, so each word's sum to 1, and the score's take 1 away.
    assert emissions.grad[0].sum(1).abs().max() < 1e-12


def test_forbidden_moves_stay_finite() -> None:
    emissions, _, sizes, start, end, step = (x.float() if x.is_floating_point() else x for x in case(1, [5, 2], 3))
    start, step = start.clone(), step.clone()
    start[:, 2] = step[0, 2] = -1e6
    leaves = [x.requires_grad_() for x in (emissions, start, end, step)]
    tags = torch.tensor([[0, 1, 2, 2, 0], [1, 2, 0, 0, 0]])
    lost = crf_nll(emissions, tags, sizes, *leaves[1:])
    lost.sum().backward()
    assert lost.max() < 100
    assert all(leaf.grad is not None and leaf.grad.isfinite().all() for leaf in leaves)
    assert leaves[3].grad is not None
    assert leaves[3].grad[0, 2] == 0


def test_half_precision_is_summed_in_float32() -> None:
    emissions, tags, sizes, start, end, step = case(2, [5, 3], 4)
    want = crf_nll(emissions.bfloat16().double(), tags, sizes, start, end, step)
    got = crf_nll(emissions.bfloat16(), tags, sizes, start.float(), end.float(), step.float())
    assert got.dtype == torch.float32
    assert torch.allclose(got.double(), want, rtol=1e-4, atol=1e-4)


def test_score_and_total_are_the_parts_of_it() -> None:
    emissions, tags, sizes, start, end, step = case(3, [4, 2], 3)
    both = log_partition(emissions, sizes, start, end, step) - path_score(emissions, tags, sizes, start, end, step)
    assert torch.equal(both, crf_nll(emissions, tags, sizes, start, end, step))


def test_on_a_readout_that_is_there() -> None:
    plain = ClassifierReadout(6, 4)
    chain = CRFReadout.from_classifier(plain)
    hidden = torch.randn(2, 3, 6)
    assert chain.scores is plain.scores
    assert torch.equal(chain.eval()(hidden), plain.eval()(hidden))
    assert {name for name, _ in chain.named_parameters()} == {
        "start", "end", "step", "scores.weight", "scores.bias",
    }  # fmt: skip
