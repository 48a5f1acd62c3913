"""OpenAI's Whisper checkpoints (`tiny.en.pt`): a zip archive with a pickle of sizes and tensors.

Why it is safe to open one from anywhere: only the zip layout is taken, with nothing in it compressed and a bounded
table of tensors, so it cannot grow; and torch's `weights_only` unpickler (torch 2.6 or later) knows an allow-list of
opcodes and of globals (tensors, storages, plain containers), imports nothing and calls nothing else. What comes out is
checked to be two dictionaries of whole numbers and dense tensors.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from multihead.io.weights import DTYPES, _check_zip
from multihead.io.whisper_layout import whisper_config

SIZES = {  # theirs -> config.json's
    "n_mels": "num_mel_bins",
    "n_vocab": "vocab_size",
    "n_audio_ctx": "max_source_positions",
    "n_audio_state": "d_model",
    "n_audio_head": "encoder_attention_heads",
    "n_audio_layer": "encoder_layers",
    "n_text_ctx": "max_target_positions",
    "n_text_state": "d_model",
    "n_text_head": "decoder_attention_heads",
    "n_text_layer": "decoder_layers",
}
PARTS = {
    "attn_ln": "self_attn_layer_norm",
    "cross_attn_ln": "encoder_attn_layer_norm",
    "mlp_ln": "final_layer_norm",
    "mlp.0": "fc1",
    "mlp.2": "fc2",
    **{
        f"{theirs}.{part}": f"{ours}.{projection}"
        for theirs, ours in (("attn", "self_attn"), ("cross_attn", "encoder_attn"))
        for part, projection in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("out", "out_proj"))
    },
}
OUTSIDE = {
    "positional_embedding": "embed_positions.weight",
    "token_embedding.weight": "embed_tokens.weight",
    **{f"{norm}.{leaf}": f"layer_norm.{leaf}" for norm in ("ln", "ln_post") for leaf in ("weight", "bias")},
    **{f"conv{n}.{leaf}": f"conv{n}.{leaf}" for n in (1, 2) for leaf in ("weight", "bias")},
}
BLOCK = re.compile(r"(encoder|decoder)\.blocks\.(\d+)\.(.+)\.(weight|bias)")


def read_openai_whisper(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return config.json and the tensors under the hub's names (`model.encoder.conv1.weight`, …), mapped."""
    path = Path(path)
    sizes, tensors = _load(path)
    hub = {_hub_name(name, path): tensor for name, tensor in tensors.items() if name != "decoder.mask"}
    config = whisper_config(hub, sizes["n_audio_head"], sizes["n_text_head"], str(path))
    for size, key in SIZES.items():
        if sizes[size] != config[key]:
            raise ValueError(f"{path}: {size} is {sizes[size]}, its tensors make it {config[key]}; fetch it again")
    return config, hub


def _load(path: Path) -> tuple[dict[str, int], dict[str, Tensor]]:
    if not _check_zip(path):
        raise ValueError(f"{path}: no zip archive, as OpenAI's checkpoints are; convert it to safetensors")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:
        raise ValueError(f"{path}: holds more than tensors, or is damaged; nothing was run, fetch it again") from None
    except Exception as error:  # torch raises what its parsers raise: KeyError, EOFError, RuntimeError, struct.error
        reason = (str(error).splitlines() or [""])[0][:160]
        raise ValueError(
            f"{path}: cannot be read ({type(error).__name__}: {reason}): damaged; fetch it again"
        ) from None
    if not isinstance(content, dict) or not {"dims", "model_state_dict"} <= content.keys():
        raise ValueError(f"{path}: no Whisper checkpoint: dims and model_state_dict are wanted; check the file")
    sizes, tensors = content["dims"], content["model_state_dict"]
    if not isinstance(sizes, dict) or not all(type(sizes.get(name)) is int for name in SIZES):
        raise ValueError(f"{path}: its dims are not the sizes of a Whisper; fetch it again")
    if not isinstance(tensors, dict) or not tensors:
        raise ValueError(f"{path}: its model_state_dict holds no tensor; fetch it again")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(f"{path}: {str(name)[:80]!r} is a {type(tensor).__name__}, no tensor; fetch it again")
        if tensor.layout != torch.strided or tensor.dtype not in DTYPES or tensor.is_meta:
            raise ValueError(f"{path}: tensor {name!r}: {tensor.dtype} {tensor.layout} is not supported; save it dense")
    return sizes, {name: tensor.detach() for name, tensor in tensors.items()}


def _hub_name(name: str, path: Path) -> str:
    side, _, rest = name.partition(".")
    if side in ("encoder", "decoder"):
        if rest in OUTSIDE:
            return f"model.{side}.{OUTSIDE[rest]}"
        match = BLOCK.fullmatch(name)
        if match is not None and match[3] in PARTS:
            return f"model.{side}.layers.{match[2]}.{PARTS[match[3]]}.{match[4]}"
    raise ValueError(f"{path}: tensor {name[:80]!r} has no place in a Whisper; nothing was loaded")
