"""A pruned model says what the ablated one says, and everything comes back."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import multihead as mh
from multihead.attention import KVCache, Mask
from multihead.attention.multihead import merge
from multihead.inference import Pipeline
from multihead.inspection import ablate, attentions, numbers, watch
from multihead.models import EncoderDecoder, LanguageModel, ModelConfig, TaskModel, TransformerBlock
from multihead.models.families import native_config
from multihead.pruning.compensation import Moments
from multihead.pruning.surgery import PruningPlan, apply_plan, configs, make_plan, plan_of_model, restore_parts

SMALL = ModelConfig(vocab=37, dim=24, layers=2, heads=4, max_length=64, dropout=0.0, inner=20)
KINDS = {
    "plain": {},
    "wide": {"key_dim": 5, "value_dim": 7},
    "learned scale": {"scale": "learned", "qk_norm": "rms"},
    "rotary": {"positions": "rotary", "norm_first": True},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative", "norm": "rms", "attention_bias": ""},
    "gated": {"gated": True, "inner_bias": False},
    "grouped": {"kv_heads": 2},
    "bare": {"attention_bias": "", "inner_bias": False},
}


def made(kind: str) -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(EncoderDecoder(replace(SMALL, **KINDS[kind])), torch.nn.Identity()).eval()  # type: ignore[arg-type]


def without(model: TaskModel, off: list[str], units: dict[str, tuple[int, ...]], call: Any) -> Tensor:
    """The whole model with heads and units silenced."""
    handles = []
    for block in model.modules():
        if isinstance(block, TransformerBlock) and block.address in units:
            on = torch.zeros(block.feed_forward.up.out_features)
            on[list(units[block.address])] = 1
            handles.append(block.feed_forward.down.register_forward_pre_hook(lambda m, x, on=on: (x[0] * on,)))
    with ablate(model, off), torch.no_grad():
        result: Tensor = call()
    for handle in handles:
        handle.remove()
    return result


def narrowed(model: TaskModel, data: st.DataObject, kind: str, plan: PruningPlan) -> PruningPlan:
    """The same cut, with some columns of the heads gone as well."""
    group, keys, values = 2 if kind == "grouped" else 1, {}, {}
    for name, a in attentions(model).items():
        left = plan.heads.get(name, numbers(model)[name])
        groups = len({n // group for n in left})
        for columns, width in ((keys, a.key_dims[0]), (values, a.value_dims[0])):
            if columns is keys and kind in ("rotary", "learned scale"):  # qk_norm
                continue
            size = data.draw(st.integers(1, width))
            if size < width:
                every = st.sets(st.integers(0, width - 1), min_size=size, max_size=size)
                columns[name] = tuple(tuple(sorted(data.draw(every))) for _ in range(groups))
    return replace(plan, keys=keys, values=values)


def silent(model: TaskModel, plan: PruningPlan) -> TaskModel:
    """The whole model with zeros in the columns that the plan takes out; heads and units stay."""
    blank = copy.deepcopy(model)
    for name, a in attentions(blank).items():
        size = a.heads // a.kv_heads
        left = plan.heads.get(name, numbers(model)[name])
        groups = sorted({n // size for n in left})
        with torch.no_grad():
            for columns, width, linear in ((plan.keys, a.key_dims[0], a.k), (plan.values, a.value_dims[0], a.v)):
                for at, group in enumerate(groups if name in columns else []):
                    gone = [group * width + c for c in range(width) if c not in columns[name][at]]
                    for parameter in linear.parameters():
                        parameter[gone] = 0
    return blank


@settings(max_examples=60)
@given(data=st.data(), kind=st.sampled_from(list(KINDS)), columns=st.booleans())
def test_pruned_is_ablated(data: st.DataObject, kind: str, columns: bool) -> None:
    model = made(kind)
    group = 2 if kind == "grouped" else 1
    off = []
    for name in numbers(model):
        gone = data.draw(st.sets(st.integers(0, 4 // group - 1), max_size=4 // group - 1))
        off += [f"{name}.{g * group + i}" for g in sorted(gone) for i in range(group)]
    units = {}
    for stack in ("encoder.0", "decoder.1"):
        stay = data.draw(st.sets(st.integers(0, 19), min_size=1))
        if len(stay) < 20:
            units[stack] = tuple(sorted(stay))
    source, target = torch.randint(0, 37, (2, 7)), torch.randint(0, 37, (2, 5))
    keep = torch.arange(7)[None] < torch.tensor([[7], [4]])
    call: Any = lambda m=model: m(source, target, keep)  # noqa: E731
    plan = make_plan(model, off, units)
    if columns:
        plan = narrowed(model, data, kind, plan)
    blank = silent(model, plan)
    want = without(blank, off, units, lambda: call(blank))
    smaller, removed = apply_plan(model, plan)
    with torch.no_grad():
        got = call(smaller)
        assert (got - want).abs().max() < 1e-5
        # Zeros in the places of what was cut out change nothing; the slices themselves change everything back.
        zeros = restore_parts(smaller, configs(model), plan, None)
        assert (call(zeros) - got).abs().max() < 1e-5
    back = restore_parts(smaller, configs(model), plan, removed)
    assert configs(back) == configs(model)
    for name, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    assert plan_of_model(configs(model), smaller).heads == plan.heads
    fewer = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in smaller.parameters())
    assert fewer == sum(slice_.numel() for slice_ in removed.values())
    assert (fewer > 0) == (plan != PruningPlan())


@pytest.mark.parametrize("kind", list(KINDS))
def test_what_goes_leaves_its_mean_behind(kind: str) -> None:
    """As if every head and unit that went gave the same always: its mean. Without biases, as if it gave nothing."""
    model = made(kind)
    off = [f"{name}.{n}" for name in numbers(model) for n in (0, 1)]
    units = {"encoder.0": tuple(range(5, 20)), "decoder.1": tuple(range(12))}
    means = {name: torch.randn(4, a.value_dims[0]) for name, a in attentions(model).items()}
    blocks = {m.address: m for m in model.modules() if isinstance(m, TransformerBlock)}
    means |= {name: torch.randn(20) for name in blocks}
    moments = {name: Moments(mean.flatten()) for name, mean in means.items()}
    source, target = torch.randint(0, 37, (2, 7)), torch.randint(0, 37, (2, 5))
    taps, hooks = {}, []
    for name, attention in attentions(model).items():

        def fixed(attended: Any, name: str = name, bias: bool = attention.out.bias is not None) -> Tensor:
            mixed = attended.mixed.clone()
            mixed[:, :2] = means[name][:2, None] if bias else 0
            return mixed

        taps[name] = fixed
        attention.taps.append(fixed)
    for name, stay in units.items():
        rest = [n for n in range(20) if n not in stay]
        down = blocks[name].feed_forward.down

        def hook(module: Any, inputs: Any, name: str = name, rest: list[int] = rest) -> Any:
            inner = inputs[0].clone()
            inner[..., rest] = means[name][rest] if module.bias is not None else 0
            return (inner,)

        hooks.append(down.register_forward_pre_hook(hook))
    with torch.no_grad():
        want = model(source, target)
    for name, attention in attentions(model).items():
        attention.taps.remove(taps[name])
    for hook_ in hooks:
        hook_.remove()
    smaller, _ = apply_plan(model, make_plan(model, off, units), moments)
    with torch.no_grad():
        assert (smaller(source, target) - want).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["plain", "gated", "bare"])
def test_what_is_left_takes_over(kind: str) -> None:
    """Where what goes is a sum of what stays, nothing is lost: twin units, a head that is the sum of two."""
    model = made(kind)
    block = model.body.encoder.stack.blocks[0]
    layer, attention = block.feed_forward, block.attention
    W = attention.value_dims[0]
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if not name.startswith("down"):
                parameter[10:] = parameter[:10]
        for part in (attention.q, attention.k):  # three heads that look alike; the third mixes the sum of the two
            part.weight[:] = part.weight[:W].repeat(4, 1)
            if part.bias is not None:
                part.bias[:] = part.bias[:W].repeat(4)
        attention.v.weight[2 * W : 3 * W] = attention.v.weight[:W] + attention.v.weight[W : 2 * W]
        if attention.v.bias is not None:
            attention.v.bias[2 * W : 3 * W] = attention.v.bias[:W] + attention.v.bias[W : 2 * W]
    heads, units = [], []

    def tap(attended: Any) -> Tensor:
        heads.append(merge(attended.mixed, attention.value_dims).flatten(0, 1))
        return attended.mixed

    attention.taps.append(tap)
    hook = layer.down.register_forward_pre_hook(lambda m, x: units.append(x[0].flatten(0, 1)))
    source, target = torch.randint(0, 37, (64, 7)), torch.randint(0, 37, (64, 5))
    with torch.no_grad():
        want = model(source, target)
    attention.taps.remove(tap)
    hook.remove()
    rows = {"encoder.0.self": torch.cat(heads).double(), "encoder.0": torch.cat(units).double()}
    moments = {name: Moments(x.mean(0), torch.cov(x.T, correction=0)) for name, x in rows.items()}
    plan = make_plan(model, ["encoder.0.self.2"], {"encoder.0": tuple(range(10))})
    with torch.no_grad():
        off = (apply_plan(model, plan)[0](source, target) - want).abs().mean()
        left = (apply_plan(model, plan, moments)[0](source, target) - want).abs().mean()
    assert left < 0.03 * off


@pytest.mark.parametrize("kind", ["plain", "grouped", "alibi", "bare"])
def test_queries_ask_the_columns_that_are_left(kind: str) -> None:
    """Where one key column follows from the others, but for a number that is always the same, it can go for nothing."""
    model = made(kind)
    attention = model.body.encoder.stack.blocks[1].attention
    K, keys = attention.key_dims[0], []
    with torch.no_grad():
        weight = attention.k.weight.view(attention.kv_heads, K, -1)
        weight[:, 2] = 0.5 * weight[:, 0] - 2 * weight[:, 5]
    hook = attention.k.register_forward_hook(lambda m, x, y: keys.append(y.flatten(0, 1)))
    source, target = torch.randint(0, 37, (64, 7)), torch.randint(0, 37, (64, 5))
    with torch.no_grad():
        want = model(source, target)
    hook.remove()
    rows = torch.cat(keys).double()
    blank = Moments(torch.zeros(24))
    moments = {"encoder.1.self": blank, "encoder.1.self.k": Moments(rows.mean(0), torch.cov(rows.T, correction=0))}
    left = tuple(n for n in range(K) if n != 2)
    plan = PruningPlan(keys={"encoder.1.self": (left,) * attention.kv_heads})
    with torch.no_grad():
        off = (apply_plan(model, plan)[0](source, target) - want).abs().mean()
        asked = (apply_plan(model, plan, moments)[0](source, target) - want).abs().mean()
    assert asked < 0.05 * off


def test_heads_keep_their_numbers(tmp_path: Path) -> None:
    model = made("plain")
    off = ["encoder.1.self.0", "encoder.1.self.2", "decoder.0.cross.1"]
    smaller, _ = apply_plan(model, make_plan(model, off))
    source, target = torch.randint(0, 37, (1, 6)), torch.randint(0, 37, (1, 5))
    with torch.no_grad(), watch(smaller) as seen:
        smaller(source, target)
    with torch.no_grad(), ablate(model, off), watch(model) as whole:
        model(source, target)
    assert seen.numbers["encoder.1.self"] == (1, 3)
    for address in ("encoder.1.self.3", "decoder.0.cross.2", "decoder.0.cross.0"):
        torch.testing.assert_close(seen[0].weights(address), whole[0].weights(address), atol=1e-5, rtol=0)
    assert "encoder.1.self.3" in seen.stats().addresses
    assert "encoder.1.self.2" not in seen.stats().addresses
    with pytest.raises(ValueError, match=r"'encoder.1.self.2'; it was pruned"):
        seen[0].weights("encoder.1.self.2")
    again, _ = apply_plan(smaller, make_plan(smaller, ["encoder.1.self.1", "encoder.0.self.3"]))
    with torch.no_grad(), ablate(model, [*off, "encoder.1.self.1", "encoder.0.self.3"]):
        want = model(source, target)
    assert (again(source, target) - want).abs().max() < 1e-5
    assert numbers(again)["encoder.1.self"] == (3,)


@pytest.mark.parametrize("kind", list(KINDS))
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    model = made(kind)
    off = ["encoder.0.self.2", "encoder.0.self.3", "decoder.1.cross.0", "decoder.1.cross.1"]
    plan = make_plan(model, off, {"encoder.1": (1, 4, 9), "decoder.0": tuple(range(16))})
    groups = len(numbers(model)["decoder.0.cross"]) // (2 if kind == "grouped" else 1)
    some = ((0, 2, 3),) * groups
    plan = replace(plan, values={"decoder.0.cross": some, "encoder.1.self": some})
    if kind not in ("rotary", "learned scale"):
        plan = replace(plan, keys={"decoder.1.self": some})
    smaller, _ = apply_plan(model, plan)
    mh.save(Pipeline(smaller, native_config(smaller)), tmp_path / "m")
    again = mh.load(tmp_path / "m").model
    source, target = torch.randint(0, 37, (2, 6)), torch.randint(0, 37, (2, 5))
    assert torch.equal(again(source, target), smaller(source, target))
    assert numbers(again) == numbers(smaller)
    assert again.body.encoder.config == smaller.body.encoder.config


@pytest.mark.parametrize("kind", ["plain", "alibi"])
def test_a_mask_for_every_head_speaks_of_the_heads_by_their_numbers(kind: str) -> None:
    """The table was taken whole where some heads were gone, and did not fit."""
    model = made(kind)
    off = ["encoder.0.self.1", "encoder.1.self.0", "encoder.1.self.3"]
    smaller, _ = apply_plan(model, make_plan(model, off))
    tokens = torch.randint(0, 37, (2, 7))
    mask = Mask.keep(torch.rand(2, 4, 7, 7) < 0.6)
    want = without(model, off, {}, lambda: model.body.encoder(tokens, mask=mask))
    with torch.no_grad(), watch(smaller.body.encoder) as seen:
        torch.testing.assert_close(smaller.body.encoder(tokens, mask=mask), want, rtol=1e-4, atol=1e-5)
    looked = seen[1].weights("encoder.1.self.2") > 0
    assert torch.equal(looked, mask.rules[0].table[1, 2])


def test_it_trains_and_decodes_with_a_cache() -> None:
    torch.manual_seed(0)
    model = LanguageModel(replace(SMALL, positions="alibi"))
    smaller, _ = apply_plan(model, make_plan(model, ["decoder.0.self.1", "decoder.1.self.0", "decoder.1.self.3"]))
    tokens = torch.randint(0, 37, (2, 9))
    optimizer = torch.optim.Adam(smaller.parameters(), 1e-2)
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(smaller(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    assert smaller.readout.weight is smaller.body.stem.embedding.weight
    smaller.eval()
    with torch.no_grad():
        whole, cache = smaller(tokens), KVCache()
        steps = [smaller(tokens[:, t : t + 1], cache=cache) for t in range(9)]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-4, atol=1e-5)
    assert (model(tokens) - smaller(tokens)).abs().max() > 0.1  # the parent was left alone


def test_what_cannot_be_cut_is_refused() -> None:
    model = made("grouped")
    with pytest.raises(ValueError, match=r"encoder.0.self would have no head left"):
        make_plan(model, [f"encoder.0.self.{n}" for n in range(4)])
    with pytest.raises(ValueError, match="shares its keys with 1 more heads"):
        make_plan(model, ["encoder.0.self.1"])
    with pytest.raises(ValueError, match=r"unknown head 'encoder.7.self.1'"):
        make_plan(model, ["encoder.7.self.1"])
    with watch(model), pytest.raises(ValueError, match="being watched"):
        apply_plan(model, PruningPlan())
    with pytest.raises(ValueError, match="kept heads"):
        replace(SMALL, kept_heads=((0, 9), (1,)))
    with pytest.raises(ValueError, match="has entries for 1 layers, the model has 2"):
        replace(SMALL, ffn_widths=(4,))
    with pytest.raises(ValueError, match="stay together"):
        replace(SMALL, kv_heads=2, kept_heads=((0, 1), (1, 2)))
    with pytest.raises(ValueError, match="use at least 1 and at most"):
        replace(SMALL, head_widths=((6, 6), (6, 7)))
    with pytest.raises(ValueError, match="rotary positions and qk_norm need all 6"):
        replace(SMALL, head_widths=((6, 6), (4, 6)), positions="rotary")
