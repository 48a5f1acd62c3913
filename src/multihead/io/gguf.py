"""GGUF files of Llama-like models: the header as a config.json, the tensors in fp32 under the hub's names.

The header is parsed here and not by the `gguf` package, whose reader takes 3.7 s for a vocabulary of 49,152 and does
not check the counts it reads; the package does the dequantization.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multihead.io.config_ranges import COUNT, RANGES, SCALING_RANGES
from multihead.io.files import size_of
from multihead.io.type_checks import Range, read_value

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
BLOCK = re.compile(r"blk\.(0|[1-9]\d{0,5})")
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}  # model_type -> class
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GGUFFile:
    """A GGUF file of which only the header is read; tensors and tokenizer are made when they are used.

    fields: the header, by its own keys.
    places: name -> (shape, kind, offset in bytes).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        size = size_of(path)
        with path.open("rb") as file:
            self.raw = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self.fields: dict[str, Any] = {}
        self.places: dict[str, tuple[list[int], int, int]] = {}
        try:
            _Header(self.raw).read(self.fields, self.places)
        except (struct.error, IndexError, UnicodeDecodeError, KeyError, OverflowError) as error:
            raise ValueError(f"{path}: not a valid GGUF file of {size:,} bytes ({error}); fetch it again") from None
        self.architecture = str(self.fields.get("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            raise ValueError(
                f"{path}: architecture {self.architecture[:40]!r} is not supported in GGUF, only "
                f"{', '.join(ARCHITECTURES)}; fetch the model as safetensors"
            )
        self.config = self._config()

    @cached_property
    def sizes(self) -> dict[str, list[int]]:
        """Shapes by the hub's names, from the header."""
        return {new: self.places[name][0] for name, new in self._names().items()}

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """fp32 tensors by the hub's names."""
        names, at, before = self._names(), 0, ""
        for begin, end, name in sorted((*self._span(name), name) for name in names):
            # Small entries that all point at the same bytes could fill any memory.
            if begin < at:
                raise ValueError(f"{self.path}: tensor {name!r} overlaps {before!r}; fetch it again")
            at, before = end, name
        return {new: self._tensor(name, new) for name, new in names.items()}

    def _names(self) -> dict[str, str]:
        """Map GGUF's names to the hub's. An unknown tensor raises: the outputs would be wrong."""
        names = {}
        for name in self.places:
            stem, _, kind = name.rpartition(".")
            block, _, part = stem.rpartition(".")
            if name == "rope_freqs.weight":
                continue  # in the config
            if part not in NAMES or kind not in ("weight", "bias") or (block and not BLOCK.fullmatch(block)):
                raise ValueError(f"{self.path}: tensor {name[:80]!r} is unknown; fetch the model as safetensors")
            layer = f"model.layers.{block.removeprefix('blk.')}." if block else ""
            names[name] = f"{layer}{NAMES[part]}.{kind}"
        return names

    def _span(self, name: str) -> tuple[int, int]:
        """Return the first byte of a tensor and the one after its last, both inside the file."""
        try:
            import gguf
        except ImportError:
            raise ValueError(f"{self.path}: reading GGUF needs a package; run pip install 'multihead[gguf]'") from None
        shape, kind, begin = self.places[name]
        try:
            block, width = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
            if shape[-1] % block:
                raise ValueError(f"rows of {shape[-1]} are not a multiple of blocks of {block}")
            end = begin + math.prod(shape) // block * width
            if end > len(self.raw):
                raise ValueError(f"it ends at byte {end:,}, the file at {len(self.raw):,}")
        except (ValueError, KeyError) as error:
            raise self._read_error(name, error) from None
        return begin, end

    def _read_error(self, name: str, error: Exception) -> ValueError:
        return ValueError(f"{self.path}: tensor {name!r}: {error}: cut short or of an unknown kind; fetch it again")

    def _tensor(self, name: str, new: str) -> Tensor:
        shape, kind, _ = self.places[name]
        begin, end = self._span(name)
        where = f"{self.path}: tensor {name!r}"
        import gguf

        try:
            data = np.frombuffer(self.raw, np.uint8, end - begin, begin).reshape(*shape[:-1], -1)
            values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType(kind))
        except (ValueError, KeyError, NotImplementedError) as error:
            raise self._read_error(name, error) from None
        # A copy: plain fp32 comes as a view of the file, which is read-only.
        tensor = torch.from_numpy(np.array(values, np.float32).reshape(shape))
        if self.architecture == "llama" and ".self_attn." in new and new.split(".")[-2] in ("q_proj", "k_proj"):
            heads = self.config["num_attention_heads" if "q_proj" in new else "num_key_value_heads"]
            if tensor.shape[0] % (2 * heads):
                raise ValueError(f"{where}: {list(tensor.shape)} does not divide into {heads} heads; fetch it again")
            # llama.cpp stores rotary pairs side by side; the hub pairs column i with i + width/2.
            tensor = tensor.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(tensor.shape)
        return tensor

    def _config(self) -> dict[str, Any]:
        """Return the header as the hub's config.json."""
        wide = self._number("embedding_length")
        heads = self._number("attention.head_count")
        if wide % heads:
            raise ValueError(
                f"{self.path}: embedding_length {wide} is not a multiple of attention.head_count {heads}; "
                "fetch it again"
            )
        if self._read("expert_count", int | None, None):
            raise ValueError(f"{self.path}: a mixture of experts is not supported; use a dense model")
        window = self._read("attention.sliding_window", int | None, None, (0, COUNT))
        token = (-1, 2**32)  # range of a token id; the model's own bound is its embedding table
        config = {
            "architectures": [ARCHITECTURES[self.architecture]],
            "model_type": self.architecture,
            "vocab_size": self._rows(),
            "hidden_size": wide,
            "intermediate_size": self._number("feed_forward_length"),
            "num_hidden_layers": self._number("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._number("attention.head_count_kv", heads),
            "head_dim": self._number("attention.key_length", wide // heads),
            "max_position_embeddings": self._number("context_length"),
            "rms_norm_eps": _round(self._read("attention.layer_norm_rms_epsilon", float, 1e-6, RANGES["norm_eps"])),
            "rope_theta": _round(self._read("rope.freq_base", float, 10_000.0, RANGES["rotary_theta"])),
            "rope_scaling": self._read_scaling(),
            "hidden_act": "silu",
            "attention_bias": "blk.0.attn_q.bias" in self.places,
            "mlp_bias": "blk.0.ffn_up.bias" in self.places,
            "tie_word_embeddings": "output.weight" not in self.places,
            "torch_dtype": "float32",
        }
        if window:
            config.update(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=window)
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
            config[f"{name}_token_id"] = self._field(f"tokenizer.ggml.{key}_token_id", int | None, None, token)
        return config

    def _rows(self) -> int:
        """Return the number of tokens of the model."""
        if "token_embd.weight" not in self.places:
            raise ValueError(f"{self.path}: tensor 'token_embd.weight' is missing; fetch it again")
        return self.places["token_embd.weight"][0][0]

    def _read_scaling(self) -> dict[str, Any] | None:
        """Return the rotary scaling; Llama 3.1's GGUF has its factors, not the rule behind them."""
        kind = self._read("rope.scaling.type", str | None, None)
        factor = self._read("rope.scaling.factor", float | None, None, SCALING_RANGES["factor"])
        original = self._read("rope.scaling.original_context_length", int | None, None, SCALING_RANGES["original"])
        if "rope_freqs.weight" in self.places:
            shape, stored_as, begin = self.places["rope_freqs.weight"]
            end = begin + 4 * shape[0]
            if len(shape) != 1 or stored_as != 0 or end > len(self.raw):  # 0: fp32
                raise ValueError(f"{self.path}: tensor 'rope_freqs.weight' is cut short or damaged; fetch it again")
            stored = np.frombuffer(self.raw[begin:end], "<f4")
            theta = self._read("rope.freq_base", float, 10_000.0, RANGES["rotary_theta"])
            rule = {"factor": float(stored.max()), "low_freq_factor": 1.0, "high_freq_factor": 4.0}
            rule["original_max_position_embeddings"] = original or 8192
            if not np.allclose(stored, _llama3(len(stored), theta, rule), rtol=1e-4):
                raise ValueError(
                    f"{self.path}: rope_freqs.weight follows no known rule; fetch the model as safetensors"
                )
            return {"rope_type": "llama3", **rule}
        if kind in (None, "none"):
            return None
        if kind == "linear":
            return {"rope_type": "linear", "factor": factor}
        if kind == "yarn":
            return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
        raise ValueError(
            f"{self.path}: rope.scaling.type {str(kind)[:40]!r} is unknown; fetch the model as safetensors"
        )

    def _field(self, key: str, kind: Any, default: Any, limits: Range | None = None) -> Any:
        try:
            return read_value(self.fields, key, kind, default, limits)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}; fetch it again") from None

    def _read(self, key: str, kind: Any, default: Any, limits: Range | None = None) -> Any:
        return self._field(f"{self.architecture}.{key}", kind, default, limits)

    def _number(self, key: str, default: int | None = None) -> int:
        return int(self._read(key, int, default, (1, COUNT)))


class _Header:
    """Parse the header; every count is checked against the remaining bytes before it is used."""

    def __init__(self, raw: memoryview) -> None:
        self.raw, self.at = raw, 0

    def read(self, fields: dict[str, Any], places: dict[str, tuple[list[int], int, int]]) -> None:
        magic, version = self._take("<4sI")
        if magic != b"GGUF" or version not in (2, 3):
            raise IndexError(f"it begins with {magic!r}, version {version}; GGUF 2 and 3 are known")
        tensors, count = self._take("<QQ")
        for _ in range(self._count(count, 12)):
            key = self._text()
            if key in fields:
                raise KeyError(f"{key[:80]} appears twice")
            fields[key] = self._value(*self._take("<I"))
        for _ in range(self._count(tensors, 24)):
            name, (dims,) = self._text(), self._take("<I")
            if name in places or not 1 <= dims <= 4:
                raise KeyError(f"tensor {name[:80]!r} appears twice, or has {dims} dimensions")
            shape = list(self._take(f"<{dims}Q"))[::-1]
            if not 0 < math.prod(shape) < 1 << 40:
                raise KeyError(f"tensor {name[:80]!r} has shape {shape}")
            kind, offset = self._take("<IQ")
            places[name] = shape, kind, offset
        step = fields.get("general.alignment", 32)
        if type(step) is not int or not 1 <= step <= 1 << 16:
            raise KeyError(f"general.alignment is {step}")
        start = -(-self.at // step) * step
        for name, (shape, kind, offset) in places.items():
            if start + offset >= len(self.raw):
                raise IndexError(f"tensor {name[:80]!r} begins after the end of the file")
            places[name] = shape, kind, start + offset

    def _take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return values

    def _count(self, count: int, width: int) -> int:
        if count * width > len(self.raw) - self.at:
            raise IndexError(f"{count:,} entries at byte {self.at:,} do not fit")
        return count

    def _text(self) -> str:
        (length,) = self._take("<Q")
        self._count(length, 1)
        self.at += length
        return str(self.raw[self.at - length : self.at], "utf-8")

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == STRING:
            return self._text()
        if kind != ARRAY:
            return self._take("<" + SCALARS[kind])[0]
        inner, count = self._take("<IQ")
        if inner in SCALARS:
            return list(self._take(f"<{self._count(count, struct.calcsize(SCALARS[inner]))}{SCALARS[inner]}"))
        if depth > 2:
            raise KeyError("lists nested too deep")
        return [self._value(inner, depth + 1) for _ in range(self._count(count, 8))]


def _llama3(width: int, theta: float, rule: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return the factor of each frequency as Llama 3.1 and llama.cpp's converter define it."""
    wavelength = 2 * math.pi * theta ** (np.arange(width) / width)
    ratio = rule["original_max_position_embeddings"] / wavelength
    low, high = rule["low_freq_factor"], rule["high_freq_factor"]
    smooth = (ratio - low) / (high - low)
    between = 1 / ((1 - smooth) / rule["factor"] + smooth)
    return np.where(ratio > high, 1.0, np.where(ratio < low, rule["factor"], between))


def _round(value: float) -> float:
    """Return the short decimal of a 32-bit float: 1e-05 again."""
    return float(np.format_float_positional(np.float32(value), unique=True, trim="-"))
