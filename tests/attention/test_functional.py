"""The kernels beside each other: every small mask, long inputs by rows, which kernel is taken."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from multihead.attention import Alibi, AttentionBias, Mask, attend, attend_fused, attend_reference, choose_kernel
from multihead.kernels import dispatch as sharing
from multihead.kernels import flash_cpu
from multihead.kernels.short_attention import short_path_applies


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_all_masks_of_a_4x4_attention(kv_heads):
    """65,536 masks as one batch: finite, equal on both paths; who sees nothing gets zeros and gives no gradient."""
    torch.manual_seed(0)
    bits = (torch.arange(2**16)[:, None] >> torch.arange(16)) & 1
    table = bits.bool().view(-1, 4, 4)
    B, H, K = len(table), 2, 3
    inputs = [torch.randn(B, heads, 4, K, requires_grad=True) for heads in (H, kv_heads, kv_heads)]
    sight = AttentionBias(Mask.keep(table), 4, 4, inputs[0])
    results = {}
    for name, way in (("fused", attend_fused), ("explicit", attend_reference)):
        mixed, lse = way(*inputs, sight, scale=0.7)
        gradients = torch.autograd.grad((mixed * torch.arange(1.0, K + 1)).sum(), inputs)
        assert all(t.isfinite().all() for t in (mixed, lse, *gradients)), name
        results[name] = (mixed.detach(), lse, *gradients)
    for one, other in zip(results["fused"], results["explicit"], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    blind, unseen = ~table.any(2), ~table.any(1)  # queries that see nothing, keys that nobody sees
    assert blind.sum() == 4 * 2**12
    for result in results.values():
        mixed, lse, q_grad, k_grad, v_grad = result
        assert not mixed[blind[:, None].expand(-1, H, -1)].any()
        assert not lse[blind[:, None].expand(-1, H, -1)].any()
        assert not q_grad[blind[:, None].expand(-1, H, -1)].any()
        for gradient in (k_grad, v_grad):
            assert not gradient[unseen[:, None].expand(-1, kv_heads, -1)].any()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_tables_too_large_are_used_by_rows(monkeypatch, causal, bias):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, h, 150, 6, requires_grad=True) for h in (4, 2, 2))
    mask = Mask.segments(torch.arange(150).expand(2, -1) // 40)
    mask = mask & Mask.causal() if causal else mask
    position = Alibi(4) if bias else None
    whole = AttentionBias(mask, 150, 150, q, position)
    monkeypatch.setattr("multihead.attention.bias.LARGEST_TABLE", 1000)
    monkeypatch.setattr("multihead.attention.functional.LARGEST_TABLE", 1000)
    rows = AttentionBias(mask, 150, 150, q, position)
    assert rows.by_rows
    assert not whole.by_rows
    for sight in (whole, rows):
        mixed, lse = attend_fused(q, k, v, sight, scale=0.4)
        want, want_lse = attend_reference(q.double(), k.double(), v.double(), sight, scale=0.4)
        torch.testing.assert_close(mixed.double(), want, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(lse.double(), want_lse, rtol=1e-5, atol=2e-6)
        got = torch.autograd.grad(mixed.square().sum(), (q, k, v))
        true = torch.autograd.grad(want.square().sum(), (q, k, v))
        for one, other in zip(got, true, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_a_narrow_window_costs_its_width_not_the_length(causal):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 500, 4) for _ in range(3))
    mask = Mask.window(16) & Mask.causal() if causal else Mask.window(16)
    sight = AttentionBias(mask, 500, 500, q)
    assert sight.by_rows
    low, high = sight.span(64, 128)
    assert (low, high) == (49, 128 if causal else 143)
    torch.testing.assert_close(attend_fused(q, k, v, sight, scale=0.5), attend_reference(q, k, v, sight, scale=0.5))


def test_the_public_function_stands_in_where_the_kernel_is_missing(monkeypatch):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 5, 6), torch.randn(2, 2, 5, 6), torch.randn(2, 2, 5, 3)
    cases = [None, Mask.causal(), Mask.causal() & Mask.lengths([3, 0]), Mask.window(2)]
    expected = [attend(q, k, v, mask)[0] for mask in cases]
    monkeypatch.setattr(flash_cpu, "_FLASH", None)
    for mask, want in zip(cases, expected, strict=True):
        mixed, lse = attend(q, k, v, mask)
        assert lse is None
        torch.testing.assert_close(mixed, want)


def test_kernel_says_which_one_runs():
    from multihead.attention import RelativeBias

    q = torch.randn(1, 2, 3, 4)
    assert choose_kernel(AttentionBias(None, 3, 3, q)) == "fused"
    assert choose_kernel(AttentionBias(None, 3, 3, q), dropout=0.1) == "explicit"
    learned = AttentionBias(None, 3, 3, q, RelativeBias(2))
    assert choose_kernel(learned) == "explicit"
    with torch.no_grad():
        assert choose_kernel(learned) == "fused"


def test_attend_works_in_float64():
    q, k, v = (torch.randn(2, 3, 4, 5, dtype=torch.float64) for _ in range(3))
    mixed, _ = attend(q, k, v, Mask.causal())
    want = torch.softmax((q @ k.mT / 5**0.5).masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf), -1) @ v
    torch.testing.assert_close(mixed, want)


@pytest.mark.parametrize(("queries", "keys"), [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_look_at_or_nobody_who_looks(queries: int, keys: int) -> None:
    """torch's kernel would end the process."""
    q, k, v = torch.randn(2, 4, queries, 8), torch.randn(2, 2, keys, 8), torch.randn(2, 2, keys, 6)
    mixed, lse = attend(q, k, v)
    assert mixed.shape == (2, 4, queries, 6)
    assert lse.shape == (2, 4, queries)
    assert not mixed.any()


@pytest.mark.parametrize("case", ["bf16", "oneDNN"])
@pytest.mark.parametrize("mask", [None, Mask.causal() & Mask.lengths([5, 0]), Mask.window(2)])
def test_small_products_are_kept_from_onednn(monkeypatch, case, mask):
    """In half precision, and where oneDNN multiplies fp32, training takes the kernel in fp32 by the usual library."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if case == "bf16" else torch.float32
    q, k, v = (torch.randn(2, h, 5, w).to(dtype).requires_grad_() for h, w in ((4, 6), (2, 6), (2, 7)))
    products, matmul = [], SimpleNamespace(fp32_precision="none" if case == "bf16" else "bf16")
    for module in (flash_cpu, sharing):
        monkeypatch.setattr(module, "MATMUL", matmul)
    for name in ("_FLASH", "_BACKWARD"):
        op = getattr(flash_cpu, name)

        def told(*given, op=op, **options):
            products.append((given[0].dtype, matmul.fp32_precision))
            return op(*given, **options)

        monkeypatch.setattr(flash_cpu, name, told)
    mixed, lse = attend(q, k, v, mask)
    found = torch.autograd.grad(mixed.float().square().sum(), (q, k, v))
    assert matmul.fp32_precision == ("none" if case == "bf16" else "bf16")
    assert products == [(torch.float32, "ieee")] * 2
    assert mixed.dtype == dtype
    assert lse.dtype == torch.float32
    want, want_lse = attend_reference(
        *(x.double() for x in (q, k, v)), AttentionBias(mask, 5, 5, q.double()), scale=6**-0.5
    )
    true = torch.autograd.grad(want.square().sum(), (q, k, v))
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if case == "bf16" else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(lse.double(), want_lse, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mixed.double(), want, **tolerance)
    for one, other in zip(found, true, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), other.double(), **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mask", [None, Mask.causal(), Mask.lengths([3, 5]), Mask.causal() & Mask.lengths([3, 4])])
@pytest.mark.parametrize(("kv_heads", "width"), [(4, 6), (2, 9), (1, 3)])
def test_short_texts_by_products(monkeypatch, dtype, mask, kv_heads, width):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    torch.manual_seed(0)
    given = [torch.randn(2, h, 7, w, dtype=dtype) for h, w in ((4, 6), (kv_heads, 6), (kv_heads, width))]
    ours, exact = ([x.to(kind).requires_grad_() for x in given] for kind in (dtype, torch.float64))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        mixed, lse = attend(*ours, mask, scale=0.4, need_lse=False)
    want, _ = attend_reference(*exact, AttentionBias(mask, 7, 7, exact[0]), scale=0.4)
    assert lse is None
    assert mixed.dtype == dtype
    close = {torch.float32: 3e-6, torch.float64: 1e-12, torch.bfloat16: 3e-2}[dtype]
    torch.testing.assert_close(mixed.double(), want, rtol=close, atol=close)
    found = torch.autograd.grad(mixed.double().square().sum(), ours)
    true = torch.autograd.grad(want.square().sum(), exact)
    for one, other in zip(found, true, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2 * close, atol=2 * close * float(other.abs().max()))


def test_who_sees_nothing_is_left_to_the_kernel(monkeypatch):
    """A softmax over nothing is not a number."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    q, k, v = (torch.randn(2, 2, 4, 3) for _ in range(3))
    for mask in (Mask.lengths([0, 4]), Mask.causal() & Mask.keep(torch.tensor([[False, True, True, True]] * 2))):
        assert bool(attend(q, k, v, mask, need_lse=False)[0].isfinite().all())
        assert not short_path_applies(q, 4, AttentionBias(mask, 4, 4, q))
    assert short_path_applies(q, 4, AttentionBias(Mask.lengths([1, 4]), 4, 4, q))


def test_some_heads_have_a_sight_of_their_own(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    q, k, v = (torch.randn(1, 4, 5, 3) for _ in range(3))
    sight = AttentionBias(Mask.causal(), 5, 5, q, Alibi(4))
    whole, _ = attend(q, k, v, sight, need_lse=False)
    some, _ = attend(q[:, 2:], k[:, 2:], v[:, 2:], sight.select_heads((2, 3)), need_lse=False)
    torch.testing.assert_close(some, whole[:, 2:])


@pytest.mark.parametrize(
    ("k", "v"), [((1, 2, 5), (1, 2, 5)), ((2, 2, 5), (1, 2, 5)), ((2, 2, 5), (2, 2, 4)), ((2, 3, 5), (2, 3, 5))]
)
def test_shapes_that_do_not_fit_are_refused(k, v):
    """torch's kernel would read what lies behind them."""
    q = torch.randn(2, 4, 6, 8)
    with pytest.raises(ValueError, match="do not fit"):
        attend(q, torch.randn(*k, 8), torch.randn(*v, 8))
    with pytest.raises(ValueError, match="do not fit"):
        attend(q, torch.randn(2, 4, 5, 7), torch.randn(2, 4, 5, 8))
