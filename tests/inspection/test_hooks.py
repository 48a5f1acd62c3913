"""watch and ablate on all bodies: exact, on demand, and without changing a bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from multihead.attention import KVCache, Mask, MultiHeadAttention
from multihead.inspection import ablate, watch
from multihead.kernels import flash_cpu
from multihead.models import Encoder, EncoderDecoder, LanguageModel, ModelConfig

SMALL = ModelConfig(vocab=37, dim=24, layers=2, heads=4, max_length=64, dropout=0.0, norm_first=True)
POSITIONS = ["none", "sinusoidal", "rotary", "alibi", "relative"]


def exact(attended, b: int, head: int):
    """The weights by float64 softmax, from what the attention was given."""
    q = attended.q[b, head].double()
    k = attended.k[b, head // (attended.q.shape[1] // attended.k.shape[1])].double()
    scores = q @ k.T * attended.scale
    add = attended.bias.table()
    if add is not None:
        scores = scores + add[b % len(add), head % add.shape[1]].double()
    return scores.softmax(-1)


def models(positions: str):
    config = replace(SMALL, positions=positions, kv_heads=2)
    yield "encoder", Encoder(config), lambda m, x, keep: m(x, keep)
    yield "decoder", LanguageModel(config), lambda m, x, keep: m(x, keep)
    yield "both", EncoderDecoder(config), lambda m, x, keep: m(x, x, keep, keep)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("positions", POSITIONS)
def test_weights_and_statistics_are_exact_on_all_bodies(positions, training):
    torch.manual_seed(0)
    tokens = torch.randint(0, 37, (3, 11))
    lengths = [11, 6, 9]
    keep = torch.arange(11)[None] < torch.tensor(lengths)[:, None]
    separators = [1, 2, 3, 4, 5, 6]
    for _, model, call in models(positions):
        for parameter in model.parameters():  # sharp heads: entropies from near 0 to near log 11
            parameter.data *= 1.7
        model.train(training)
        plain = call(model, tokens, keep)
        with watch(model) as seen:
            watched = call(model, tokens, keep)
            if training:
                watched.sum().backward()
        stats = seen.stats(separators, offset=True)
        assert torch.equal(watched, plain), "asking changed an output bit"
        assert len(seen) == 3
        for name, heads in seen.heads.items():
            crossing = name.endswith("cross")
            for head in range(heads):
                rows = []
                for b in range(3):
                    n = lengths[b]
                    want = exact(seen.passes[name][0], b, head)[:n, :n]
                    got = seen[b].weights(f"{name}.{head}")
                    assert got.shape == (n, n)
                    assert (got - want).abs().max() < 1e-5
                    some = seen[b].weights(f"{name}.{head}", rows=[n - 1, 0])
                    assert (some - want[[n - 1, 0]]).abs().max() < 1e-5
                    marked = torch.isin(tokens[b, :n], torch.tensor(separators)).double()
                    zero = torch.zeros(1)
                    rows.append(
                        torch.stack(
                            [
                                -(want * want.clamp(min=1e-300).log()).sum(-1),
                                want.diagonal(),
                                torch.cat((zero, want.diagonal(-1))),
                                torch.cat((want.diagonal(1), zero)),
                                want[:, 0],
                                want @ marked,
                                want @ torch.arange(n).double() - torch.arange(n),
                            ]
                        )
                    )
                means = torch.cat(rows, 1).mean(1)
                line = stats[f"{name}.{head}"]
                for column, mean in zip(line, means.tolist(), strict=True):
                    if crossing and column in ("self", "previous", "next"):
                        assert line[column] != line[column]
                    else:
                        assert line[column] == pytest.approx(mean, abs=1e-5), (name, head, column)


def test_tokens_come_without_padding():
    torch.manual_seed(0)
    model = EncoderDecoder(SMALL)
    source, target = torch.randint(0, 37, (2, 6)), torch.randint(0, 37, (2, 4))
    left = torch.tensor([[True] * 6, [False] * 2 + [True] * 4])
    with watch(model) as seen:
        model(source, target, left)
        model(source[:1], target[:1])
    assert len(seen) == 3
    assert seen[1].tokens == source[1, 2:].tolist()
    assert seen[1].tokens_of("decoder") == target[1].tolist()
    assert seen[2].tokens == source[0].tolist()
    assert seen[1].weights("decoder.1.cross.3").shape == (4, 4)
    assert seen[-1].weights("encoder.1.self.3").shape == (6, 6)


def test_decoding_with_a_cache_is_one_input():
    torch.manual_seed(0)
    model, tokens = EncoderDecoder(SMALL).eval(), torch.randint(0, 37, (2, 7))
    with torch.no_grad():
        with watch(model) as whole:
            model(tokens, tokens)
        with watch(model) as steps:
            memory, cache = model.encoder(tokens), KVCache()
            for t in range(7):
                model.decoder(tokens[:, t : t + 1], memory=memory, cache=cache)
    assert len(steps) == 2
    for address in ("decoder.1.self.2", "decoder.0.cross.1", "encoder.0.self.0"):
        torch.testing.assert_close(steps[1].weights(address), whole[1].weights(address), rtol=1e-4, atol=1e-6)
        assert torch.equal(steps[1].weights(address, rows=[5, 1]), steps[1].weights(address)[[5, 1]])
    assert steps[1].tokens_of("decoder") == tokens[1].tolist()
    a, b = whole.stats([3]), steps.stats([3])
    for name, column in a.columns.items():
        torch.testing.assert_close(column, b.columns[name], rtol=1e-4, atol=1e-5, equal_nan=True)


def test_begun_amid_decoding_the_rows_from_there_on_are_seen():
    torch.manual_seed(0)
    model, tokens = EncoderDecoder(SMALL).eval(), torch.randint(0, 37, (2, 7))
    with torch.no_grad():
        with watch(model) as whole:
            model(tokens, tokens)
        memory, cache = model.encoder(tokens), KVCache()
        model.decoder(tokens[:, :3], memory=memory, cache=cache)
        with watch(model.decoder) as late:
            for t in range(3, 7):
                model.decoder(tokens[:, t : t + 1], memory=memory, cache=cache)
    assert len(late) == 2
    for address in ("decoder.1.self.2", "decoder.0.cross.1"):
        torch.testing.assert_close(late[1].weights(address), whole[1].weights(address)[3:], rtol=1e-4, atol=1e-6)
    assert late[1].tokens == tokens[1, 3:].tolist()
    assert late.stats()["decoder.1.self.2"]["entropy"] > 0
    with pytest.raises(ValueError, match="began during decoding"):
        late.stats([3])


def test_where_the_kernel_hides_the_log_sum_exp(monkeypatch):
    torch.manual_seed(0)
    model, tokens = LanguageModel(SMALL).eval(), torch.randint(0, 37, (2, 9))
    keep = torch.tensor([[True] * 9, [False] * 4 + [True] * 5])
    with watch(model) as one:
        model(tokens, keep)
    monkeypatch.setattr(flash_cpu, "_FLASH", None)
    with watch(model) as other:
        model(tokens, keep)
    torch.testing.assert_close(one[1].weights((1, 2)), other[1].weights((1, 2)), rtol=1e-4, atol=1e-6)
    for name, column in one.stats().columns.items():
        torch.testing.assert_close(column, other.stats().columns[name], rtol=1e-4, atol=1e-5)


def test_a_bare_attention_and_a_short_address():
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(24, 4), torch.randn(2, 5, 24)
    with watch(attention) as seen:
        attention(x, mask=Mask.causal())
    assert seen[1].weights((0, 3)).shape == (5, 5)
    assert torch.equal(seen[1].weights((0, 3)), seen[1].weights("attention.0.self.3"))
    assert seen.stats()["attention.0.self.3"]["next"] == 0


@pytest.mark.parametrize("address", ["encoder.1.self.2", "decoder.0.self.0", "decoder.1.cross.3"])
def test_ablated_is_the_same_as_zeroed_columns(address):
    torch.manual_seed(0)
    model, tokens = EncoderDecoder(SMALL).eval(), torch.randint(0, 37, (2, 6))
    plain = model(tokens, tokens)
    with ablate(model, [address]):
        ablated = model(tokens, tokens)
    assert torch.equal(model(tokens, tokens), plain)
    stack, layer, kind, head = address.split(".")
    block = getattr(model, stack).stack.blocks[int(layer)]
    attention = block.attention if kind == "self" else block.cross
    attention.out.weight.data[:, int(head) * 6 : int(head) * 6 + 6] = 0
    assert (model(tokens, tokens) - ablated).abs().max() < 1e-5
    assert (ablated - plain).abs().max() > 1e-4


def test_watch_and_ablate_together_and_after_an_error():
    torch.manual_seed(0)
    model, tokens = LanguageModel(SMALL), torch.randint(0, 37, (2, 6))
    with watch(model) as seen, ablate(model, [(0, 1)]):
        model(tokens)
        with pytest.raises(ValueError, match="this model's tokens are 0 to 36"):
            model(tokens + 99)
    assert seen[0].weights((1, 1)).shape == (6, 6)
    assert not any(m.taps for m in model.modules() if isinstance(m, MultiHeadAttention))
    with watch(model, only=["decoder.1.self"]) as seen:
        model(tokens)
    assert list(seen.passes) == ["decoder.1.self"]
    seen.clear()
    assert len(seen) == 0


def test_checkpointed_training_is_seen_once():
    model, tokens = LanguageModel(SMALL).train(), torch.randint(0, 37, (2, 6))
    model.body.stack.checkpointing = True
    with watch(model) as seen:
        model(tokens).sum().backward()
    assert len(seen) == 2


def test_16k_tokens():
    torch.manual_seed(0)
    config = replace(SMALL, max_length=16_384, positions="rotary", layers=1, heads=2, dim=8)
    model, tokens = LanguageModel(config).eval(), torch.randint(0, 37, (1, 16_384))
    with torch.no_grad(), watch(model) as seen:
        model(tokens)
    rows = seen[0].weights((0, 1), rows=[16_383, 100])
    assert rows.shape == (2, 16_384)
    torch.testing.assert_close(rows.sum(1), torch.ones(2), rtol=1e-4, atol=1e-5)
    assert rows[1, 101:].abs().max() == 0
    assert 0 < seen.stats()["decoder.0.self.1"]["entropy"] < 9.71


def test_wrong_addresses_name_the_right_ones():
    model, tokens = EncoderDecoder(SMALL), torch.randint(0, 37, (1, 3))
    with watch(model) as seen:
        model(tokens, tokens)
    wrong = {
        "encoder.0.self.0": lambda: seen[0].weights("encoder.9.self.0"),
        "stack.layer.kind.head": lambda: seen[0].weights("encoder.0.self.4"),
        "is ambiguous: decoder or encoder": lambda: seen[0].weights((0, 1)),
        "unknown stack": lambda: seen[0].tokens_of("middle"),
        "unknown attention": lambda: watch(model, only=["encoder.7.self"]).__enter__(),
        "no MultiHeadAttention": lambda: watch(nn.Linear(2, 2)).__enter__(),
        "unknown head": lambda: seen.stats()["x"],
    }
    for message, use in wrong.items():
        with pytest.raises(ValueError, match=message):
            use()
    with pytest.raises(IndexError, match="there are 1"):
        seen[1]
    seen.clear()
    with pytest.raises(ValueError, match="nothing was recorded"):
        seen.stats()


def test_a_table_of_heads_prints_itself():
    model = LanguageModel(SMALL)
    with watch(model) as seen:
        model(torch.randint(0, 37, (1, 5)))
    text = repr(seen.stats())
    assert len(text.splitlines()) == 9
    assert "decoder.1.self.3" in text
    assert repr(seen) == "<Recording: 1 inputs, 2 attentions, 8 heads>"


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize("positions", ["learned", "alibi"])
def test_half_precision_is_seen_exactly(positions):
    """q and k are halves, their products need not be: weights sum to 1, entropies are those of the weights."""
    torch.manual_seed(0)
    model = LanguageModel(replace(SMALL, positions=positions)).eval()
    for parameter in model.parameters():
        parameter.data *= 4
    model = model.bfloat16()
    with watch(model) as seen, torch.no_grad():
        model(torch.randint(0, 37, (2, 13)))
    stats = seen.stats()
    for name in seen.heads:
        for head in range(4):
            (record,) = seen.passes[name]
            weights = [seen[b].weights(f"{name}.{head}") for b in range(2)]
            for b, mine in enumerate(weights):
                torch.testing.assert_close(mine.sum(-1), torch.ones(13), atol=2e-3, rtol=0)
                torch.testing.assert_close(mine.double(), exact(record, b, head), atol=2e-3, rtol=0)
            entropy = torch.special.entr(torch.stack(weights)).sum(-1).mean()
            assert stats[f"{name}.{head}"]["entropy"] == pytest.approx(float(entropy), abs=5e-3)


def test_separators_want_to_know_the_tokens():
    model = EncoderDecoder(SMALL).eval()
    tokens = torch.randint(0, 37, (1, 5))
    with watch(model, only=["decoder.0.self", "decoder.0.cross"]) as seen:
        model(tokens, tokens)
    seen.stats()
    with pytest.raises(ValueError, match="no self-attention of the encoder was watched"):
        seen.stats(separators=[2])


def test_two_stacks_of_one_name_are_refused():
    with pytest.raises(
        ValueError, match=r"two attentions have the address encoder\.0\.self; inspect one part at a time"
    ):
        watch(nn.ModuleList([Encoder(SMALL), Encoder(SMALL)])).__enter__()
