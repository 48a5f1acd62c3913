"""GGUF files of Llama-like models: the header as a config.json, the tensors in fp32 under the hub's names.

The header is walked here and not by the `gguf` package, whose reader takes 3.7 s for a vocabulary of 49,152
and believes every count it reads; the package does the dequantising.
"""

from __future__ import annotations

import math
import mmap
import struct
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multihead.data.disk import size_of
from multihead.data.tokenizer import Tokenizer
from multihead.models.gguf_tokenizer import tokenizer_from

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
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


class Gguf:
    """Reads the header only; tensors and tokenizer are made when they are asked for.

    fields: what the header says, by its own keys.  places: name -> (shape, kind, byte where it begins).
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
            raise ValueError(f"{path}: not a sound GGUF file of {size:,} bytes ({error}); fetch it again") from None
        self.architecture = str(self.fields.get("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            raise ValueError(
                f"{path}: architecture {self.architecture[:40]!r} is not supported in GGUF, only "
                f"{', '.join(ARCHITECTURES)}; fetch the model as safetensors"
            )
        self.config = self._config()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return tokenizer_from(self.path, self.fields)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The hub's names -> fp32"""
        return {new: self._tensor(name, new) for name, new in self._names().items()}

    def _names(self) -> dict[str, str]:
        """GGUF's names -> the hub's. A tensor we do not know is an error: the answers would be wrong."""
        found = {}
        for name in self.places:
            stem, _, kind = name.rpartition(".")
            block, _, part = stem.rpartition(".")
            if name == "rope_freqs.weight":
                continue  # in the config
            if part not in NAMES or kind not in ("weight", "bias") or (block and not block.startswith("blk.")):
                raise ValueError(f"{self.path}: tensor {name[:80]!r} is unknown; fetch the model as safetensors")
            layer = f"model.layers.{block.removeprefix('blk.')}." if block else ""
            found[name] = f"{layer}{NAMES[part]}.{kind}"
        return found

    def _tensor(self, name: str, new: str) -> Tensor:
        try:
            import gguf
        except ImportError:
            raise ValueError(f"{self.path}: reading GGUF needs a package; run pip install 'multihead[gguf]'") from None
        shape, kind, begin = self.places[name]
        where = f"{self.path}: tensor {name!r}"
        try:
            quantized = gguf.GGMLQuantizationType(kind)
            block, width = gguf.GGML_QUANT_SIZES[quantized]
            row = shape[-1] // block * width
            if shape[-1] % block:
                raise ValueError(f"rows of {shape[-1]} are no multiple of blocks of {block}")
            length = row * math.prod(shape[:-1])
            if begin + length > len(self.raw):
                raise ValueError(f"it ends at byte {begin + length:,}, the file at {len(self.raw):,}")
            data = np.frombuffer(self.raw, np.uint8, length, begin).reshape(*shape[:-1], row)
            values = gguf.quants.dequantize(data, quantized)
        except (ValueError, KeyError, NotImplementedError) as error:
            raise ValueError(f"{where}: {error}: cut short or of an unknown kind; fetch it again") from None
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
        """As the hub's config.json has it."""
        wide = self._number("embedding_length")
        heads = self._number("attention.head_count")
        if wide % heads:
            raise ValueError(f"{self.path}: width {wide} is no multiple of {heads} heads; fetch it again")
        if self._get("expert_count"):
            raise ValueError(f"{self.path}: a mixture of experts is not supported; use a dense model")
        tokens = self.fields.get("tokenizer.ggml.tokens") or ()
        window = self._get("attention.sliding_window")
        config = {
            "architectures": [ARCHITECTURES[self.architecture]],
            "model_type": self.architecture,
            "vocab_size": self.places["token_embd.weight"][0][0] if "token_embd.weight" in self.places else len(tokens),
            "hidden_size": wide,
            "intermediate_size": self._number("feed_forward_length"),
            "num_hidden_layers": self._number("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._number("attention.head_count_kv", heads),
            "head_dim": self._number("attention.key_length", wide // heads),
            "max_position_embeddings": self._number("context_length"),
            "rms_norm_eps": _round(self._get("attention.layer_norm_rms_epsilon", 1e-6)),
            "rope_theta": _round(self._get("rope.freq_base", 10_000.0)),
            "rope_scaling": self._scaling(),
            "hidden_act": "silu",
            "attention_bias": "blk.0.attn_q.bias" in self.places,
            "mlp_bias": "blk.0.ffn_up.bias" in self.places,
            "tie_word_embeddings": "output.weight" not in self.places,
            "torch_dtype": "float32",
        }
        if window:
            config.update(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=window)
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
            number = self.fields.get(f"tokenizer.ggml.{key}_token_id")
            config[f"{name}_token_id"] = number if isinstance(number, int) else None
        return config

    def _scaling(self) -> dict[str, Any] | None:
        """How rotary positions are stretched; Llama 3.1's GGUF has its factors, not the rule behind them."""
        kind, factor = self._get("rope.scaling.type"), self._get("rope.scaling.factor")
        original = self._get("rope.scaling.original_context_length")
        if "rope_freqs.weight" in self.places:
            shape, _, begin = self.places["rope_freqs.weight"]
            end = begin + 4 * shape[0]
            if len(shape) != 1 or end > len(self.raw):
                raise ValueError(f"{self.path}: tensor 'rope_freqs.weight' is cut short or damaged; fetch it again")
            stored = np.frombuffer(self.raw[begin:end], "<f4")
            theta = self._get("rope.freq_base", 10_000.0)
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

    def _get(self, key: str, default: Any = None) -> Any:
        return self.fields.get(f"{self.architecture}.{key}", default)

    def _number(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if type(value) is not int or not 0 < value < 1 << 32:
            raise ValueError(f"{self.path}: {self.architecture}.{key} is {str(value)[:40]}, no count; fetch it again")
        return value


class _Header:
    """Walks the header; every count is held against the bytes that are left before it is believed."""

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
                raise KeyError(f"{key[:80]} stands twice")
            fields[key] = self._value(*self._take("<I"))
        for _ in range(self._count(tensors, 24)):
            name, (dims,) = self._text(), self._take("<I")
            if name in places or not 1 <= dims <= 4:
                raise KeyError(f"tensor {name[:80]!r} stands twice, or has {dims} dimensions")
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
                raise IndexError(f"tensor {name[:80]!r} begins behind the end of the file")
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
    """The factor of each frequency as Llama 3.1 defines it; llama.cpp's converter does the same."""
    wavelength = 2 * math.pi * theta ** (np.arange(width) / width)
    ratio = rule["original_max_position_embeddings"] / wavelength
    low, high = rule["low_freq_factor"], rule["high_freq_factor"]
    smooth = (ratio - low) / (high - low)
    between = 1 / ((1 - smooth) / rule["factor"] + smooth)
    return np.where(ratio > high, 1.0, np.where(ratio < low, rule["factor"], between))


def _round(value: float) -> float:
    """1e-05 again after a stay in 32 bits."""
    return float(np.format_float_positional(np.float32(value), unique=True, trim="-"))
