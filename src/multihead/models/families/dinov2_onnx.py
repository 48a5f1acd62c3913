"""DINOv2 as its authors name the tensors, out of an ONNX file, in the hub's layout."""

from __future__ import annotations

import math
import re
from pathlib import Path

import torch
from torch import Tensor

from multihead.io.files import make_directory, write_json
from multihead.io.onnx import OnnxWeights
from multihead.io.weights import write_tensors
from multihead.models.families.spec import Json

# theirs, without "model." before it -> the hub's
NAMES = (
    (r"cls_token", "embeddings.cls_token"),
    (r"patch_embed\.proj\.(\w+)", r"embeddings.patch_embeddings.projection.\1"),
    (r"norm\.(\w+)", r"layernorm.\1"),
    (r"blocks\.(\d+)\.norm([12])\.(\w+)", r"encoder.layer.\1.norm\2.\3"),
    (r"blocks\.(\d+)\.ls([12])\.gamma", r"encoder.layer.\1.layer_scale\2.lambda1"),
    (r"blocks\.(\d+)\.mlp\.(fc[12])\.(\w+)", r"encoder.layer.\1.mlp.\2.\3"),
    (r"blocks\.(\d+)\.attn\.proj\.(\w+)", r"encoder.layer.\1.attention.output.dense.\2"),
)
QKV = re.compile(r"blocks\.(\d+)\.attn\.qkv\.(\w+)")
HEAD = 64  # width of a head in every published size


def read_dinov2_onnx(path: str | Path) -> tuple[Json, dict[str, Tensor]]:
    """config.json and tensors, as the hub has them, of an ONNX export of DINOv2."""
    file = OnnxWeights(path)
    tensors: dict[str, Tensor] = {}
    positions: Tensor | None = None
    read = file.read_tensors()
    for name, tensor in read.items():
        plain = name.removeprefix("model.")
        if match := QKV.fullmatch(plain):
            for part, value in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                tensors[f"encoder.layer.{match[1]}.attention.attention.{part}.{match[2]}"] = value
        elif new := next((re.sub(old, new, plain) for old, new in NAMES if re.fullmatch(old, plain)), None):
            tensors[new] = tensor
        elif tensor.dim() == 3 and len(tensor) == 1 and math.isqrt(tensor.shape[1]) ** 2 == tensor.shape[1] > 1:
            positions = tensor  # of the patches: the exporter folded the table into two nameless pieces
    first = _first_position(file, read)
    if positions is None or first is None or "embeddings.patch_embeddings.projection.weight" not in tensors:
        raise ValueError(f"{path}: no DINOv2 with its table of positions; give an export of the plain model")
    tensors["embeddings.position_embeddings"] = torch.cat((first, positions), dim=1)
    tensors["embeddings.mask_token"] = torch.zeros(1, first.shape[-1])  # used in pre-training only
    return _config(tensors), tensors


def write_dinov2(source: str | Path, directory: str | Path) -> Path:
    """Write an ONNX export of DINOv2 as a hub directory: config.json and model.safetensors."""
    config, tensors = read_dinov2_onnx(source)
    folder = Path(directory)
    make_directory(folder)
    write_json(folder / "config.json", config)
    write_tensors(folder / "model.safetensors", tensors)
    return folder


def _first_position(file: OnnxWeights, read: dict[str, Tensor]) -> Tensor | None:
    """The class token's position: a nameless [1, 1, D], or one that equals the token itself and is stored once."""
    for name, tensor in read.items():
        if name.startswith("onnx::") and tensor.shape[:2] == (1, 1):
            return tensor
    return next((read[source] for source in file.find_aliases().values() if source.endswith("cls_token")), None)


def _config(tensors: dict[str, Tensor]) -> Json:
    dim, channels, patch, _ = tensors["embeddings.patch_embeddings.projection.weight"].shape
    side = math.isqrt(tensors["embeddings.position_embeddings"].shape[1] - 1) * patch
    return {
        "architectures": ["Dinov2Model"],
        "model_type": "dinov2",
        "hidden_size": dim,
        "num_hidden_layers": len({name.split(".")[2] for name in tensors if name.startswith("encoder.layer.")}),
        "num_attention_heads": dim // HEAD,
        "mlp_ratio": tensors["encoder.layer.0.mlp.fc1.bias"].numel() // dim,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "layer_norm_eps": 1e-6,
        "image_size": side,
        "patch_size": patch,
        "num_channels": channels,
        "qkv_bias": True,
        "layerscale_value": 1.0,
        "use_swiglu_ffn": False,
    }
