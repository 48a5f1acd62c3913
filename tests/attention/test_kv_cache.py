from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from multihead.attention import KVCache, LayerKVCache


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.booleans())
def test_what_goes_in_comes_out(steps, gradients):
    cache, keys, values = LayerKVCache(), [], []
    for step in steps:
        k, v = torch.randn(2, 3, step, 4, requires_grad=gradients), torch.randn(2, 3, step, 6)
        keys.append(k)
        values.append(v)
        got_k, got_v = cache.append(k, v)
        assert torch.equal(got_k, torch.cat(keys, 2))
        assert torch.equal(got_v, torch.cat(values, 2))
    assert cache.length == sum(steps)
    if gradients:
        got_k.sum().backward()
        assert all(torch.equal(k.grad, torch.ones_like(k)) for k in keys)


def test_beams_go_on_where_they_are_sent():
    cache = KVCache()
    k = torch.arange(3.0).view(3, 1, 1, 1).expand(3, 2, 4, 5)
    cache["decoder.0"].append(k, k)
    cache["decoder.0.cross"].project_once(lambda: (k, k))
    cache.select(torch.tensor([2, 2, 0, 1]))
    for name in ("decoder.0", "decoder.0.cross"):
        assert cache[name].k[:, 0, 0, 0].tolist() == [2, 2, 0, 1]
    more, _ = cache["decoder.0"].append(torch.zeros(4, 2, 1, 5), torch.zeros(4, 2, 1, 5))
    assert more.shape == (4, 2, 5, 5)
    assert cache.length == 5


def test_the_store_doubles_so_that_a_step_costs_what_it_adds():
    cache, stores = LayerKVCache(), set()
    for _ in range(1000):
        k, _ = cache.append(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
        stores.add(k.untyped_storage().data_ptr())
    assert len(stores) <= 11
