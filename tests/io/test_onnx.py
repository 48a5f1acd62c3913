"""ONNX files made by hand: fp32 and quantized weights come back, damaged files are named."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from multihead.io.onnx import OnnxWeights

TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6}


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def tensor(name: str, array: np.ndarray, packed: bool = False) -> bytes:
    sizes = b"".join(varint(1 << 3) + varint(side) for side in array.shape)
    kind = varint(2 << 3) + varint(TYPES[str(array.dtype)])
    return message(5, sizes + kind + message(8, name.encode()) + message(4 if packed else 9, array.tobytes()))


def node(kind: str, name: str, inputs: list[str], outputs: list[str], **integers: int) -> bytes:
    body = b"".join(message(1, i.encode()) for i in inputs) + b"".join(message(2, o.encode()) for o in outputs)
    body += message(3, name.encode()) + message(4, kind.encode())
    for key, value in integers.items():
        body += message(5, message(1, key.encode()) + varint(3 << 3) + varint(value))
    return message(1, body)


def write(path: Path, *parts: bytes) -> Path:
    path.write_bytes(varint(1 << 3) + varint(7) + message(7, b"".join(parts)))
    return path


MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_plain_and_nameless(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        tensor("bias", np.arange(4, dtype=np.float32), packed=True),
        tensor("onnx::MatMul_1", MATRIX),
        tensor("onnx::Gemm_2", MATRIX),
        node("MatMul", "/blocks.0/attn/qkv/MatMul", ["x", "onnx::MatMul_1"], ["y"]),
        node("Gemm", "/head/Gemm", ["y", "onnx::Gemm_2"], ["z"], transB=1),
        node("Identity", "", ["bias"], ["again"]),
    )
    file = OnnxWeights(path)
    tensors = file.read_tensors()
    assert tensors.keys() == {"bias", "blocks.0.attn.qkv.weight", "head.weight"}
    assert torch.equal(tensors["blocks.0.attn.qkv.weight"], torch.from_numpy(MATRIX.T.copy()))
    assert torch.equal(tensors["head.weight"], torch.from_numpy(MATRIX))
    assert tensors["bias"].tolist() == [0, 1, 2, 3]
    assert file.find_aliases() == {"again": "bias"}


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_quantized(axis: int | None, dtype: type, tmp_path: Path) -> None:
    values = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 100]], dtype=dtype)
    count = 1 if axis is None else values.shape[axis]
    scale, zero = np.linspace(0.1, 0.3, count, dtype=np.float32), np.arange(count, dtype=dtype)
    parts = [tensor("w", values), tensor("w_scale", scale), tensor("w_zero_point", zero)]
    more = {} if axis is None else {"axis": axis}
    path = write(
        tmp_path / "m.onnx", *parts, node("DequantizeLinear", "d", ["w", "w_scale", "w_zero_point"], ["o"], **more)
    )
    shape = [1, 1] if axis is None else [count, 1] if axis == 0 else [1, count]
    want = (values.astype(np.float32) - zero.astype(np.float32).reshape(shape)) * scale.reshape(shape)
    tensors = OnnxWeights(path).read_tensors()
    assert tensors.keys() == {"w"}
    np.testing.assert_allclose(tensors["w"].numpy(), want, rtol=1e-6)


def test_damage_is_named(tmp_path: Path) -> None:
    whole = write(tmp_path / "m.onnx", tensor("w", MATRIX), node("MatMul", "/a/MatMul", ["x", "w"], ["y"])).read_bytes()
    broken = [whole[:cut] for cut in range(3, len(whole) - 1, 7)]
    broken += [b"x" * 50, b"\xff" * 50, message(7, tensor("w", MATRIX)[:-8] + bytes(8))[:20], bytes(30)]
    huge = message(5, varint(1 << 3) + varint(1 << 39) + varint(2 << 3) + varint(1) + message(9, struct.pack("<f", 1)))
    for raw in [*broken, message(7, huge), message(7, b"")]:
        path = tmp_path / "broken.onnx"
        path.write_bytes(raw)
        with pytest.raises(ValueError, match=r"broken\.onnx: .*; "):
            OnnxWeights(path)
    rng = np.random.default_rng(0)
    for _ in range(200):  # flipped bytes: read, or refused, never anything else
        raw = bytearray(whole)
        raw[rng.integers(len(raw))] = rng.integers(256)
        path.write_bytes(bytes(raw))
        message_ = ""
        try:
            OnnxWeights(path).read_tensors()
        except ValueError as error:
            message_ = str(error)
        assert not message_ or message_.startswith(str(path))
