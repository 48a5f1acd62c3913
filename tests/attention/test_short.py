"""Self-attention of short texts in one go, beside the same module step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.products import WORKS
from torch import Tensor, nn

from multihead.attention import Alibi, Mask, MultiHeadAttention, Position, Rotary, Sight

B, T, D, H, K = 2, 5, 12, 4, 6
MASKS = [None, Mask.causal(), Mask.lengths([3, 5]), Mask.causal() & Mask.lengths([3, 5])]


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


def both(module: MultiHeadAttention, x: Tensor, mask: Mask | None, position: Position | None = None) -> list[Any]:
    """What it gives and the gradients of all that learns: in one go, and step by step."""
    found = []
    for whole in (True, False):
        module.taps = [] if whole else [lambda seen: seen.mixed]  # somebody looks on
        y = module(x, mask=Sight(mask, T, T, x, position), position=position)
        assert ("Whole" in type(y.grad_fn).__name__) == whole
        weighed = (y.float() if y.dtype == torch.bfloat16 else y) * torch.linspace(-1, 2, y.numel()).view_as(y)
        learns = [tensor for tensor in (x, *module.parameters()) if tensor.requires_grad]
        found.append((y, torch.autograd.grad(weighed.sum(), learns)))
    return found


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(MASKS),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([K, 7]),
    st.sampled_from(["", "qkvo", "qv"]),
    st.sampled_from(["none", "rotary", "alibi"]),
    st.sampled_from([None, 9]),
)
def test_in_one_go_as_step_by_step(
    mask: Mask | None, kv_heads: int, width: int, bias: str, position: str, out: int | None
) -> None:
    torch.manual_seed(0)
    module = MultiHeadAttention(D, H, kv_heads=kv_heads, key_dim=K, value_dim=width, bias=bias, out_dim=out).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(B, T, D, dtype=torch.double, requires_grad=True)
    (got, slopes), (want, true) = both(
        module, x, mask, {"none": None, "rotary": Rotary(4).double(), "alibi": Alibi(H).double()}[position]
    )
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(slopes, true, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(not WORKS.right, reason=f"bf16 here {WORKS.verdict}")
def test_in_halves() -> None:
    torch.manual_seed(0)
    module, x = MultiHeadAttention(D, H), torch.randn(B, T, D, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        (got, slopes), (want, true) = both(module, x, Mask.causal(), Rotary(2))
    assert got.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)
    for one, other in zip(slopes, true, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.03 * float(other.abs().max()))


def test_what_is_frozen_has_no_slope() -> None:
    module, x = MultiHeadAttention(D, H), torch.randn(B, T, D)
    module.k.weight.requires_grad_(False)
    module.out.bias.requires_grad_(False)
    y = module(x, mask=Sight(None, T, T, x))
    assert "Whole" in type(y.grad_fn).__name__
    y.sum().backward()
    found = {name for name, parameter in module.named_parameters() if parameter.grad is not None}
    assert found == {"q.weight", "q.bias", "k.bias", "v.weight", "v.bias", "out.weight"}


def test_who_looks_on_or_differs_goes_step_by_step() -> None:
    x = torch.randn(B, T, D, requires_grad=True)

    class Shifted(Position):
        def turn(self, x: Tensor, first: int, back: bool = False) -> Tensor:
            return x + 1

    def in_one_go(module: MultiHeadAttention, position: Position | None = None) -> bool:
        y = module(x, mask=Sight(None, T, T, x, position), position=position)
        return "Whole" in type(y.grad_fn).__name__

    assert in_one_go(MultiHeadAttention(D, H))
    assert not in_one_go(MultiHeadAttention(D, H), Shifted())  # nobody told how it is undone
    assert not in_one_go(MultiHeadAttention(D, H, scale="learned"))
    assert not in_one_go(MultiHeadAttention(D, H, qk_norm="rms"))
    assert not in_one_go(MultiHeadAttention(D, H, dropout=0.1))
    hooked = MultiHeadAttention(D, H)
    hooked.out.register_forward_pre_hook(lambda *_: None)
    assert not in_one_go(hooked)
    with torch.no_grad():
        assert MultiHeadAttention(D, H)(x, mask=Sight(None, T, T, x)).grad_fn is None
