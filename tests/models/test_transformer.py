"""The three bodies: the same numbers however the input is laid out, no look ahead, and it learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from multihead.attention import KVCache, Mask
from multihead.models import Decoder, Encoder, EncoderDecoder, LanguageModel, ModelConfig

SMALL = ModelConfig(vocab=37, dim=24, layers=2, heads=4, max_length=40, dropout=0.0)
POSITIONS = ["none", "sinusoidal", "learned", "rotary", "alibi", "relative"]
SHAPES = {
    "paper": {},
    "pre-norm": {"norm_first": True, "activation": "gelu"},
    "llama": {
        "norm_first": True,
        "norm": "rms",
        "gated": True,
        "activation": "silu",
        "kv_heads": 2,
        "inner_bias": False,
    },
    "own widths": {"key_dim": 6, "value_dim": 10, "qk_norm": "rms", "scale": "learned", "norm_first": True},
}


def shape(name: str, positions: str) -> ModelConfig:
    return replace(SMALL, positions=positions, **SHAPES[name])


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("name", SHAPES)
def test_the_same_numbers_in_every_layout(name, positions):
    torch.manual_seed(0)
    model = LanguageModel(shape(name, positions))
    tokens, junk = torch.randint(0, 37, (2, 7)), torch.randint(0, 37, (2, 3))
    want = model.train()(tokens)
    assert torch.equal(want, model.eval()(tokens))
    with torch.no_grad():
        close(model(tokens), want)  # a learned bias is fused here, and explicit above
        cache = KVCache()
        close(torch.cat([model(tokens[:, t : t + 1], cache=cache) for t in range(7)], 1), want)
        cache = KVCache()
        close(torch.cat([model(part, cache=cache) for part in tokens.split((4, 1, 2), 1)], 1), want)
    right = torch.tensor([[True] * 7 + [False] * 3] * 2)
    close(model(torch.cat((tokens, junk), 1), right)[:, :7], want)
    left = right.flip(1)
    close(model(torch.cat((junk, tokens), 1), left)[:, 3:], want)
    packed = model(tokens.view(1, 14), segments=torch.tensor([[0] * 7 + [1] * 7]))
    close(packed.view(2, 7, -1), want)


@pytest.mark.parametrize("positions", POSITIONS)
def test_left_padding_with_a_cache(positions):
    torch.manual_seed(0)
    model = LanguageModel(shape("pre-norm", positions)).eval()
    short, long = torch.randint(0, 37, (1, 4)), torch.randint(0, 37, (1, 9))
    batch = torch.cat((F.pad(short, (5, 0)), long))
    keep = torch.tensor([[False] * 5 + [True] * 4, [True] * 9])
    cache = KVCache()
    with torch.no_grad():
        parts = [model(batch[:, :6], keep[:, :6], cache=cache)]
        parts += [model(batch[:, t : t + 1], keep[:, : t + 1], cache=cache) for t in range(6, 9)]
        got = torch.cat(parts, 1)
        close(got[1:], model(long))
        close(got[:1, 5:], model(short))


@pytest.mark.parametrize("positions", POSITIONS)
def test_no_token_sees_the_future(positions):
    torch.manual_seed(0)
    decoder = Decoder(replace(shape("pre-norm", positions), memory_dim=24)).eval()
    tokens, memory = torch.randint(0, 37, (2, 8)), torch.randn(2, 5, 24)
    for t in range(7):
        changed = tokens.clone()
        changed[:, t + 1 :] = (changed[:, t + 1 :] + 1) % 37
        before, after = decoder(tokens, memory=memory), decoder(changed, memory=memory)
        close(before[:, : t + 1], after[:, : t + 1])
        assert not torch.allclose(before[:, t + 1 :], after[:, t + 1 :])


def test_an_encoder_sees_both_sides_and_a_window_less():
    torch.manual_seed(0)
    tokens = torch.randint(0, 37, (1, 9))
    changed = tokens.clone()
    changed[:, 8] = (changed[:, 8] + 1) % 37
    for config, touched in ((SMALL, 9), (replace(SMALL, window=2, layers=1), 2)):
        body = Encoder(config).eval()
        moved = (body(tokens) - body(changed)).abs().amax(-1)[0] > 1e-6
        assert int(moved.sum()) == touched


def test_encoder_decoder_padding_and_cache():
    torch.manual_seed(0)
    body = EncoderDecoder(SMALL, replace(SMALL, layers=3)).eval()
    source, target = torch.randint(0, 37, (2, 6)), torch.randint(0, 37, (2, 5))
    keep = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    want = body(source, target, keep)
    alone = body(source[1:, :4], target[1:])
    close(want[1:], alone)
    cache = KVCache()
    with torch.no_grad():
        memory = body.encoder(source, keep)
        steps = [body.decoder(target[:, t : t + 1], memory=memory, memory_keep=keep, cache=cache) for t in range(5)]
    close(torch.cat(steps, 1), want)
    assert body.encoder.stem.embedding.weight is body.decoder.stem.embedding.weight


def test_halves_of_different_width_and_pictures_and_sound():
    wide = replace(SMALL, dim=36, vocab=50)
    assert EncoderDecoder(SMALL, wide, shared=False)(
        torch.randint(0, 37, (2, 6)), torch.randint(0, 50, (2, 5))
    ).shape == (2, 5, 36)
    with pytest.raises(ValueError, match="shared=False"):
        EncoderDecoder(SMALL, wide)
    picture = replace(SMALL, stem="patches", image=(16, 24), patch=8, positions="learned")
    assert Encoder(picture)(torch.randn(2, 3, 16, 24)).shape == (2, 7, 24)
    sound = replace(SMALL, stem="audio", mels=10, positions="sinusoidal")
    body = EncoderDecoder(sound, SMALL, shared=False)
    assert body(torch.randn(2, 10, 30), torch.randint(0, 37, (2, 4))).shape == (2, 4, 24)
    with pytest.raises(ValueError, match="resize it"):
        Encoder(picture)(torch.randn(2, 3, 16, 16))
    with pytest.raises(ValueError, match="larger max_length"):
        Encoder(SMALL)(torch.zeros(1, 41, dtype=torch.long))


@pytest.mark.parametrize("name", SHAPES)
def test_compiles_without_graph_breaks(name):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, tokens = LanguageModel(shape(name, "rotary")).eval(), torch.randint(0, 37, (2, 7))
    keep = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    compiled = torch.compile(model, fullgraph=True)
    close(compiled(tokens, keep), model(tokens, keep))


def test_checkpointing_changes_memory_not_numbers():
    torch.manual_seed(0)
    model, tokens = LanguageModel(SMALL), torch.randint(0, 37, (2, 7))
    gradients = []
    for checkpointing in (False, True):
        model.body.stack.checkpointing = checkpointing
        model.zero_grad()
        model(tokens).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_the_defaults_are_the_base_model_of_the_paper():
    body = EncoderDecoder(ModelConfig(vocab=37_000, embed_scale=512**0.5))
    config = body.encoder.config
    assert (config.layers, config.dim, config.heads, config.inner or 4 * config.dim) == (6, 512, 8, 2048)
    millions = sum(p.numel() for p in body.parameters()) / 1e6
    assert 62 < millions < 66  # the paper says 65


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("layers", [2, 12])
def test_it_starts_calm(name, layers):
    """At the start the loss is that of a guess, and no layer's gradient drowns another's."""
    torch.manual_seed(0)
    model = LanguageModel(replace(shape(name, "rotary"), layers=layers))
    tokens = torch.randint(0, 37, (4, 16))
    loss = F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    assert abs(float(loss.detach()) - 3.61) < 0.5
    loss.backward()
    norms = [float(block.feed_forward.up.weight.grad.norm()) for block in model.body.stack.blocks]
    assert max(norms) < 30 * min(norms)


def test_it_learns_a_line_by_heart():
    torch.manual_seed(0)
    model = LanguageModel(replace(SMALL, norm_first=True, positions="rotary"))
    tokens = torch.randint(0, 37, (8, 12))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):
        loss = F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.4  # the first token of a line cannot be known


def test_a_mask_may_be_added():
    torch.manual_seed(0)
    body, tokens = Encoder(SMALL).eval(), torch.randint(0, 37, (1, 6))
    causal = body(tokens, mask=Mask.causal())
    close(causal[:, :3], body(tokens[:, :3], mask=Mask.causal()))


def test_config_refuses_what_cannot_be():
    with pytest.raises(ValueError, match="key_dim"):
        ModelConfig(dim=30, heads=4)
    with pytest.raises(ValueError, match="from 1 to"):
        ModelConfig(heads=0)


@pytest.mark.parametrize(
    "wrong",
    [{"positions": "rotry"}, {"norm": "rmss"}, {"activation": "gelo"}, {"attention_bias": "xyz"}, {"dropout": 1.5}],
)
def test_shapes_that_do_not_exist_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ModelConfig(**wrong)
