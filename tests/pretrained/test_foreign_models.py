"""Models from elsewhere whose files ask for too much or for nonsense: one line that names the file and the field."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from multihead.inspection.head_profile import stats
from multihead.io.seal import seal
from multihead.kernels.chunked_cross_entropy import vocabulary_loss
from multihead.models import ClassifierReadout, Encoder, ModelConfig, TaskModel
from multihead.models.families import native_config
from multihead.pretrained import create, load, save
from multihead.text.tokenizer import Tokenizer

Json = dict[str, Any]
torch.set_num_threads(1)
TEXT = "the cat [MASK] on the mat"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A public encoder, a public decoder, and models of our own with and without a task."""
    torch.manual_seed(1)
    place = tmp_path_factory.mktemp("made")
    tokenizer = Tokenizer.train(["the cat sat on the mat"] * 3, "wordpiece", 60)
    special = tokenizer.special
    told = {"bos_token_id": special["cls"], "eos_token_id": special["sep"], "pad_token_id": special["pad"]}
    shape = ModelConfig(vocab=len(tokenizer), dim=16, layers=1, heads=2, max_length=24, positions="learned", pad=0)
    masked = replace(shape, embed_norm=True, token_types=2, activation="gelu", norm_eps=1e-12)
    writer = replace(
        shape, positions="rotary", norm="rms", norm_first=True, gated=True, activation="silu", norm_eps=1e-6,
        attention_bias="", inner_bias=False, dropout=0.0, tied=False,
    )  # fmt: skip
    pair = replace(shape, embed_norm=True, position_offset=2, activation="gelu")
    models = {
        "bert": create("bert", "ForMaskedLM", encoder=masked, config=told),
        "llama": create("llama", "ForCausalLM", decoder=writer, config=told),
        "bart": create("bart", "ForConditionalGeneration", encoder=pair, decoder=pair, config=told),
    }
    own = TaskModel(Encoder(replace(shape, positions="sinusoidal")), ClassifierReadout(16, 2, over="mean")).eval()
    models["own"] = replace(models["bert"], model=own, config=native_config(own), labels=["a", "b"], task="classify")
    models["own"].options = {"size": 24, "overlap": 4}
    models["bart"].task = "translate"
    models["bart"].options = {
        "size": 24, "overlap": 4, "start": special["cls"], "stop": [special["sep"]], "first": [],
        "decode": {"beam": 2, "max_length": 4},
    }  # fmt: skip
    for name, loaded in models.items():
        loaded.tokenizer = tokenizer
        save(loaded, place / name)
    return {name: place / name for name in models}


def copied(directory: Path, to: Path, file: str, change: Callable[[Json], Any]) -> Path:
    """The model with one JSON file changed, under a checksum that fits: a hostile author would see to that."""
    to.mkdir()
    for path in directory.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    content = json.loads((to / file).read_text())
    change(content)
    if file == "multihead.json":
        del content["format"], content["seal"]
        (to / file).write_text(json.dumps(seal(content)))
        return to
    (to / file).write_text(json.dumps(content))
    return resealed(to)


def resealed(directory: Path) -> Path:
    file = directory / "multihead.json"
    manifest = json.loads(file.read_text())
    del manifest["format"], manifest["seal"]
    sums = {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in manifest["sha256"]}
    file.write_text(json.dumps(seal({**manifest, "sha256": sums})))
    return directory


def refusal(model: Path) -> str:
    """What opening and using the model raises."""
    with pytest.raises(ValueError, match=re.escape(str(model))) as caught:
        load(model).predict([TEXT])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def put(*path: str | int, value: Any) -> Callable[[Json], None]:
    def change(content: Any) -> None:
        *before, last = path
        for key in before:
            content = content[key]
        content[last] = value

    return change


EXAMPLES = {
    "head_dim": ("llama", "config.json", put("head_dim", value=10**9), "head_dim is 1000000000"),
    "sines": ("own", "config.json", put("encoder", "max_length", value=2 * 10**9), "encoder: max_length is 2000000000"),
    "hidden_size": ("bert", "config.json", put("hidden_size", value=1e308), "hidden_size is 1e+308"),
    "rope_scaling": ("llama", "config.json", put("rope_scaling", value="x"), "rope_scaling is 'x'"),
    "token": ("llama", "generation_config.json", put("eos_token_id", value=10**6), "eos_token_id is [1000000]"),
    "start": ("bart", "multihead.json", put("options", "start", value=10**6), "options.start is 1000000"),
    "decode": ("bart", "multihead.json", put("options", "decode", value=None), "decode is None; allowed is an object"),
    "size": ("own", "multihead.json", put("options", "size", value=10**40), "options.size is 1"),
    "language": ("bart", "multihead.json", put("options", "language", value=-1), "options.language is -1"),
    "turns": ("bart", "multihead.json", put("options", "turns", value="x"), "options.turns is 'x'"),
    "label": ("own", "config.json", put("id2label", "1", value=None), "id2label: 1 is None; use a string"),
    "beam": ("bart", "multihead.json", put("options", "decode", "beam", value="x"), "decode.beam is 'x'"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_sizes_and_types_are_checked_before_anything_is_built(name: str, made: dict[str, Path], tmp_path: Path) -> None:
    base, file, change, message = EXAMPLES[name]
    if file == "generation_config.json" and not (made[base] / file).exists():
        file = "config.json"
    model = copied(made[base], tmp_path / "model", file, change)
    assert refusal(model).startswith(f"{model / file}: {message}")


def test_a_token_beyond_the_model_is_named_wherever_it_is_read(made: dict[str, Path], tmp_path: Path) -> None:
    """Prediction, scoring, looking into heads and learning read texts on ways of their own."""

    def beyond(content: Json) -> None:
        content["model"]["vocab"]["cat"] = 999

    model = load(copied(made["bert"], tmp_path / "model", "tokenizer.json", beyond))
    message = "makes token 999 of it, this model's tokens are 0 to"
    with pytest.raises(ValueError, match=message):
        model.predict([TEXT])
    with pytest.raises(ValueError, match=message):
        model.evaluate([{"text": "the cat cat cat cat"}] * 8)
    with pytest.raises(ValueError, match=message):
        stats(model, [{"text": "the cat"}])
    with pytest.raises(ValueError, match=message):
        vocabulary_loss(model.model.readout, torch.zeros(1, 2, 16), torch.tensor([[3, 999]]))


def test_a_table_may_have_more_rows_than_the_tokenizer_has_tokens(made: dict[str, Path], tmp_path: Path) -> None:
    """Rows are often padded to a multiple of 64; the likeliest token must not be one that nobody can spell."""
    model = load(made["bert"])
    with torch.no_grad():
        model.model.readout.bias[-1] = 100.0  # the row that no token has
    save(model, tmp_path / "model")

    def fewer(content: Json) -> None:
        vocab = content["model"]["vocab"]
        del vocab[max(vocab, key=vocab.get)]

    (prediction,) = load(copied(tmp_path / "model", tmp_path / "fewer", "tokenizer.json", fewer)).predict([TEXT])
    assert prediction["candidates"]


@pytest.mark.parametrize("name", ["bart", "own"])
def test_windows_without_room_for_a_text(name: str, made: dict[str, Path], tmp_path: Path) -> None:
    """Translation read such a window for ever."""
    model = copied(made[name], tmp_path / "model", "multihead.json", put("options", "size", value=0))
    assert refusal(model).startswith(f"{model}: its window has 0 tokens, but at least 3 are needed")


FILES: dict[str, tuple[str, Any, str]] = {
    "unk_token": ("tokenizer_config.json", {"unk_token": {"a": 1}}, "unk_token.content is None"),
    "pad_token": ("tokenizer_config.json", {"pad_token": 5}, "pad_token is 5"),
    "extra_ids": ("tokenizer_config.json", {"extra_ids": "x"}, "extra_ids is 'x'"),
    "decoder": ("tokenizer_config.json", {"added_tokens_decoder": {"12": "x"}}, "added_tokens_decoder.12 is 'x'"),
    "far": ("tokenizer_config.json", {"added_tokens_decoder": {"x": {}}}, "added_tokens_decoder.x: its key is no"),
    "content": (
        "tokenizer_config.json", {"added_tokens_decoder": {"1": {"content": 1}}}, "added_tokens_decoder.1.content is 1",
    ),
    "templates": ("tokenizer_config.json", {"chat_template": [1]}, "chat_template is [1]"),
    "template": (
        "tokenizer_config.json", {"chat_template": [{"name": "default", "template": 5}]}, "chat_template is 5",
    ),
    "special": ("special_tokens_map.json", {"cls_token": [1]}, "cls_token is [1]"),
    "added": ("added_tokens.json", {"q": None}, "'q' is None"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_beside_a_tokenizer_are_checked(name: str, tmp_path: Path) -> None:
    file, content, message = FILES[name]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))) as caught:
        Tokenizer.load(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / file}: {message}")


def test_a_field_that_is_nan_is_named(made: dict[str, Path], tmp_path: Path) -> None:
    model = copied(made["bert"], tmp_path / "model", "config.json", put("layer_norm_eps", value=float("nan")))
    assert refusal(model).startswith(f"{model / 'config.json'}: the key 'layer_norm_eps': NaN is not JSON")


def bare(directory: Path, to: Path) -> dict[str, torch.Tensor]:
    """Another's directory: no manifest, no weights yet, which are given back."""
    copied(directory, to, "config.json", lambda content: None)
    tensors = {name: tensor.clone() for name, tensor in load_file(to / "model.safetensors").items()}
    for name in ("model.safetensors", "multihead.json"):
        (to / name).unlink()
    return tensors


def test_tensors_without_numbers(made: dict[str, Path], tmp_path: Path) -> None:
    tensors = bare(made["bert"], tmp_path / "model")
    first = next(iter(tensors))
    torch.save({**tensors, first: tensors[first].to("meta")}, tmp_path / "model" / "pytorch_model.bin")
    assert refusal(tmp_path / "model").startswith(
        f"{tmp_path / 'model' / 'pytorch_model.bin'}: tensor {first!r}: without numbers (device meta) is not supported"
    )


@pytest.mark.parametrize("dtype", [{}, ["F32"], None, 7, "C64"])
def test_dtypes_that_are_none(dtype: Any, made: dict[str, Path], tmp_path: Path) -> None:
    save_file(bare(made["bert"], tmp_path / "model"), tmp_path / "model" / "model.safetensors")
    file = tmp_path / "model" / "model.safetensors"
    raw = file.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    first = next(name for name in header if name != "__metadata__")
    header[first]["dtype"] = dtype
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])
    assert refusal(tmp_path / "model").startswith(f"{file}: tensor {first!r}: dtype {str(dtype)[:20]} is not supported")


@pytest.mark.parametrize("shard", ["x" * 5000, "\ud800", "a\nb"])
def test_names_that_no_shard_has(shard: str, made: dict[str, Path], tmp_path: Path) -> None:
    tensors = bare(made["bert"], tmp_path / "model")
    save_file(tensors, tmp_path / "model" / "a.safetensors")
    index = tmp_path / "model" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {**dict.fromkeys(tensors, "a.safetensors"), "x": shard}}))
    message = refusal(tmp_path / "model")
    assert message.startswith(f"{index}: names ")
    assert len(message) < 500


def test_the_command_says_one_line(made: dict[str, Path], tmp_path: Path) -> None:
    """As a user sees it: no traceback, exit 1."""
    model = copied(made["bart"], tmp_path / "model", "multihead.json", put("options", "decode", "beam", value="x"))
    (tmp_path / "in.txt").write_text("the cat\n")
    command = [sys.executable, "-m", "multihead", "predict", str(model), str(tmp_path / "in.txt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"multihead: {model / 'multihead.json'}: decode.beam is 'x'")
    assert done.stderr.count("\n") == 1
