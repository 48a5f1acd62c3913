"""ONNX files as weights: initializers by name, int8 and uint8 dequantized; the graph is read and never run.

The protobuf is walked here, field by field, over a memory map: every length is checked against the bytes that are
there, tensors are views of the file, and only what weights need is looked at (initializers, and the names that nodes
have for their inputs).
"""

from __future__ import annotations

import math
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.io.files import size_of

LONGEST = 4096  # bytes of a name
MOST = 100_000  # nodes, or initializers
# TensorProto.DataType -> numpy; what is missing here no weight is stored in
TYPES = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8", 10: "<f2", 11: "<f8"}
PRODUCTS = ("MatMul", "Gemm", "MatMulInteger", "DynamicQuantizeMatMul")
PATH = re.compile(r"/(MatMul|Gemm)(Integer)?(_\d+)?(_quant)?$")
Array = NDArray[Any]


@dataclass
class OnnxNode:
    kind: str = ""
    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    integers: dict[str, int] = field(default_factory=dict)  # attributes


class OnnxWeights:
    """What an ONNX file holds: `initializers` as they are stored, `nodes`, and `read_tensors()` in fp32.

    >>> OnnxWeights(Path("model.onnx")).read_tensors()  # doctest: +SKIP
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        size = size_of(self.path)
        with self.path.open("rb") as file:
            self._raw = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self.initializers: dict[str, Array] = {}
        self.nodes: list[OnnxNode] = []
        try:
            self._read_model()
        except (IndexError, UnicodeDecodeError, KeyError, OverflowError) as error:
            raise ValueError(
                f"{self.path}: not a sound ONNX file of {size:,} bytes ({str(error)[:120]}); fetch it again"
            ) from None
        if not self.initializers:
            raise ValueError(f"{self.path}: holds no weights; fetch it again, with the .onnx_data file inside")

    def read_tensors(self) -> dict[str, Tensor]:
        """Weights by name in fp32; those of products, which exporters leave nameless, by the module's path.

        A product's matrix is stored [in, out] and comes back as torch has it, [out, in].
        """
        arrays = {name: array for name, array in self.initializers.items() if _is_weight(name, array)}
        arrays |= {name: self._dequantize(node) for name, node in self._find_quantized().items()}
        for node in self.nodes:
            if node.kind not in PRODUCTS or len(node.inputs) < 2 or not node.name:
                continue
            source = self._source(node.inputs[1])
            if source in arrays and source.startswith("onnx::") and arrays[source].ndim == 2:
                turned = node.kind == "Gemm" and node.integers.get("transB") == 1
                array = arrays.pop(source)
                arrays[_module_path(node.name) + ".weight"] = array if turned else array.T
        return {name: _tensor(array) for name, array in arrays.items()}

    def find_aliases(self) -> dict[str, str]:
        """Outputs of Identity nodes -> the initializer they repeat: exporters store equal tensors once."""
        plain = (node for node in self.nodes if node.kind == "Identity" and len(node.inputs) == len(node.outputs) == 1)
        return {node.outputs[0]: node.inputs[0] for node in plain if node.inputs[0] in self.initializers}

    def _source(self, name: str) -> str:
        """The initializer behind a DequantizeLinear or Transpose-free chain of Identity."""
        node = next((node for node in self.nodes if name in node.outputs), None)
        return node.inputs[0] if node is not None and node.kind in ("DequantizeLinear", "Identity") else name

    def _find_quantized(self) -> dict[str, OnnxNode]:
        """Initializers that go through a DequantizeLinear node -> that node; the name is the quantized one's."""
        return {
            node.inputs[0]: node
            for node in self.nodes
            if node.kind == "DequantizeLinear" and node.inputs and node.inputs[0] in self.initializers
        }

    def _dequantize(self, node: OnnxNode) -> Array:
        """(values - zero) * scale, per tensor or along `axis`."""
        values = self.initializers[node.inputs[0]]
        try:
            scale = self.initializers[node.inputs[1]].astype(np.float32)
            zero = self.initializers[node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] else np.zeros(1)
        except (KeyError, IndexError):
            raise ValueError(f"{self.path}: tensor {node.inputs[0]!r} has no scale; fetch the file again") from None
        shape = [1] * values.ndim
        if scale.size > 1:
            axis = node.integers.get("axis", 1)
            if (
                not -values.ndim <= axis < values.ndim
                or values.shape[axis] != scale.size
                or zero.size
                not in (
                    1,
                    scale.size,
                )
            ):
                raise ValueError(
                    f"{self.path}: tensor {node.inputs[0]!r} is {list(values.shape)}, its {scale.size} scales do not "
                    f"fit axis {axis}; fetch the file again"
                )
            shape[axis] = scale.size
        offset = zero.astype(np.float32).reshape(shape if zero.size > 1 else [1] * values.ndim)
        result: Array = (values.astype(np.float32) - offset) * scale.reshape(shape)
        return result

    def _read_model(self) -> None:
        for number, value in _fields(self._raw):
            if number == 7 and isinstance(value, memoryview):  # ModelProto.graph
                for part, content in _fields(value):
                    if part == 1 and isinstance(content, memoryview):
                        self.nodes.append(_read_node(content))
                    elif part == 5 and isinstance(content, memoryview):
                        self._read_initializer(content)
                    if max(len(self.nodes), len(self.initializers)) > MOST:
                        raise IndexError(f"more than {MOST:,} nodes or tensors")

    def _read_initializer(self, content: memoryview) -> None:
        sizes: list[int] = []
        kind, name = 0, ""
        stored: memoryview | None = None
        typed: dict[int, list[memoryview | int]] = {}
        for number, value in _fields(content):
            if number == 1:
                sizes += [value] if isinstance(value, int) else _varints(value)
            elif number == 2 and isinstance(value, int):
                kind = value
            elif number == 8:
                name = _text(value)
            elif number == 9 and isinstance(value, memoryview):
                stored = value
            elif number in (4, 5, 7, 10):  # float_data, int32_data, int64_data, double_data
                typed.setdefault(number, []).append(value)
            elif number in (13, 14) and value:
                raise KeyError(f"tensor {name[:80]!r} is in another file")
        if kind not in TYPES:
            return  # strings, flags: no weights
        if len(sizes) > 8 or any(not 0 <= side < 1 << 40 for side in sizes):
            raise IndexError(f"tensor {name[:80]!r} has sides {sizes[:9]}")
        values = np.frombuffer(stored, dtype=TYPES[kind]) if stored is not None else _typed_values(typed, kind)
        if values.size != math.prod(sizes):
            raise IndexError(f"tensor {name[:80]!r} of {sizes} has {values.size:,} numbers")
        self.initializers[name] = values.reshape(sizes)


def _read_node(content: memoryview) -> OnnxNode:
    node = OnnxNode()
    for number, value in _fields(content):
        if number == 1:
            node.inputs.append(_text(value))
        elif number == 2:
            node.outputs.append(_text(value))
        elif number == 3:
            node.name = _text(value)
        elif number == 4:
            node.kind = _text(value)
        elif number == 5 and isinstance(value, memoryview):
            parts = dict(_fields(value))
            if isinstance(parts.get(3), int) and 1 in parts:
                number_ = parts[3]
                assert isinstance(number_, int)
                node.integers[_text(parts[1])] = number_ - (1 << 64) if number_ >= 1 << 63 else number_
    return node


def _fields(raw: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Field numbers and values of one message: whole numbers, or the bytes of anything else."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(raw, at)
            yield tag >> 3, value
            continue
        if wire == 2:
            length, at = _varint(raw, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise KeyError(f"a field of kind {wire} at byte {at:,}")
        if length > len(raw) - at:
            raise IndexError(f"{length:,} bytes at byte {at:,} do not fit")
        yield tag >> 3, raw[at : at + length]
        at += length


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError(f"a number at byte {at:,} has no end")


def _varints(raw: memoryview | int) -> list[int]:
    if isinstance(raw, int):
        return [raw]
    values, at = [], 0
    while at < len(raw):
        value, at = _varint(raw, at)
        values.append(value - (1 << 64) if value >= 1 << 63 else value)
    return values


def _typed_values(typed: dict[int, list[memoryview | int]], kind: int) -> Array:
    """Values of a tensor that is not stored as plain bytes: packed, or one field each."""
    if kind in (1, 11):
        form, number = ("<f4", 4) if kind == 1 else ("<f8", 10)
        parts = [np.frombuffer(part, dtype=form) for part in typed.get(number, []) if isinstance(part, memoryview)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=form)
    if kind == 10 and typed:
        raise KeyError("float16 as numbers")
    numbers = [value for part in typed.get(7 if kind == 7 else 5, []) for value in _varints(part)]
    return np.array(numbers, dtype=np.int64).astype(TYPES[kind])


def _text(value: memoryview | int) -> str:
    if isinstance(value, int) or len(value) > LONGEST:
        raise KeyError("a name that is no text, or too long")
    return str(value, "utf-8")


def _is_weight(name: str, array: Array) -> bool:
    return array.dtype.kind == "f" and array.ndim > 0 and not re.search(r"_(scale|zero_point)$", name)


def _module_path(node: str) -> str:
    """/blocks.0/attn/qkv/MatMul -> blocks.0.attn.qkv"""
    return PATH.sub("", node).strip("/").replace("/", ".")


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float32, order="C"))  # a copy: the map is read-only
