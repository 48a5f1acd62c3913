"""MultiHeadAttention against a float64 reference written apart from it, on many random shapes, and against peers."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from multihead.attention import (
    Alibi,
    AttentionBias,
    LayerKVCache,
    Mask,
    MultiHeadAttention,
    RelativeBias,
    Rotary,
    attend_reference,
    choose_kernel,
)

FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
CASES = 520


class Kernels(TorchDispatchMode):
    """Counts calls of torch's flash kernel: which one ran is seen, not believed."""

    def __init__(self) -> None:
        super().__init__()
        self.flash = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.flash += func is FLASH
        return func(*args, **(kwargs or {}))


@dataclass
class AttentionCase:
    seed: int
    B: int = 2
    T: int = 3
    S: int = 3
    heads: int = 4
    kv_heads: int = 4
    dim: int = 20
    memory_dim: int = 20
    key_dim: object = None
    value_dim: object = None
    scale: object = None
    bias: object = True
    qk_norm: str | None = None
    position: str = "none"
    cross: bool = False
    cached: bool = False
    rules: list = field(default_factory=list)


def make(seed: int) -> AttentionCase:
    pick = random.Random(seed)
    heads = pick.choice([1, 2, 4, 6])
    case = AttentionCase(seed, B=pick.randint(1, 3), T=pick.randint(1, 9), heads=heads, dim=heads * pick.choice([4, 6]))
    case.kv_heads = pick.choice([g for g in (1, 2, heads) if heads % g == 0])
    if pick.random() < 0.6:
        case.key_dim, case.value_dim = pick.choice([2, 4, 6, 10]), pick.choice([None, 3, 4, 7, 10])
    elif pick.random() < 0.4:
        case.kv_heads = heads
        case.key_dim = [pick.choice([2, 4, 8]) for _ in range(heads)]
        case.value_dim = [pick.randint(1, 6) for _ in range(heads)]
    case.scale = pick.choice([None, None, 1.0, 0.3, "learned"])
    case.bias = pick.choice([True, False, "qv", "qkv"])
    case.cross = pick.random() < 0.3
    case.memory_dim = pick.choice([case.dim, 13]) if case.cross else case.dim
    case.S = pick.randint(1, 11) if case.cross else case.T
    if not isinstance(case.key_dim, list) and case.key_dim != 2:  # a norm over two columns keeps only a sign
        case.qk_norm = pick.choice([None, None, "rms", "layer"])
    if not case.cross:
        case.position = pick.choice(["none", "rotary", "alibi", "relative"])
        case.cached = pick.random() < 0.3
        if isinstance(case.key_dim, list) and case.position == "rotary":
            case.position = "none"
    rules = ["lengths", "keep2", "keep3", "keep4"] + ([] if case.cross else ["causal", "window", "segments", "prefix"])
    case.rules = [] if pick.random() < 0.2 else pick.sample(rules, pick.choice([1, 1, 2, 3]))
    if case.cached:
        case.rules = ["causal"] + [rule for rule in case.rules if rule in ("window",)]
    return case


def masks(case: AttentionCase) -> tuple[Mask | None, Tensor]:
    """The Mask, and the same in a table [B, H, T, S] made cell by cell."""
    gen = torch.Generator().manual_seed(case.seed)
    B, H, T, S = case.B, case.heads, case.T, case.S
    table = torch.ones(B, H, T, S, dtype=torch.bool)
    mask: Mask | None = None
    for rule in case.rules:
        lengths = torch.randint(0, S + 1, (B,), generator=gen)
        ids = torch.randint(0, 3, (B, S), generator=gen).sort(1).values
        tables = torch.rand(B, H, T, S, generator=gen) < 0.7
        new = {
            "causal": Mask.causal,
            "window": lambda: Mask.window(2),
            "lengths": lambda n=lengths: Mask.lengths(n),
            "prefix": lambda n=lengths: Mask.prefix(n),
            "segments": lambda i=ids: Mask.segments(i),
            "keep2": lambda t=tables: Mask.keep(t[:, 0, 0]),
            "keep3": lambda t=tables: Mask.keep(t[:, 0]),
            "keep4": lambda t=tables: Mask.keep(t),
        }[rule]()
        mask = new if mask is None else mask & new
        for b in range(B):
            for t in range(T):
                for s in range(S):
                    table[b, :, t, s] &= {
                        "causal": s <= t,
                        "window": abs(s - t) < 2,
                        "lengths": s < lengths[b],
                        "prefix": s <= t or s < lengths[b],
                        "segments": ids[b, min(t, S - 1)] == ids[b, s],
                        "keep2": tables[b, 0, 0, s],
                        "keep3": tables[b, 0, t, s],
                        "keep4": tables[b, :, t, s],
                    }[rule]
    return mask, table


def reference(module: MultiHeadAttention, x: Tensor, memory: Tensor | None, table: Tensor, position, given) -> Tensor:
    """The textbook, head by head, in the dtype of x (float64)."""
    source = x if memory is None else memory
    q_all, k_all, v_all = module.q(x), module.k(source), module.v(source)
    group = module.heads // module.kv_heads
    mixed, key_at, value_at, query_at = [], 0, 0, 0
    for head in range(module.heads):
        key_width, value_width = module.key_dims[head], module.value_dims[head]
        key_at, value_at = head // group * key_width, head // group * value_width
        if len(set(module.key_dims)) > 1 or len(set(module.value_dims)) > 1:
            key_at, value_at = sum(module.key_dims[:head]), sum(module.value_dims[:head])
        query_at = sum(module.key_dims[:head])
        q = module.q_norm(q_all[..., query_at : query_at + key_width])
        k = module.k_norm(k_all[..., key_at : key_at + key_width])
        v = v_all[..., value_at : value_at + value_width]
        scale = given if isinstance(given, float) else key_width**-0.5
        if given == "learned":
            scale = module.scale * module.head_scale[head, 0, 0]
        if isinstance(position, Rotary):
            q, k = rotated(q, position), rotated(k, position)
        scores = q @ k.transpose(1, 2) * scale
        T, S = scores.shape[1:]
        if isinstance(position, Alibi):
            slope = position.slopes[head].double()
            scores = scores - slope * (torch.arange(T)[:, None] - torch.arange(S)[None]).abs()
        if isinstance(position, RelativeBias):
            ahead = torch.arange(S)[None] - torch.arange(T)[:, None]
            scores = scores + position.table.weight[position.bucket(ahead), head]
        look = table[:, head]
        scores = scores.masked_fill(~look, -torch.inf)
        top = torch.where(look.any(-1, keepdim=True), scores.amax(-1, keepdim=True), 0.0)
        weights = (scores - top).exp()
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)
        mixed.append(weights @ v)
    return module.out(torch.cat(mixed, dim=-1))


def rotated(x: Tensor, rotary: Rotary) -> Tensor:
    """Column pairs as complex numbers, turned."""
    half = rotary.width // 2
    angle = torch.arange(x.shape[1])[:, None].double() * 10_000.0 ** (-torch.arange(half).double() * 2 / rotary.width)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), dim=-1)


def build(case: AttentionCase):
    torch.manual_seed(case.seed)
    module = MultiHeadAttention(
        case.dim,
        case.heads,
        kv_heads=case.kv_heads,
        key_dim=case.key_dim,
        value_dim=case.value_dim,
        memory_dim=case.memory_dim,
        bias=case.bias,
        scale=case.scale,
        qk_norm=case.qk_norm,
    )
    for parameter in module.parameters():  # biases and scales away from their starting values
        parameter.data += torch.randn_like(parameter) * 0.1
    position = {
        "none": lambda: None,
        "rotary": lambda: Rotary(module.key_dims[0]),
        "alibi": lambda: Alibi(case.heads),
        "relative": lambda: RelativeBias(case.heads, buckets=8, farthest=6),
    }[case.position]()
    x = torch.randn(case.B, case.T, case.dim)
    memory = torch.randn(case.B, case.S, case.memory_dim) if case.cross else None
    return module, position, x, memory


def off(a: Tensor, b: Tensor) -> float:
    """Largest difference relative to the largest value."""
    return float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1e-3))


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", range(CASES))
def test_output_and_gradients_equal_the_reference(seed, threads, monkeypatch):
    case = make(seed)
    module, position, x, memory = build(case)
    mask, table = masks(case)
    inputs = [x.clone().requires_grad_()] + ([memory.clone().requires_grad_()] if memory is not None else [])
    with Kernels() as ran:
        if case.cached:
            cache = LayerKVCache()
            steps = [module(inputs[0][:, t : t + 1], mask=mask, position=position, cache=cache) for t in range(case.T)]
            y = torch.cat(steps, dim=1)
        else:
            y = module(*inputs, mask=mask, position=position)
    learned = case.position == "relative"  # the one case without a fused gradient: the bias itself learns
    expected = "explicit" if learned else "fused"
    sight = AttentionBias(mask, case.T, case.S, x, position, crossing=case.cross)
    assert choose_kernel(sight) == expected
    if not case.cached:  # whose steps see less
        by_products = threads > 1 and not sight.by_rows and not sight.has_empty_rows
        assert (ran.flash > 0) == (expected == "fused" and not by_products), f"{case}: {expected} was to run"

    weight = torch.randn_like(y)
    gradients = torch.autograd.grad((y * weight).sum(), [*inputs, *module.parameters()], allow_unused=True)

    exact = module.double()
    exact_inputs = [i.detach().double().requires_grad_() for i in inputs]
    if position is not None:
        position = position.double()
    want = reference(exact, exact_inputs[0], exact_inputs[1] if case.cross else None, table, position, case.scale)
    want_gradients = torch.autograd.grad(
        (want * weight.double()).sum(), [*exact_inputs, *exact.parameters()], allow_unused=True
    )
    assert off(y, want) < 1e-5, case
    if not case.cached:
        monkeypatch.setattr(
            "multihead.attention.multihead.attend", lambda *given, need_lse, **how: attend_reference(*given, **how)
        )
        with torch.no_grad():
            # 1e-6, not 1e-12: the rotary table and the scales of ragged heads were made in float32
            assert off(exact(*exact_inputs, mask=mask, position=position), want) < 1e-6, case
    largest = max(float(g.abs().max()) for g in want_gradients if g is not None)
    for got, true in zip(gradients, want_gradients, strict=True):
        assert float((got - true).abs().max()) < 1e-5 * max(largest, 1e-3), case


def test_the_cases_cover_what_they_should():
    cases = [make(seed) for seed in range(CASES)]
    assert sum(c.cached for c in cases) > 50
    assert sum(c.cross for c in cases) > 100
    assert sum(isinstance(c.key_dim, list) for c in cases) > 40
    assert sum(c.kv_heads < c.heads for c in cases) > 100
    assert sum(c.key_dim != c.value_dim and c.value_dim is not None for c in cases) > 150
    for rule in ("causal", "window", "prefix", "lengths", "segments", "keep2", "keep3", "keep4"):
        assert sum(rule in c.rules for c in cases) > 30, rule
    for position in ("none", "rotary", "alibi", "relative"):
        assert sum(c.position == position for c in cases) > 60, position


@pytest.mark.parametrize("seed", range(500))
def test_equal_to_torch(seed):
    """Weights copied, polarity turned: torch's True means hide. Torch has one width per head and no groups."""
    pick = random.Random(seed)
    torch.manual_seed(seed)
    heads = pick.choice([1, 2, 3, 4])
    B, T, S, dim = pick.randint(1, 3), pick.randint(1, 6), pick.randint(1, 7), heads * pick.choice([2, 5, 6])
    ours, theirs = MultiHeadAttention(dim, heads), nn.MultiheadAttention(dim, heads, batch_first=True)
    for projection in (ours.q, ours.k, ours.v, ours.out):
        projection.bias.data.normal_()
    theirs.in_proj_weight.data = torch.cat([p.weight for p in (ours.q, ours.k, ours.v)]).detach().clone()
    theirs.in_proj_bias.data = torch.cat([p.bias for p in (ours.q, ours.k, ours.v)]).detach().clone()
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    crossing = pick.random() < 0.5
    S = S if crossing else T
    x, memory = (torch.randn(B, length, dim, requires_grad=True) for length in (T, S))
    source = memory if crossing else x
    keep = torch.rand(B, heads, T, S) < 0.7
    keep[..., 0] = True  # torch gives NaN to a query that sees nothing
    lengths = torch.randint(1, S + 1, (B,))
    pad = torch.arange(S)[None] >= lengths[:, None]
    ahead = torch.ones(T, S, dtype=torch.bool).triu(1)
    mask, hide = pick.choice(
        [
            (None, {}),
            (Mask.lengths(lengths), {"key_padding_mask": pad}),
            (Mask.keep(keep), {"attn_mask": ~keep.flatten(0, 1)}),
            (Mask.causal() & Mask.lengths(lengths), {"attn_mask": ahead, "key_padding_mask": pad}),
        ]
    )
    got = ours(x, memory if crossing else None, mask=mask)
    want = theirs(x, source, source, need_weights=bool(seed % 2), **hide)[0]
    assert off(got, want) < 1e-5
    weight = torch.randn_like(got)
    gradients = [torch.autograd.grad((y * weight).sum(), [x, source]) for y in (got, want)]
    assert off(*(torch.cat(pair, dim=1) for pair in gradients)) < 1e-5


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 1])  # with 2, that library groups every second head; ours are neighbours
def test_equal_to_x_transformers(causal, kv_heads, seed):
    peers = pytest.importorskip("x_transformers.x_transformers", reason="peer: pip install multihead[bench]")
    torch.manual_seed(seed)
    B, T = random.Random(seed).randint(1, 3), random.Random(seed).randint(1, 9)
    ours = MultiHeadAttention(20, 4, kv_heads=kv_heads, key_dim=6, value_dim=7, bias=False)
    theirs = peers.Attention(20, dim_head=6, value_dim_head=7, heads=4, kv_heads=kv_heads, causal=causal).eval()
    for projection, peer in (
        (ours.q, theirs.to_q),
        (ours.k, theirs.to_k),
        (ours.v, theirs.to_v),
        (ours.out, theirs.to_out),
    ):
        projection.weight.data.copy_(peer.weight)
    x = torch.randn(B, T, 20)
    keep = torch.arange(T)[None] < torch.randint(1, T + 1, (B, 1))
    mask = Mask.keep(keep) & Mask.causal() if causal else Mask.keep(keep)
    got, want = ours(x, mask=mask), theirs(x, mask=keep)
    want = want[0] if isinstance(want, tuple) else want
    assert off(got[keep], want[keep]) < 1e-5


@pytest.mark.parametrize("seed", range(130))
@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_equal_to_bert(kind, seed):
    bert = pytest.importorskip("transformers.models.bert.modeling_bert", reason="peer: pip install multihead[bench]")
    from transformers import BertConfig

    torch.manual_seed(seed)
    B, T = random.Random(seed).randint(1, 3), random.Random(seed).randint(1, 9)
    config = BertConfig(hidden_size=24, num_attention_heads=4, attn_implementation=kind)
    theirs = bert.BertSelfAttention(config).eval()
    ours = MultiHeadAttention(24, 4)
    for projection, peer in ((ours.q, theirs.query), (ours.k, theirs.key), (ours.v, theirs.value)):
        projection.load_state_dict(peer.state_dict())
    nn.init.eye_(ours.out.weight)
    x, keep = torch.randn(B, T, 24), torch.arange(T)[None] < torch.randint(1, T + 1, (B, 1))
    hide = torch.where(keep, 0.0, -math.inf)[:, None, None]
    assert off(ours(x, mask=Mask.keep(keep)), theirs(x, attention_mask=hide)[0]) < 1e-5


def test_every_mode_gives_the_same_numbers():
    torch.manual_seed(0)
    module, x, mask = MultiHeadAttention(24, 4, kv_heads=2), torch.randn(2, 7, 24), Mask.causal()
    base = module.train()(x, mask=mask)
    assert torch.equal(base, module.eval()(x, mask=mask))
    with torch.no_grad():
        assert torch.equal(base, module(x, mask=mask))
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True)
    for padded in (
        mask,
        mask & Mask.lengths([7, 3]),
        mask & Mask.segments(torch.arange(7).expand(2, -1) // 3),
    ):
        assert off(compiled(x, mask=padded), module(x, mask=padded)) < 1e-6


def test_dropout_is_on_the_weights_and_leaves_the_fused_kernel(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # on several, short texts leave it too
    torch.manual_seed(0)
    module, x = MultiHeadAttention(24, 4, dropout=0.5), torch.randn(2, 7, 24)
    with Kernels() as ran:
        dropped = module.train()(x)
    assert ran.flash == 0
    with Kernels() as ran:
        kept = module.eval()(x)
    assert ran.flash == 1
    assert off(dropped, kept) > 0.1
    mean = torch.stack([module.train()(x) for _ in range(2000)]).mean(0)
    assert off(mean, kept) < 0.1


def test_wrong_use_is_one_line_that_names_the_fix():
    module, x = MultiHeadAttention(24, 4), torch.randn(2, 5, 24)
    cache = LayerKVCache()
    module(x, cache=cache)
    wrong = {
        "Mask.keep": lambda: module(x, mask=torch.ones(2, 5, dtype=torch.bool)),
        r"takes \[batch, length, 24\]": lambda: module(torch.randn(2, 5, 20)),
        "memory is": lambda: module(x, torch.randn(2, 5, 20)),
        "change one of them": lambda: MultiHeadAttention(25, 4),
        "multiple of kv_heads": lambda: MultiHeadAttention(24, 4, kv_heads=3),
        "one width": lambda: MultiHeadAttention(24, 4, key_dim=[2, 3]),
        "share one width": lambda: MultiHeadAttention(24, 4, kv_heads=2, key_dim=[2, 3, 2, 3]),
        "same key width": lambda: MultiHeadAttention(24, 2, key_dim=[2, 3], qk_norm="rms"),
        "use a new KVCache": lambda: module(x[:1], cache=cache),
        "table.bool": lambda: Mask.keep(torch.ones(2, 5)),
        "one integer per example": lambda: Mask.lengths(torch.ones(2, 5)),
        "at least 1": lambda: Mask.window(0),
        "leave it out": lambda: module(x, x, position=Alibi(4)),
        "even width": lambda: Rotary(5),
        "linear, llama3 or yarn": lambda: Rotary(6, scaling={"kind": "wild"}),
    }
    for fix, use in wrong.items():
        with pytest.raises(ValueError, match=fix) as error:
            use()
        assert "\n" not in str(error.value)


def test_a_memory_of_other_rows_and_unknown_biases_are_refused():
    attention = MultiHeadAttention(dim=12, heads=3)
    with pytest.raises(ValueError, match="memory has 1 examples, x has 2"):
        attention(torch.randn(2, 5, 12), torch.randn(1, 7, 12))
    with pytest.raises(ValueError, match="letters of 'qkvo'"):
        MultiHeadAttention(dim=12, heads=3, bias="qx")
