"""CTranslate2's model.bin and OpenAI's .pt: made here, read back, cut and damaged."""

import struct
from pathlib import Path

import pytest
import torch

from multihead.io.ctranslate2 import read_ctranslate2
from multihead.io.openai_whisper import read_openai_whisper


def text(name: str) -> bytes:
    raw = name.encode() + b"\0"
    return struct.pack("<H", len(raw)) + raw


def variable(name: str, tensor: torch.Tensor) -> bytes:
    kinds = {torch.float32: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.float16: 4}
    raw = tensor.numpy().tobytes()
    shape = struct.pack(f"<B{tensor.dim()}I", tensor.dim(), *tensor.shape)
    return text(name) + shape + struct.pack("<BI", kinds[tensor.dtype], len(raw)) + raw


def file_of(**tensors: torch.Tensor) -> bytes:
    head = struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<II", 3, len(tensors))
    return (
        head + b"".join(variable(*pair) for pair in tensors.items()) + struct.pack("<I", 1) + text("alias") + text("a")
    )


WEIGHT = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
SCALE = 127 / WEIGHT.abs().amax(dim=1)
CONTENT = file_of(a=WEIGHT, h=WEIGHT.half(), q=(WEIGHT * SCALE[:, None]).round().to(torch.int8), q_scale=SCALE)


def test_float_half_and_int8(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(CONTENT)
    tensors = read_ctranslate2(path)
    assert set(tensors) == {"a", "h", "q", "alias"}
    assert torch.equal(tensors["a"], WEIGHT)
    assert torch.equal(tensors["alias"], WEIGHT)
    assert torch.equal(tensors["h"], WEIGHT.half())
    torch.testing.assert_close(tensors["q"], WEIGHT, atol=float((0.51 / SCALE).max()), rtol=0)


def test_every_cut_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    for end in range(1, len(CONTENT)):
        path.write_bytes(CONTENT[:end])
        with pytest.raises(ValueError, match=r"model.bin: .*"):
            read_ctranslate2(path)
    for place in range(40):  # whatever the first bytes say, the answer is tensors or one error
        path.write_bytes(CONTENT[:place] + b"\xff" + CONTENT[place + 1 :])
        try:
            read_ctranslate2(path)
        except ValueError as error:
            assert "model.bin" in str(error)  # noqa: PT017


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('executed')",)


@pytest.mark.parametrize("content", [{"dims": Evil()}, {"a": torch.ones(2)}, {"dims": {}, "model_state_dict": {}}, [1]])
def test_checkpoints_that_are_no_whisper(content: object, tmp_path: Path) -> None:
    path = tmp_path / "tiny.pt"
    torch.save(content, path)
    with pytest.raises(ValueError, match=r"tiny.pt: "):
        read_openai_whisper(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"tiny.pt: "):
        read_openai_whisper(path)
