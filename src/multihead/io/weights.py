"""A model's files in the hub's layout: config.json, safetensors or PyTorch weights, in one file or in shards.

Everything in a file's header is checked against the file size before it is used; nothing in it is executed.
"""

from __future__ import annotations

import errno
import math
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from multihead.io.files import JSON_LIMIT, MIB, atomic_write, parse_json, read_json, sha256, size_of, write_json

__all__ = ["read_config", "read_tensors", "sha256", "write_json", "write_tensors"]

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
HEADER_LIMIT = 100_000_000  # safetensors' own
LONGEST_NAME = 200  # characters of a shard's
PICKLE_LIMIT = 64 * MIB  # the description of the tensors in a .bin file, without their bytes
# Bytes per number. No supported family uses the missing ones (8-bit floats, complex).
WIDTHS = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
DTYPES = {
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
}  # fmt: skip


def read_config(directory: Path) -> dict[str, Any]:
    """Return config.json."""
    return read_json(_directory(directory) / "config.json", limit=16 * MIB)


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """Return all weights by name, memory-mapped; safetensors are preferred to .bin."""
    directory = _directory(directory)
    kinds: tuple[tuple[str, Callable[[Path], dict[str, Tensor]]], ...] = (
        ("model.safetensors", read_safetensors),
        ("pytorch_model.bin", read_pickle),
    )
    for name, read in kinds:
        if (directory / name).exists():
            return read(directory / name)
        if (directory / f"{name}.index.json").exists():
            return _read_shards(directory / f"{name}.index.json", read)
    raise ValueError(
        f"{directory}: no weights; it needs model.safetensors, or pytorch_model.bin, or the .index.json of their shards"
    )


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write one safetensors file atomically."""
    stored_pointers: set[int] = set()
    ready = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        # safetensors rejects tensors that share memory (tied, or slices of one): those are copied.
        if storage.data_ptr() in stored_pointers or storage.nbytes() != tensor.nbytes:
            tensor = tensor.clone()
        stored_pointers.add(tensor.untyped_storage().data_ptr())
        ready[name] = tensor
    size = sum(tensor.nbytes for tensor in ready.values()) + sum(len(name) + 100 for name in ready)
    with atomic_write(path, size) as new:
        try:
            # transformers does not load a file without the format.
            save_file(ready, new, {"format": "pt", **(metadata or {})})
        except SafetensorError as error:
            text = str(error)
            known = {"os error 28": errno.ENOSPC, "os error 122": errno.EDQUOT, "os error 27": errno.EFBIG}
            number = next((number for words, number in known.items() if words in text), errno.EIO)
            raise OSError(number, text) from error


def read_safetensors(path: Path) -> dict[str, Tensor]:
    header = _check_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in header}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: not a valid safetensors file ({error}); fetch it again") from None


def _check_header(path: Path) -> dict[str, Any]:
    """Return name -> dtype, shape, data_offsets, after checking that all fit the file, in order and without gaps."""
    size = size_of(path)
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if length < 2 or 8 + length > size:
            raise ValueError(
                f"{path}: the header claims {length:,} bytes, the file has {size:,}: cut short or not "
                "safetensors; fetch it again"
            )
        if length > HEADER_LIMIT:
            raise ValueError(f"{path}: a header of {length:,} bytes, {HEADER_LIMIT:,} at most; fetch it again")
        raw = file.read(length)
    try:
        header = parse_json(raw.decode("utf-8"), f"{path}: header")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: header: byte {error.start} is not UTF-8: damaged; fetch it again") from None
    header.pop("__metadata__", None)
    if not header:
        raise ValueError(f"{path}: holds no tensor; fetch it again")
    spans = sorted((*_check_entry(path, name, entry), name) for name, entry in header.items())
    at = 0
    for begin, end, name in spans:
        if begin != at:
            what = "overlaps another tensor" if begin < at else "leaves a gap before it"
            raise ValueError(f"{path}: tensor {name!r} {what} (offset {begin:,}, not {at:,}); fetch the file again")
        at = end
    if at != size - 8 - length:
        raise ValueError(
            f"{path}: the tensors end at byte {8 + length + at:,}, the file at {size:,} "
            f"(last tensor {spans[-1][2]!r}): cut short or damaged; fetch it again"
        )
    return header


def _check_entry(path: Path, name: str, entry: Any) -> tuple[int, int]:
    """Return begin and end of one tensor's bytes, after checking them against its dtype and shape."""
    where = f"{path}: tensor {name!r}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{where}: its header entry is damaged; fetch the file again")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in WIDTHS:
        raise ValueError(f"{where}: dtype {str(dtype)[:20]} is not supported; save it as one of {', '.join(WIDTHS)}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"{where}: its shape or its offsets are not lists of numbers; fetch the file again")
    if WIDTHS[dtype] * math.prod(shape) != offsets[1] - offsets[0]:
        raise ValueError(
            f"{where}: {dtype} {shape} does not fill its {offsets[1] - offsets[0]:,} bytes: damaged; fetch it again"
        )
    return offsets[0], offsets[1]


def _are_sizes(numbers: Any) -> bool:
    return (
        isinstance(numbers, list)
        and len(numbers) <= 8
        and all(type(number) is int and 0 <= number < 1 << 62 for number in numbers)
    )


def read_pickle(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a .bin file; torch's safe unpickler allows tensors and plain containers only."""
    zipped = _check_zip(path)
    try:
        # Files from before 2020 are not zip archives and cannot be memory-mapped.
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        reason = next((line for line in str(error).splitlines() if "Unsupported" in line or "GLOBAL" in line), "")
        raise ValueError(
            f"{path}: the safe unpickler rejects it: it holds more than tensors, or is damaged"
            f"{f' ({reason.strip()[:160]})' if reason else ''}; convert it to safetensors if you trust its source"
        ) from None
    except Exception as error:  # torch raises what its parsers raise: KeyError, EOFError, RuntimeError, struct.error
        reason = (str(error).splitlines() or [""])[0][:160]
        raise ValueError(
            f"{path}: cannot be read ({type(error).__name__}: {reason}): cut short or damaged; "
            "fetch it again or convert it to safetensors"
        ) from None
    if not isinstance(loaded, dict) or not loaded:
        raise ValueError(f"{path}: holds no table of tensors; convert it to safetensors")
    for name, tensor in loaded.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(
                f"{path}: {str(name)[:80]!r} is a {type(tensor).__name__}, not a tensor; convert it to safetensors"
            )
        if tensor.layout != torch.strided or tensor.dtype not in DTYPES or tensor.is_meta:
            what = "without numbers (device meta)" if tensor.is_meta else f"{tensor.dtype} {tensor.layout}"
            raise ValueError(f"{path}: tensor {name!r}: {what} is not supported; save it dense, as float32")
    return {name: tensor.detach() for name, tensor in loaded.items()}


def _check_zip(path: Path) -> bool:
    """Return whether the file is a zip archive; raise ValueError for compressed members, which could grow when read."""
    size = size_of(path)
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return False
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
        raise ValueError(f"{path}: a broken archive ({error}): cut short or damaged; fetch it again") from None
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED:
            raise ValueError(
                f"{path}: {member.filename[:80]!r} is compressed, which torch never does; convert it to safetensors"
            )
        if member.filename.endswith("data.pkl") and member.file_size > PICKLE_LIMIT:
            raise ValueError(f"{path}: its table of tensors has {member.file_size:,} bytes; convert it to safetensors")
    if sum(member.file_size for member in members) > size:
        raise ValueError(f"{path}: its parts are larger than the file of {size:,} bytes; fetch it again")
    return True


def _read_shards(index: Path, read: Callable[[Path], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the tensors of an index, each from the shard that it names."""
    places = read_json(index, JSON_LIMIT).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ValueError(f"{index}: has no weight_map from tensors to files; fetch it again")
    tensors: dict[str, Tensor] = {}
    for shard in sorted({str(shard) for shard in places.values()}):
        if PurePosixPath(shard).name != shard or "\\" in shard or "\0" in shard or shard in ("", ".", ".."):
            raise ValueError(f"{index}: names {shard[:80]!r}, which leads out of the directory; use plain file names")
        if len(shard) > LONGEST_NAME or not shard.isprintable():
            raise ValueError(f"{index}: names {shard[:80]!r}, which is not a valid file name; fetch it again")
        if not (index.parent / shard).exists():
            raise ValueError(f"{index}: names the shard {shard}, which is not there; fetch it into {index.parent}")
        shard_tensors = read(index.parent / shard)
        for name in (name for name, place in places.items() if place == shard):
            if name not in shard_tensors:
                raise ValueError(f"{index}: tensor {name!r} is not in {shard}; fetch index and shards again, together")
            tensors[name] = shard_tensors[name]
    return tensors


def _directory(directory: Path) -> Path:
    directory = Path(directory)
    if not directory.exists():
        raise ValueError(f"{directory}: no such directory; check the path, or write hub:owner/name to fetch a model")
    if not directory.is_dir():
        raise ValueError(f"{directory}: not a directory; give the directory that holds config.json")
    return directory
