"""Label smoothing and agreement: against their definitions, and against nothing at all."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from multihead.tasks.losses import class_loss, label_loss
from multihead.tasks.task import IGNORE

shapes = st.tuples(st.integers(1, 9), st.integers(2, 7), st.integers(0, 10**6))


def made(shape: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    N, C, seed = shape
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(C, (N,), generator=generator)
    labels[torch.rand(N, generator=generator) < 0.3] = IGNORE
    return torch.randn(N, C, generator=generator) * 3, labels, torch.rand(C, generator=generator) + 0.5


@given(shapes, st.booleans())
def test_without_smoothing_the_bits_are_the_plain_loss(shape, weighted):
    logits, labels, weight = made(shape)
    given_weight = weight if weighted else None
    plain = F.cross_entropy(logits, labels, weight=given_weight, ignore_index=IGNORE, reduction="sum")
    assert torch.equal(class_loss(logits, labels, 0.0, given_weight), plain)


@given(shapes, st.floats(0.0, 0.9), st.booleans())
def test_smoothing_spreads_a_share_over_all_classes(shape, smoothing, weighted):
    """The definition, in float64: cross-entropy with (1 - s) of the label and s / C of each class."""
    logits, labels, weight = (x.double() if x.is_floating_point() else x for x in made(shape))
    C = logits.shape[1]
    weight = weight if weighted else torch.ones(C, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for row, label in zip(logits.log_softmax(-1), labels.tolist(), strict=True):
        if label != IGNORE:
            target = torch.full((C,), smoothing / C, dtype=torch.float64)
            target[label] += 1 - smoothing
            total -= (target * weight * row).sum()
    have = class_loss(logits, labels, smoothing, weight if weighted else None)
    assert torch.allclose(have, total, rtol=1e-10, atol=1e-10)


@given(shapes, st.floats(0.0, 0.9))
def test_as_torch_has_it_and_a_sum_over_parts(shape, smoothing):
    logits, labels, _ = made(shape)
    whole = class_loss(logits, labels, smoothing)
    count = int((labels != IGNORE).sum())
    if count:
        mean = F.cross_entropy(logits, labels, ignore_index=IGNORE, label_smoothing=smoothing)
        assert torch.allclose(whole / count, mean, rtol=1e-5)
    parts = sum(class_loss(a, b, smoothing) for a, b in zip(logits.split(2), labels.split(2), strict=True))
    assert torch.allclose(whole, parts, rtol=1e-5, atol=1e-6)


@given(shapes, st.floats(0.1, 5.0))
def test_two_readings_are_pulled_together_by_both_divergences(shape, agree):
    logits, labels, _ = made(shape)
    both, twice = torch.cat((logits, logits + logits.flip(0))), torch.cat((labels, labels))
    found = class_loss(both.double(), twice, 0.1, rdrop=agree) - class_loss(both.double(), twice, 0.1)
    p, q = both[twice != IGNORE].double().log_softmax(-1).chunk(2)
    want = sum(F.kl_div(a, b, reduction="sum", log_target=True) for a, b in ((p, q), (q, p)))
    assert torch.allclose(found, agree / 2 * want, atol=1e-10)
    binary = (labels[:, None] == torch.arange(logits.shape[1])).float()
    found = label_loss(both.double(), torch.cat((binary, binary)), rdrop=agree)
    found = found - label_loss(both.double(), torch.cat((binary, binary)))
    p, q = (F.logsigmoid(torch.stack((z, -z))) for z in both.double().chunk(2))
    want = sum(F.kl_div(a, b, reduction="sum", log_target=True) for a, b in ((p, q), (q, p)))
    assert torch.allclose(found, agree / 2 * want, atol=1e-10)


def test_nothing_to_learn_from_is_zero_and_not_nan():
    labels = torch.full((3,), IGNORE)
    assert class_loss(torch.randn(3, 4), labels, 0.1) == 0


@given(shapes, st.floats(0.0, 0.9))
def test_many_labels(shape, smoothing):
    logits, _, _ = made(shape)
    labels = (logits.roll(1, 0) > 0).float()
    chances = logits.double().sigmoid().clamp(1e-12, 1 - 1e-12)
    soft = labels.double() * (1 - smoothing) + smoothing / 2
    want = -(soft * chances.log() + (1 - soft) * (1 - chances).log()).sum()
    assert torch.allclose(label_loss(logits, labels, smoothing).double(), want, rtol=1e-5, atol=1e-6)  # of fp32
    plain = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    assert torch.equal(label_loss(logits, labels), plain)


def test_half_precision_is_summed_in_whole():
    logits = torch.zeros(4000, 2, dtype=torch.bfloat16)
    assert abs(float(class_loss(logits, torch.zeros(4000, dtype=torch.long))) - 4000 * 0.6931472) < 1
