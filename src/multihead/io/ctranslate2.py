"""CTranslate2's model.bin: float32, float16, bfloat16 or int8 tensors by name, and a Whisper's under the hub's names.

Nothing in the file is executed. Every length is compared with what is left of the file before it is used, and tensors
are mapped, not read: their bytes come when they are used (int8 becomes float32 at once).
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from multihead.io.files import size_of
from multihead.io.whisper_layout import whisper_config

DTYPES = {
    0: torch.float32,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.float16,
    5: torch.bfloat16,
}
NEWEST, OLDEST = 6, 4  # versions of the layout whose variables name their type
MOST_TENSORS, MOST_DIMS = 100_000, 8


class _Cursor:
    """Reads of bounded length from a mapped file."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self.place = path, size_of(path), 0
        with path.open("rb") as file:
            # Copy on write: torch wants memory that it could write to; the file stays as it is.
            self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def take(self, count: int, what: str) -> int:
        """Return the place of the next `count` bytes and step over them."""
        start, self.place = self.place, self.place + count
        if self.place > self.size:
            raise ValueError(
                f"{self.path}: {what} would end at byte {self.place:,}, the file has {self.size:,}: cut short or no "
                "CTranslate2 model; fetch it again (parts of a package are joined one behind the other)"
            )
        return start

    def number(self, form: str, what: str) -> int:
        return int(struct.unpack_from(f"<{form}", self.content, self.take(struct.calcsize(form), what))[0])

    def text(self, what: str) -> str:
        length = self.number("H", what)
        start = self.take(length, what)
        try:
            return self.content[start : start + length].rstrip(b"\0").decode("ascii")
        except UnicodeDecodeError:
            raise ValueError(f"{self.path}: {what} is no name: damaged; fetch it again") from None

    def tensor(self, name: str) -> Tensor:
        rank = self.number("B", f"tensor {name!r}")
        if rank > MOST_DIMS:
            raise ValueError(f"{self.path}: tensor {name!r} has {rank} axes: damaged; fetch it again")
        shape = [self.number("I", f"tensor {name!r}") for _ in range(rank)]
        kind, length = self.number("B", f"tensor {name!r}"), self.number("I", f"tensor {name!r}")
        if kind not in DTYPES:
            raise ValueError(f"{self.path}: tensor {name!r} is of type {kind}, known are 0 to 5; convert it to float16")
        dtype = DTYPES[kind]
        if prod(shape) * dtype.itemsize != length:
            raise ValueError(
                f"{self.path}: tensor {name!r}: {shape} does not fill its {length:,} bytes; fetch it again"
            )
        start = self.take(length, f"tensor {name!r}")
        if not length:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self.content, dtype=dtype, count=prod(shape), offset=start).view(shape)


def read_ctranslate2(path: Path) -> dict[str, Tensor]:
    """Return all tensors by CTranslate2's names, aliases included; int8 matrices as float32."""
    cursor = _Cursor(Path(path))
    version = cursor.number("I", "the version")
    if not OLDEST <= version <= NEWEST:
        raise ValueError(
            f"{path}: version {version:,} of CTranslate2's layout, known are {OLDEST} to {NEWEST}: no model.bin, or "
            "convert it with a newer ctranslate2"
        )
    cursor.text("the model's kind")
    cursor.number("I", "the model's revision")
    tensors: dict[str, Tensor] = {}
    for _ in range(_count(cursor, "tensors")):
        name = cursor.text("a tensor's name")
        if name in tensors:
            raise ValueError(f"{path}: tensor {name!r} stands twice: damaged; fetch it again")
        tensors[name] = cursor.tensor(name)
    for _ in range(_count(cursor, "aliases")):
        alias, name = cursor.text("an alias"), cursor.text("an alias")
        if name not in tensors or alias in tensors:
            raise ValueError(f"{path}: alias {alias!r} of {name!r} leads nowhere: damaged; fetch it again")
        tensors[alias] = tensors[name]
    if cursor.place != cursor.size:
        raise ValueError(f"{path}: {cursor.size - cursor.place:,} bytes too many behind the tensors; fetch it again")
    return _dequantize(tensors, Path(path))


def _count(cursor: _Cursor, what: str) -> int:
    count = cursor.number("I", f"the count of {what}")
    if count > MOST_TENSORS:
        raise ValueError(f"{cursor.path}: {count:,} {what}: damaged; fetch it again")
    return count


def _dequantize(tensors: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """A matrix of integers was multiplied by its scale, one for each row (int8) or for all (int16)."""
    plain: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith("_scale") and name.removesuffix("_scale") in tensors:
            continue
        if tensor.dtype in (torch.int8, torch.int16) and tensor.dim() > 1:
            scale = tensors.get(f"{name}_scale")
            if scale is None or scale.numel() not in (1, len(tensor)):
                raise ValueError(
                    f"{path}: tensor {name!r} is {tensor.dtype} without a scale for each row; convert it again"
                )
            scale = scale.float().reshape(-1, *[1] * (tensor.dim() - 1))
            tensor = tensor.float() / scale
        plain[name] = tensor
    return plain


# CTranslate2's names of a layer's parts -> the hub's; "linear" fuses what the right side lists.
ATTENTION = ("q_proj", "k_proj", "v_proj")
LINEARS: dict[str, tuple[str, ...]] = {
    "self_attention/linear_0": tuple(f"self_attn.{part}" for part in ATTENTION),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}
NORMS = {"self_attention": "self_attn_layer_norm", "attention": "encoder_attn_layer_norm", "ffn": "final_layer_norm"}
OUTSIDE = {
    "position_encodings/encodings": "embed_positions.weight",
    "embeddings/weight": "embed_tokens.weight",
    "layer_norm/gamma": "layer_norm.weight",
    "layer_norm/beta": "layer_norm.bias",
    **{f"conv{n}/{part}": f"conv{n}.{part}" for n in (1, 2) for part in ("weight", "bias")},
}
LAYER = re.compile(r"(encoder|decoder)/layer_(\d+)/(.+)")


def read_ctranslate2_whisper(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return config.json and the tensors of a Whisper under the hub's names (`model.encoder.conv1.weight`, …)."""
    tensors = read_ctranslate2(path)
    if "encoder/conv1/weight" not in tensors or "decoder/embeddings/weight" not in tensors:
        raise ValueError(f"{path}: has no convolutions over sound: not a Whisper; open it with ctranslate2")
    hub: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() and name != "decoder/projection/weight":
            hub |= _hub_tensors(name, tensor, path)
    heads = [_scalar(tensors, f"{side}/num_heads", path) for side in ("encoder", "decoder")]
    return whisper_config(hub, heads[0], heads[1], str(path)), hub


def _hub_tensors(name: str, tensor: Tensor, path: Path) -> dict[str, Tensor]:
    side, _, rest = name.partition("/")
    if rest in OUTSIDE:
        return {f"model.{side}.{OUTSIDE[rest]}": tensor}
    match = LAYER.fullmatch(name)
    module, _, leaf = (match[3] if match else "").rpartition("/")
    if match is None or (module not in LINEARS and module.removesuffix("/layer_norm") not in NORMS):
        raise ValueError(f"{path}: tensor {name!r} has no place in a Whisper; nothing was loaded")
    prefix = f"model.{match[1]}.layers.{match[2]}"
    if module not in LINEARS:
        return {
            f"{prefix}.{NORMS[module.removesuffix('/layer_norm')]}.{'weight' if leaf == 'gamma' else 'bias'}": tensor
        }
    parts = LINEARS[module]
    if len(tensor) % len(parts):
        raise ValueError(
            f"{path}: tensor {name!r} is {list(tensor.shape)}, {len(parts)} parts of equal size are wanted"
        )
    pieces = dict(zip(parts, tensor.chunk(len(parts)), strict=True))
    # Whisper's keys have no bias; where they are fused with others that have one, it is zeros.
    if leaf == "bias":
        pieces = {part: piece for part, piece in pieces.items() if not part.endswith("k_proj")}
    return {f"{prefix}.{part}.{leaf}": piece for part, piece in pieces.items()}


def _scalar(tensors: Mapping[str, Tensor], name: str, path: Path) -> int:
    if name not in tensors or tensors[name].numel() != 1:
        raise ValueError(f"{path}: {name} is missing: not a Whisper of CTranslate2; convert it again")
    return int(tensors[name])
