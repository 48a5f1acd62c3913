"""CLIP's two towers and DINOv2: random models made by transformers give the same numbers here, and go back out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from multihead.models import Encoder, ModelConfig
from multihead.models.families import check_shapes, load_tensors, make_plan
from multihead.models.families.clip import CLIP_TEXT, CLIP_VISION, split_towers
from multihead.models.feed_forward import FeedForward
from multihead.models.transformer import Decoder
from multihead.pretrained import load, save

transformers = pytest.importorskip("transformers")
CLOSE = {"rtol": 0.0, "atol": 1e-5}
DINO = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 20, "patch_size": 4}
VISION = {**DINO, "intermediate_size": 20, "projection_dim": 7}
TEXT = {"vocab_size": 41, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 3,
        "max_position_embeddings": 11, "projection_dim": 7, "bos_token_id": 39, "eos_token_id": 40}  # fmt: skip
MODELS = {
    "dinov2": ("Dinov2Model", DINO),
    "dinov2 mlp_ratio 2": ("Dinov2Model", {**DINO, "mlp_ratio": 2, "qkv_bias": False}),
    "clip vision": ("CLIPVisionModel", VISION),
    "clip vision gelu": ("CLIPVisionModelWithProjection", {**VISION, "hidden_act": "gelu"}),
    "clip vision projection": ("CLIPVisionModelWithProjection", VISION),
    "clip text": ("CLIPTextModel", TEXT),
    "clip text projection": ("CLIPTextModelWithProjection", TEXT),
}


def randomize(model: Any) -> Any:
    for name, tensor in model.named_parameters():
        tensor.data.normal_(std=0.2)
        if "norm" in name and name.endswith("weight"):
            tensor.data.add_(1.0)
    return model.eval()


def make(name: str, directory: Path) -> Any:
    architecture, values = MODELS[name]
    kind = getattr(transformers, architecture)
    torch.manual_seed(len(name))
    model = randomize(kind(kind.config_class(**values, attn_implementation="eager")))
    model.save_pretrained(directory)
    return model


def texts() -> tuple[Tensor, Tensor]:
    """Tokens that end with the end-of-text token, padded; keep."""
    tokens = torch.randint(3, 39, (3, 8), generator=torch.Generator().manual_seed(1))
    keep = torch.arange(8) < torch.tensor([[8], [5], [3]])
    tokens[torch.arange(3), keep.sum(1) - 1] = 40
    return tokens.masked_fill(~keep, 1), keep


@pytest.mark.parametrize("name", [name for name in MODELS if "text" not in name])
@pytest.mark.parametrize("size", [(20, 20), (28, 28), (12, 32), (22, 41)])
@torch.no_grad()
def test_images_of_any_size(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    theirs, ours = make(name, tmp_path), load(tmp_path).model
    pixels = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(2))
    want = theirs(pixels, **({} if "dino" in name else {"interpolate_pos_encoding": True}))
    given = ours(pixels)
    if "Projection" in MODELS[name][0]:
        torch.testing.assert_close(given, want.image_embeds, **CLOSE)
    else:
        torch.testing.assert_close(given[:, 0], want.pooler_output, **CLOSE)
    if "dino" in name:
        torch.testing.assert_close(given, want.last_hidden_state, **CLOSE)


@pytest.mark.parametrize("name", [name for name in MODELS if "text" in name])
@torch.no_grad()
def test_texts(name: str, tmp_path: Path) -> None:
    theirs, ours = make(name, tmp_path), load(tmp_path).model
    tokens, keep = texts()
    want = theirs(tokens, attention_mask=keep.long())
    given = ours(tokens, keep)
    if "projection" in name:
        torch.testing.assert_close(given, want.text_embeds, **CLOSE)
    else:
        torch.testing.assert_close(given[keep], want.last_hidden_state[keep], **CLOSE)


@pytest.mark.parametrize("name", MODELS)
def test_back_out(name: str, tmp_path: Path) -> None:
    make(name, tmp_path / "theirs")
    save(load(tmp_path / "theirs"), tmp_path / "ours", family=True)
    before, after = (load_file(tmp_path / side / "model.safetensors") for side in ("theirs", "ours"))
    assert before.keys() == after.keys()
    assert [key for key in before if not torch.equal(before[key], after[key])] == []
    told, said = (json.loads((tmp_path / side / "config.json").read_text("utf-8")) for side in ("theirs", "ours"))
    assert {key: said.get(key) for key in told} == told
    _, notes = getattr(transformers, MODELS[name][0]).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not notes["missing_keys"]


@torch.no_grad()
def test_a_whole_clip_is_split(tmp_path: Path) -> None:
    config = transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=7)
    theirs = randomize(transformers.CLIPModel(config))
    theirs.save_pretrained(tmp_path)
    told = json.loads((tmp_path / "config.json").read_text("utf-8"))
    vision, text, scale = split_towers(told, load_file(tmp_path / "model.safetensors"))
    models = []
    for family, (side, tensors) in ((CLIP_VISION, vision), (CLIP_TEXT, text)):
        plan = make_plan(family, side, "ModelWithProjection")
        check_shapes(plan, {name: list(tensor.shape) for name, tensor in tensors.items()}, "there")
        models.append(load_tensors(plan, tensors, "there")[0])
    pixels, (tokens, keep) = torch.randn(2, 3, 20, 20), texts()
    images, words = models[0](pixels), models[1](tokens, keep)
    images, words = (rows / rows.norm(dim=-1, keepdim=True) for rows in (images, words))
    want = theirs(input_ids=tokens, pixel_values=pixels, attention_mask=keep.long())
    torch.testing.assert_close(images @ words.T * scale, want.logits_per_image, **CLOSE)
    with pytest.raises(ValueError, match="logit_scale"):
        split_towers(told, {})
    with pytest.raises(ValueError, match="vision_config"):
        split_towers({}, {})


def test_layer_scale_begins_at_its_value_and_learns() -> None:
    config = ModelConfig(stem="patches", image=(8, 8), patch=4, dim=12, heads=2, layers=1, positions="learned",
                         norm_first=True, layer_scale=0.25, dropout=0.0)  # fmt: skip
    model = Encoder(config)
    scales = [p for n, p in model.named_parameters() if n.endswith("_scale")]
    assert [p.tolist() for p in scales] == [[0.25] * 12] * 2
    model(torch.randn(2, 3, 8, 8)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in scales)
    with pytest.raises(ValueError, match="encoders"):
        Decoder(ModelConfig(vocab=8, dim=8, heads=1, layers=1, layer_scale=1.0))


def test_quick_gelu_backward() -> None:
    """The fused backward gives autograd's gradients."""
    layer = FeedForward(ModelConfig(dim=6, inner=10, heads=1, activation="quick_gelu"))
    x = torch.randn(4, 6, requires_grad=True)
    layer(x).square().sum().backward()
    ours = [x.grad, *(p.grad for p in layer.parameters())]
    other = x.detach().clone().requires_grad_()
    inner = layer.up(other)
    out = torch.nn.functional.linear(inner * torch.sigmoid(1.702 * inner), layer.down.weight, layer.down.bias)
    want = torch.autograd.grad(out.square().sum(), [other, *layer.parameters()])
    for a, b in zip(ours, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_plain_vit_still_wants_its_size() -> None:
    model = Encoder(ModelConfig(stem="patches", image=(8, 8), patch=4, dim=12, heads=2, layers=1, positions="learned"))
    with pytest.raises(ValueError, match="resize it"):
        model(torch.randn(1, 3, 12, 8))
