"""What masks cost: decided from shapes and rules, never from values."""

from __future__ import annotations

import pytest
import torch

from multihead.attention import Alibi, AttentionBias, Mask

X = torch.randn(2, 5, 4)


@pytest.mark.parametrize(
    ("mask", "causal", "shape"),
    [
        (None, False, None),
        (Mask.causal(), True, None),
        (Mask.causal() & Mask.causal(), True, None),
        (Mask.lengths([5, 2]), False, (2, 1, 1, 5)),
        (Mask.causal() & Mask.lengths([5, 2]), True, (2, 1, 1, 5)),
        (Mask.keep(torch.ones(2, 5, dtype=torch.bool)) & Mask.causal(), True, (2, 1, 1, 5)),
        (Mask.segments(torch.zeros(2, 5, dtype=torch.long)), False, (2, 1, 5, 5)),
        (Mask.prefix([2, 3]), False, (2, 1, 5, 5)),
        (Mask.window(3), False, (1, 1, 5, 5)),
    ],
)
def test_lowering(mask, causal, shape):
    sight = AttentionBias(mask, 5, 5, X)
    assert sight.causal is causal
    assert (None if sight.add is None else tuple(sight.add.shape)) == shape


def test_one_step_of_decoding_needs_no_mask():
    assert AttentionBias(Mask.causal(), 1, 9, X).add is None
    several = AttentionBias(Mask.causal(), 3, 9, X)
    assert not several.causal
    assert several.add is not None
    assert (several.add[0, 0] == 0).sum(-1).tolist() == [7, 8, 9]


def test_a_long_causal_mask_is_never_built():
    sight = AttentionBias(Mask.causal() & Mask.lengths([16_384, 9]), 16_384, 16_384, X)
    assert sight.causal
    assert sight.add is not None
    assert sight.add.numel() == 2 * 16_384
    assert AttentionBias(Mask.causal(), 16_384, 16_384, X, Alibi(4)).by_rows


def test_rows_and_pairs_agree_with_the_whole():
    mask = Mask.causal() & Mask.segments(torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]]))
    sight = AttentionBias(mask, 5, 5, X, Alibi(4))
    assert sight.add is not None
    rows = sight.rows(1, 4, 0, 3)
    assert rows is not None
    assert torch.equal(rows, sight.add[:, :, 1:4, :3])
    t, s = torch.tensor([4, 2]), torch.tensor([3, 0])
    pairs = sight.pairs(t, s)
    assert pairs is not None
    assert torch.equal(pairs, sight.add[:, :, t, s])


def test_masks_say_what_they_are():
    assert repr(Mask.causal() & Mask.lengths([1])) == "Mask.causal() & Mask.lengths([1])"


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (Mask.keep(torch.ones(2, 9, dtype=torch.bool)), r"Mask.keep of shape \[2, 9\] has 9 keys, the input has 7"),
        (
            Mask.keep(torch.ones(2, 7, 7, dtype=torch.bool)),
            r"7 queries, the input has 5; use \[B, T, S\] = \[2, 5, 7\]",
        ),
        (Mask.keep(torch.ones(2, 4, 5, 7, dtype=torch.bool)), "has 4 heads, the input has 3"),
        (Mask.causal() & Mask.lengths([8, 2]), "Mask.lengths has a length of 8, the input has 7 keys"),
        (
            Mask.lengths([7, 2, 3]),
            r"Mask.lengths of shape \[3\] has 3 examples, the input has 2; use \[B\] = \[2\]",
        ),
        (Mask.prefix([1, 2, 3]), "Mask.prefix of shape .* 3 examples, the input has 2"),
        (Mask.segments(torch.zeros(2, 8, dtype=torch.long)), "Mask.segments of shape .* 8 keys, the input has 7"),
    ],
)
def test_a_mask_of_other_shapes_is_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        AttentionBias(mask, 5, 7, torch.randn(2, 3, 5, 4))


def test_one_row_or_head_stands_for_all_and_a_prefix_may_still_grow():
    q = torch.randn(2, 3, 5, 4)
    table = torch.ones(1, 1, 5, 7, dtype=torch.bool)
    for mask in (Mask.keep(table), Mask.keep(table[:, 0, 0]), Mask.lengths([7]), Mask.prefix([9, 2])):
        assert AttentionBias(mask, 5, 7, q).add is not None
