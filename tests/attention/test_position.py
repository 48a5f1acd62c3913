from __future__ import annotations

import pytest
import torch

from multihead.attention import Alibi, RelativeBias, Rotary


def test_rotary_scores_depend_on_the_distance_alone():
    rotary, q, k = Rotary(8), torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    scores = [float((rotary.rotate(q, 5 + at) * rotary.rotate(k, at)).sum()) for at in (0, 3, 1000, 5000)]
    assert max(scores) - min(scores) < 2e-3 * max(1.0, abs(scores[0]))


def test_rotary_beyond_its_table_and_columns():
    short, long = Rotary(4, length=8), Rotary(4, length=64)
    x = torch.randn(2, 3, 20, 6)
    torch.testing.assert_close(short.rotate(x, 5), long.rotate(x, 5))
    assert torch.equal(long.rotate(x, 5)[..., 4:], x[..., 4:])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"kind": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        (
            {"kind": "llama3", "factor": 8.0, "low": 1.0, "high": 4.0, "original": 64},
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        ),
        (
            {"kind": "yarn", "factor": 4.0, "original": 64},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        ),
    ],
)
def test_scaling_equals_the_peer(ours, theirs):
    rope = pytest.importorskip("transformers.modeling_rope_utils", reason="peer: pip install multihead[bench]")
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        max_position_embeddings=256,
        rope_parameters={"rope_theta": 1e4, **theirs},
    )
    config.rope_parameters.setdefault("rope_theta", 1e4)
    frequency, gain = rope.ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, device="cpu")
    rotary = Rotary(16, 1e4, ours)
    torch.testing.assert_close(rotary.frequency, frequency)
    assert rotary.gain == pytest.approx(gain)


@pytest.mark.parametrize("heads", [1, 4, 6, 12])
def test_alibi_slopes_fall_by_a_constant_factor(heads):
    slopes = Alibi(heads).slopes
    assert len(slopes) == heads
    assert (slopes > 0).all()
    assert (slopes <= 1).all()
    assert len(set(slopes.tolist())) == heads
    if heads == 4:
        assert slopes.tolist() == [2**-2, 2**-4, 2**-6, 2**-8]


@pytest.mark.parametrize("both", [True, False])
def test_relative_buckets_equal_the_peer(both):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason="peer: pip install multihead[bench]")
    ahead = torch.arange(-300, 301)
    ours = RelativeBias(2, both_sides=both).bucket(ahead)
    theirs = t5.T5Attention._relative_position_bucket(ahead, bidirectional=both, num_buckets=32, max_distance=128)
    assert torch.equal(ours, theirs)


def test_far_places_are_the_same_in_half_precision() -> None:
    rotary, half = Rotary(16, length=32), Rotary(16, length=32).bfloat16()
    x = torch.randn(1, 2, 3, 16)
    torch.testing.assert_close(half.rotate(x, 5000), rotary.rotate(x, 5000))
    torch.testing.assert_close(half.rotate(x, 5), rotary.rotate(x, 5), atol=0.05, rtol=0.05)  # its table is in halves
