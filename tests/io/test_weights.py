"""A model's files: what is written is read back, and every broken file is told by name, with the way out."""

import hashlib
import json
import os
import pickle
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from multihead.io import files
from multihead.io.weights import read_config, read_tensors, sha256, write_json, write_tensors

torch.set_num_threads(1)
TENSORS = {
    "a.weight": torch.arange(15, dtype=torch.float32).view(3, 5),
    "b.bias": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "c.steps": torch.tensor([7], dtype=torch.int64),
}


def equal(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    return set(found) == set(wanted) and all(
        found[name].dtype == wanted[name].dtype and torch.equal(found[name], wanted[name]) for name in wanted
    )


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def good(path: Path) -> bytes:
    save_file(TENSORS, path)
    return path.read_bytes()


def flipped(path: Path) -> bytes:
    raw = bytearray(good(path))
    raw[raw.index(b"F32")] ^= 1
    return bytes(raw)


def index(directory: Path, places: object, name: str = "model.safetensors") -> None:
    save_file(TENSORS, directory / "one.safetensors")
    (directory / f"{name}.index.json").write_text(json.dumps({"weight_map": places}))


class Code:
    """Unpickling this without care makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def put(name: str, make: Callable[[Path], bytes]) -> Callable[[Path], None]:
    return lambda directory: (directory / name).write_bytes(make(directory / name)) and None  # type: ignore[func-returns-value]


def weights(make: Callable[[Path], bytes]) -> Callable[[Path], None]:
    return put("model.safetensors", make)


def saved(value: object, **options: object) -> Callable[[Path], None]:
    return lambda directory: torch.save(value, directory / "pytorch_model.bin", **options)  # type: ignore[arg-type]


def compressed(directory: Path) -> None:
    torch.save(TENSORS, directory / "plain")
    with zipfile.ZipFile(directory / "plain") as old, zipfile.ZipFile(directory / "pytorch_model.bin", "w") as new:
        for member in old.infolist():
            new.writestr(member.filename, old.read(member), zipfile.ZIP_DEFLATED)


def cut(directory: Path) -> None:
    torch.save(TENSORS, directory / "pytorch_model.bin")
    raw = (directory / "pytorch_model.bin").read_bytes()
    (directory / "pytorch_model.bin").write_bytes(raw[: len(raw) // 2])


def stretched(directory: Path) -> None:
    """A tensor that says it is larger than the bytes it has."""
    torch.save({"w": torch.zeros(64)}, directory / "plain")
    with zipfile.ZipFile(directory / "plain") as old, zipfile.ZipFile(directory / "pytorch_model.bin", "w") as new:
        for member in old.infolist():
            content = old.read(member)
            if member.filename.endswith("data.pkl"):
                assert b"K@" in content
                content = content.replace(b"K@", b"J\xff\xff\xff\x0f")  # 64 -> 268,435,455
            new.writestr(member.filename, content, zipfile.ZIP_STORED)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 90868376\n"
M, P, INDEX = "model.safetensors", "pytorch_model.bin", "model.safetensors.index.json"
# What is put into the directory; the file that the message names; more words of the message, the fix among them.
BROKEN: dict[str, tuple[Callable[[Path], object], str, tuple[str, ...]]] = {
    "no weights": (lambda d: None, "", ("no weights", "model.safetensors")),
    "LFS pointer": (weights(lambda p: LFS), M, ("git lfs pull",)),
    "LFS pointer, bin": (put(P, lambda p: LFS), P, ("git lfs pull",)),
    "empty": (weights(lambda p: b""), M, ("empty", "fetch it again")),
    "a directory": (lambda d: (d / M).mkdir(), M, ("not a regular file",)),
    "7 bytes": (weights(lambda p: b"1234567"), M, ("cut short", "fetch it again")),
    "cut in the header": (weights(lambda p: good(p)[:40]), M, ("cut short", "fetch it again")),
    "cut in the data": (weights(lambda p: good(p)[:-9]), M, ("cut short", "tensor", "fetch it again")),
    "bytes behind the end": (weights(lambda p: good(p) + b"xxxx"), M, ("damaged", "fetch it again")),
    "header of 10 GB": (weights(lambda p: safetensors({}, b"", 10_000_000_000)), M, ("10,000,000,000", "fetch")),
    "header of 2**63": (weights(lambda p: safetensors({}, b"", 2**63)), M, ("cut short", "fetch")),
    "flipped bit in the header": (weights(flipped), M, ("'a.weight'", "G32", "not supported")),
    "header is no JSON": (weights(lambda p: safetensors(b'{"a": ')), M, ("not JSON", "fetch it again")),
    "header is no UTF-8": (weights(lambda p: safetensors(b"\xff\xfe{}")), M, ("not UTF-8", "fetch it again")),
    "header is a list": (weights(lambda p: safetensors([1])), M, ("a list", "object")),
    "header is nested deep": (weights(lambda p: safetensors(b'{"a":' * 99_999)), M, ("deep", "fetch it again")),
    "no tensor": (weights(lambda p: safetensors({"__metadata__": {}})), M, ("no tensor", "fetch it again")),
    "a name twice": (
        weights(lambda p: safetensors(b'{"a":1,"a":2}')), M, ("'a' appears twice", "remove one"),
    ),
    "overlap": (
        weights(lambda p: safetensors({"x": entry(0, 8, [2]), "y": entry(4, 12, [2])}, b"0" * 12)),
        M, ("'y' overlaps", "fetch"),
    ),
    "gap": (
        weights(lambda p: safetensors({"x": entry(0, 8, [2]), "y": entry(12, 20, [2])}, b"0" * 20)),
        M, ("'y' leaves a gap", "fetch"),
    ),
    "out of range": (
        weights(lambda p: safetensors({"x": entry(0, 8, [2]), "y": entry(8, 808, [200])}, b"0" * 16)),
        M, ("'y'", "cut short", "fetch"),
    ),
    "backwards": (weights(lambda p: safetensors({"x": entry(8, 0, [2])}, b"0" * 8)), M, ("'x'", "offsets", "fetch")),
    "shape and bytes differ": (
        weights(lambda p: safetensors({"x": entry(0, 8, [3])}, b"0" * 8)), M, ("'x'", "F32 [3]", "8 bytes", "fetch"),
    ),
    "negative shape": (
        weights(lambda p: safetensors({"x": entry(0, 8, [-2])}, b"0" * 8)), M, ("'x'", "shape", "fetch"),
    ),
    "shape that overflows": (
        weights(lambda p: safetensors({"x": entry(0, 8, [2**61, 2**61])}, b"0" * 8)), M, ("'x'", "damaged", "fetch"),
    ),
    "8-bit float": (
        weights(lambda p: safetensors({"x": entry(0, 2, [2], "F8_E4M3")}, b"00")), M, ("'x'", "F8_E4M3", "BF16"),
    ),
    "an entry that is none": (weights(lambda p: safetensors({"x": 3})), M, ("'x'", "damaged", "fetch")),
    "index: a shard is missing": (
        lambda d: index(d, {"a.weight": "two.safetensors"}), INDEX, ("two.safetensors", "fetch it"),
    ),
    "index: not in its shard": (
        lambda d: index(d, {"z": "one.safetensors"}), INDEX, ("'z'", "one.safetensors", "fetch"),
    ),
    "index: leads out": (
        lambda d: index(d, {"a": "../x.safetensors"}), INDEX, ("'../x.safetensors'", "plain file names"),
    ),
    "index: absolute": (lambda d: index(d, {"a": "/etc/passwd"}), INDEX, ("/etc/passwd", "plain file names")),
    "index: backslashes": (lambda d: index(d, {"a": "..\\x"}), INDEX, ("leads out", "plain file names")),
    "index: of dots": (lambda d: index(d, {"a": ".."}), INDEX, ("leads out", "plain file names")),
    "index: no map": (lambda d: index(d, [1]), INDEX, ("weight_map", "fetch it again")),
    "index: shard is damaged": (
        lambda d: (index(d, {"a": "two.safetensors"}), (d / "two.safetensors").write_bytes(LFS)),
        "two.safetensors", ("git lfs pull",),
    ),
    "bin: code": (
        lambda d: saved({"w": torch.zeros(2), "x": Code(d / "ran")})(d), P, ("rejects", "convert it to safetensors"),
    ),
    "bin: bare pickle with code": (
        lambda d: (d / P).write_bytes(pickle.dumps(Code(d / "ran"))), P, ("convert it to safetensors",),
    ),
    "bin: old format with code": (
        lambda d: saved(Code(d / "ran"), _use_new_zipfile_serialization=False)(d), P, ("convert it to safetensors",),
    ),
    "bin: cut short": (cut, P, ("broken archive", "fetch it again")),
    "bin: text": (put(P, lambda p: b"<html>not found</html>"), P, ("convert it to safetensors",)),
    "bin: compressed": (compressed, P, ("compressed", "convert it to safetensors")),
    "bin: larger than its bytes": (stretched, P, ("cannot be read", "convert it to safetensors")),
    "bin: no table": (saved(torch.zeros(3)), P, ("no table of tensors", "convert it to safetensors")),
    "bin: no tensors": (saved({"epoch": 3}), P, ("'epoch' is a int", "convert it to safetensors")),
    "bin: sparse": (saved({"w": torch.eye(3).to_sparse()}), P, ("'w'", "sparse", "save it dense")),
    "bin: complex": (saved({"w": torch.zeros(2, dtype=torch.complex64)}), P, ("'w'", "complex", "float32")),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_weights_are_told_by_name(tmp_path: Path, case: str) -> None:
    make, name, words = BROKEN[case]
    make(tmp_path)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is looked at below
        read_tensors(tmp_path)
    message = str(caught.value)
    assert str(tmp_path / name) in message
    assert [word for word in words if word not in message] == [], message
    assert "\n" not in message
    assert len(message) < 600
    assert not (tmp_path / "ran").exists(), "code in a pickle was executed"


def test_the_code_would_run_without_care(tmp_path: Path) -> None:
    """The fault of the cases above is real."""
    saved(Code(tmp_path / "ran"))(tmp_path)
    torch.load(tmp_path / P, weights_only=False)
    assert (tmp_path / "ran").exists()


CONFIGS = {
    "missing": (None, ("no such file", "fetch")),
    "empty": (b"", ("empty", "fetch it again")),
    "LFS pointer": (LFS, ("git lfs pull",)),
    "not JSON": (b'{"a": 1,}', ("not JSON at line 1", "fix it")),
    "NaN": (b'{"eps": NaN}', ("NaN is not JSON", "null")),
    "infinity": (b'{"eps": -Infinity}', ("-Infinity is not JSON", "null")),
    "a key twice": (b'{"a": {"heads": 1, "heads": 2}}', ("'heads' appears twice", "remove one")),
    "a list": (b"[1, 2]", ("a list", "object")),
    "a number": (b"3", ("a int", "object")),
    "not UTF-8": (b'{"a": "\xff"}', ("byte 7 is not UTF-8", "save it as UTF-8")),
    "deep": (b"[" * 99_999, ("nested too deep", "fetch it again")),
    "a huge number": (b'{"a": ' + b"9" * 9_999 + b"}", ("digits",)),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_broken_config_is_told_by_name(tmp_path: Path, case: str) -> None:
    content, words = CONFIGS[case]
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_config(tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "config.json") in message
    assert [word for word in words if word not in message] == [], message
    assert "\n" not in message


def test_sizes_are_bounded_before_reading(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(5 << 30)  # takes no room on disk
    with pytest.raises(ValueError, match=r"config\.json: 5,368,709,120 bytes, at most"):
        read_config(tmp_path)


def test_no_directory(tmp_path: Path) -> None:
    for read in (read_config, read_tensors):
        with pytest.raises(ValueError, match="no such directory; check the path"):
            read(tmp_path / "absent")
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match="not a directory; give the directory"):
            read(tmp_path / "file")


def test_good_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'\xef\xbb\xbf{"dim": 3, "name": "\xe5\xa4\xb4"}')
    assert read_config(tmp_path) == {"dim": 3, "name": "头"}


def test_round_trip(tmp_path: Path) -> None:
    write_tensors(tmp_path / M, TENSORS, {"made": "here"})
    assert equal(read_tensors(tmp_path), TENSORS)
    assert equal(load_file(tmp_path / M), TENSORS)
    assert b'"format":"pt"' in (tmp_path / M).read_bytes()
    assert sha256(tmp_path / M) == hashlib.sha256((tmp_path / M).read_bytes()).hexdigest()
    assert os.listdir(tmp_path) == [M]


@pytest.mark.parametrize("zipped", [True, False])
def test_bin(tmp_path: Path, zipped: bool) -> None:
    saved(TENSORS, _use_new_zipfile_serialization=zipped)(tmp_path)
    assert equal(read_tensors(tmp_path), TENSORS)


@pytest.mark.parametrize("name", [M, P])
def test_shards(tmp_path: Path, name: str) -> None:
    places = {}
    for i, (key, tensor) in enumerate(TENSORS.items()):
        shard = f"{i}.{name}"
        places[key] = shard
        (save_file if name == M else torch.save)({key: tensor}, tmp_path / shard)
    (tmp_path / f"{name}.index.json").write_text(json.dumps({"weight_map": places}))
    assert equal(read_tensors(tmp_path), TENSORS)


def test_safetensors_come_first(tmp_path: Path) -> None:
    saved({"w": torch.zeros(1)})(tmp_path)
    save_file(TENSORS, tmp_path / M)
    assert equal(read_tensors(tmp_path), TENSORS)


def test_shared_and_sliced_tensors_are_written(tmp_path: Path) -> None:
    whole = torch.arange(24, dtype=torch.float32).view(4, 6)
    tensors = {"whole": whole, "same": whole, "left": whole[:, :3], "turned": whole.t(), "empty": whole[:0]}
    write_tensors(tmp_path / M, tensors)
    assert equal(read_tensors(tmp_path), tensors)


def test_weights_are_mapped_not_read(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(64 << 20, dtype=torch.uint8)}, tmp_path / M)
    code = f"""
import resource
from pathlib import Path
from multihead.io.weights import read_tensors
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tensors = read_tensors(Path({str(tmp_path)!r}))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, tensors["w"].numel())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown, numbers = map(int, done.stdout.split())
    assert numbers == 64 << 20
    assert grown < 16 << 10, f"{grown} KiB more for 64 MiB of weights"


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_mode_honours_the_umask(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        write_tensors(tmp_path / M, TENSORS)
        write_json(tmp_path / "config.json", {"a": 1})
    finally:
        os.umask(old)
    for name in (M, "config.json"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o666 & ~umask


def test_order_is_write_sync_rename_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: (seen.append(f"sync {os.readlink(f'/proc/self/fd/{fd}')}"), real_sync(fd))
    )
    monkeypatch.setattr(Path, "replace", lambda a, b: (seen.append("rename"), real_replace(a, b)))
    for write in (lambda p: write_tensors(p, TENSORS), lambda p: write_json(p, {"a": 1})):
        seen.clear()
        write(tmp_path / "x")
        assert [line.replace(str(tmp_path), "D") for line in seen] == [
            f"sync D/.x.{os.getpid()}.aside",
            "rename",
            "sync D",
        ]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "config.json", {"old": 1})
    with pytest.raises(ValueError, match=r"config\.json: .*no NaN"):
        write_json(tmp_path / "config.json", {"eps": float("nan")})
    monkeypatch.setattr(files, "sync", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_json(tmp_path / "config.json", {"new": 1})
    assert json.loads((tmp_path / "config.json").read_text()) == {"old": 1}
    assert os.listdir(tmp_path) == ["config.json"]


def test_disk_too_full_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tensors(tmp_path / M, TENSORS)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: files.shutil._ntuple_diskusage(100, 90, 10))
    with pytest.raises(ValueError, match=r"model\.safetensors: no room .* bytes needed, 10 free .*; free some space"):
        write_tensors(tmp_path / M, {"w": torch.zeros(99)})
    monkeypatch.undo()
    assert equal(read_tensors(tmp_path), TENSORS)
    assert os.listdir(tmp_path) == [M]


@pytest.mark.parametrize("naive", [False, True])
def test_disk_full_while_writing(tmp_path: Path, naive: bool) -> None:
    """A real fault: the system refuses the bytes beyond 64 KiB. torch.save, the naive control, loses the old file."""
    path = tmp_path / M
    write_tensors(path, TENSORS)
    before = path.read_bytes()
    write = "torch.save(tensors, path)" if naive else "write_tensors(path, tensors)"
    code = f"""
import resource, signal, torch
from pathlib import Path
from multihead.io.weights import write_tensors
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
path, tensors = Path({str(path)!r}), {{"w": torch.zeros(1 << 20)}}
try:
    {write}
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if naive:
        assert path.read_bytes() != before
        return
    assert path.read_bytes() == before
    assert done.stdout.startswith(f"ValueError {path}: no room to write it: 4,19"), done.stdout + done.stderr
    assert "bytes needed" in done.stdout
    assert os.listdir(tmp_path) == [M]


@pytest.mark.slow
@pytest.mark.parametrize("name", [M, P])
def test_no_flipped_bit_kills(tmp_path: Path, name: str) -> None:
    """Any one bit of the file flipped, in a child: an error of ours or tensors, never a signal or another error."""
    (save_file if name == M else torch.save)(TENSORS, tmp_path / name)
    code = f"""
import random
from pathlib import Path
from multihead.io.weights import read_tensors
path = Path({str(tmp_path / name)!r})
good = path.read_bytes()
bits = random.Random(1).sample(range(8 * len(good)), min(1500, 8 * len(good)))
told = 0
for bit in bits:
    raw = bytearray(good)
    raw[bit // 8] ^= 1 << bit % 8
    path.unlink()
    path.write_bytes(raw)
    try:
        for tensor in read_tensors(path.parent).values():
            tensor.sum()
    except ValueError as error:
        assert str(path) in str(error), error
        told += 1
print(told, len(bits))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told, tried = map(int, done.stdout.split())
    assert 0 < told <= tried


def test_limits_of_this_test_run() -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] in (-1, resource.RLIM_INFINITY), "set only in children"
