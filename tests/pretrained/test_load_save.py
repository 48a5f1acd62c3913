"""Opening and saving a model's directory: whatever layout it has, and whatever is wrong with it."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import multihead as mh
from multihead.data.readers.read import read_records
from multihead.inference import Pipeline
from multihead.models import ClassifierReadout, Decoder, Encoder, EncoderDecoder, ModelConfig, TaskModel
from multihead.models.families import native_config
from multihead.pretrained import as_encoder, create, join, load, save, with_readout
from multihead.text.tokenizer import Tokenizer
from multihead.training.from_scratch import with_vocabulary

transformers = pytest.importorskip("transformers")
V = 41
TOKENS = torch.arange(12).view(2, 6) + 5


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A few small models of transformers."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    bert = transformers.BertConfig(
        vocab_size=V,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=12,
    )
    gpt2 = transformers.GPT2Config(
        vocab_size=V, n_embd=16, n_layer=2, n_head=2, n_positions=12, bos_token_id=0, eos_token_id=0
    )
    models = {
        "bert": transformers.BertModel(bert),
        "masked": transformers.BertForMaskedLM(bert),
        "gpt2": transformers.GPT2LMHeadModel(gpt2),
    }
    place = tmp_path_factory.mktemp("made")
    for name, model in models.items():
        for parameter in model.parameters():
            parameter.data.normal_(std=0.3)
        model.save_pretrained(place / name)
    return {name: place / name for name in models}


def copied(directory: Path, to: Path, tensors: Any = None, **config: Any) -> Path:
    """The model at `directory` with other tensors, or other fields in config.json."""
    to.mkdir()
    told = json.loads((directory / "config.json").read_text()) | config
    (to / "config.json").write_text(json.dumps({k: v for k, v in told.items() if v is not ...}))
    save_file(load_file(directory / "model.safetensors") if tensors is None else tensors, to / "model.safetensors")
    return to


def same(a: Any, b: Any) -> bool:
    with torch.no_grad():
        return torch.equal(a.model(TOKENS), b.model(TOKENS))


def test_surface(made: dict[str, Path]) -> None:
    assert mh.load is load
    assert mh.save is save
    assert not mh.load(made["bert"]).model.training


@pytest.mark.parametrize(("name", "prefix"), [("masked", "bert."), ("gpt2", "transformer.")])
def test_the_body_without_its_prefix(name: str, prefix: str, made: dict[str, Path], tmp_path: Path) -> None:
    tensors = load_file(made[name] / "model.safetensors")
    bare = copied(made[name], tmp_path / "bare", {key.removeprefix(prefix): t for key, t in tensors.items()})
    assert same(load(bare), load(made[name]))


def test_old_names_of_norms(made: dict[str, Path], tmp_path: Path) -> None:
    tensors = {
        re.sub(r"LayerNorm\.(weight|bias)", lambda m: "LayerNorm." + {"weight": "gamma", "bias": "beta"}[m[1]], key): t
        for key, t in load_file(made["masked"] / "model.safetensors").items()
    }
    assert any(key.endswith("gamma") for key in tensors)
    assert same(load(copied(made["masked"], tmp_path / "old", tensors)), load(made["masked"]))


def test_shards_and_bin(made: dict[str, Path], tmp_path: Path) -> None:
    there = transformers.GPT2LMHeadModel.from_pretrained(made["gpt2"])
    there.save_pretrained(tmp_path / "shards", max_shard_size="6KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    assert same(load(tmp_path / "shards"), load(made["gpt2"]))
    old = copied(made["gpt2"], tmp_path / "bin")
    (old / "model.safetensors").unlink()
    torch.save(there.state_dict(), old / "pytorch_model.bin")  # tied tensors stand in it twice
    assert same(load(old), load(made["gpt2"]))


def test_harmless_tensors_are_listed_once_and_go_back_out(
    made: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensors = load_file(made["bert"] / "model.safetensors")
    tensors["embeddings.position_ids"] = torch.arange(12)[None]
    with caplog.at_level(logging.INFO):
        loaded = load(copied(made["bert"], tmp_path / "in", tensors))
    assert loaded.unused_names == ["embeddings.position_ids", "pooler.dense.bias", "pooler.dense.weight"]
    assert len([record for record in caplog.records if "pooler.dense.weight" in record.message]) == 1
    save(loaded, tmp_path / "out")
    assert load_file(tmp_path / "out" / "model.safetensors").keys() == tensors.keys()


def test_tied_embeddings_may_stand_under_the_readout_s_name_alone(tmp_path: Path) -> None:
    made = create("llama", "ForCausalLM", decoder=replace(LLAMA, tied=True))
    save(made, tmp_path / "llama")
    tensors = load_file(tmp_path / "llama" / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    assert same(load(copied(tmp_path / "llama", tmp_path / "other", tensors)), made)


def test_patches_are_square(tmp_path: Path) -> None:
    vit = transformers.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    transformers.ViTModel(vit).save_pretrained(tmp_path / "vit")
    with pytest.raises(ValueError, match=r"patch_size is \[16, 8\]; only square patches"):
        load(copied(tmp_path / "vit", tmp_path / "other", patch_size=[16, 8]))


def test_the_body_alone(made: dict[str, Path]) -> None:
    body, whole = load(made["masked"], architecture="BertModel"), load(made["masked"])
    with torch.no_grad():
        assert torch.equal(body.model(TOKENS), whole.model.body(TOKENS))
    assert "cls.predictions.bias" in body.unused_names


def test_how_to_write_comes_from_either_file(made: dict[str, Path], tmp_path: Path) -> None:
    assert load(made["gpt2"]).generation["transformers_version"]  # generation_config.json
    old = copied(made["gpt2"], tmp_path / "old", eos_token_id=[3, 4])
    assert load(old).generation == {"bos_token_id": 0, "eos_token_id": [3, 4]}
    assert load(made["bert"]).generation == {}


def drop(tensors: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in tensors.items() if key != name}


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        (lambda t: drop(t, "encoder.layer.1.output.dense.bias"), {}, "'encoder.layer.1.output.dense.bias' is missing"),
        (lambda t: drop(t, "embeddings.word_embeddings.weight"), {}, "'embeddings.word_embeddings.weight' is missing"),
        (lambda t: t | {"encoder.layer.2.x": torch.ones(1)}, {}, "tensor 'encoder.layer.2.x' is not part"),
        (
            lambda t: t | {"encoder.layer.0.output.dense.bias": torch.ones(25)},
            {},
            r"tensor 'encoder.layer.0.output.dense.bias' is \[25\], config.json requires \[24\]",
        ),
        (
            lambda t: t | {"encoder.layer.0.output.dense.bias": torch.ones(24, dtype=torch.int8)},
            {},
            "'encoder.layer.0.output.dense.bias' is torch.int8",
        ),
        (None, {"architectures": ["BertForTokenClassification"]}, "tensor 'classifier.weight' is missing.*BertModel"),
        (None, {"architectures": ["BertForFun"]}, "'ForFun' of bert .* supported: BertModel, BertForMaskedLM"),
        (None, {"architectures": ["GPT2Model"]}, "'GPT2Model' of bert is not supported"),
        (None, {"architectures": "BertModel"}, "architectures must be a list"),
        (None, {"model_type": "mamba"}, "model_type 'mamba' is not supported; supported: bert, roberta"),
        (None, {"model_type": ["bert"]}, "is not supported"),
        (None, {"model_type": ...}, "model_type None is not supported"),
        (None, {"hidden_size": ...}, "hidden_size is missing; allowed is a whole number from 1"),
        (None, {"hidden_size": "24"}, "hidden_size is '24'; allowed is a whole number from 1"),
        (None, {"hidden_size": 25}, "dim=25 is not a multiple of heads=3"),
        (None, {"hidden_act": "mish"}, "hidden_act is 'mish', which is not supported"),
        (None, {"is_decoder": True}, "is_decoder is True, which is not supported"),
        (None, {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; allowed is"),
        (None, {"num_hidden_layers": 9999}, "names 9,999 layers"),
        (None, {"max_position_embeddings": 10**12}, "allowed is a whole number from 1 to 16,777,216"),
        (None, {"max_position_embeddings": 10**6}, r"is \[12, 24\], config.json requires \[1000000, 24\]"),
    ],
)  # fmt: skip
def test_bad_input(change: Any, config: dict[str, Any], message: str, made: dict[str, Path], tmp_path: Path) -> None:
    tensors = load_file(made["bert"] / "model.safetensors")
    bad = copied(made["bert"], tmp_path / "bad", tensors if change is None else change(tensors), **config)
    with pytest.raises(ValueError, match=message) as caught:
        load(bad)
    assert str(bad) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_labels_that_do_not_fit(made: dict[str, Path], tmp_path: Path) -> None:
    save(with_readout(load(made["bert"]), "ForTokenClassification", ["O", "B"]), tmp_path / "a")
    for named, message in (
        ({"0": "O"}, "names 1 classes, the readout in the file has 2"),
        ({"0": "O", "2": "B"}, "0, 1, 2"),
    ):
        told = json.loads((tmp_path / "a" / "config.json").read_text()) | {"id2label": named}
        (tmp_path / "a" / "config.json").write_text(json.dumps(told))
        (tmp_path / "a" / "multihead.json").unlink(missing_ok=True)
        with pytest.raises(ValueError, match=message):
            load(tmp_path / "a")


def test_what_lies_beside_a_model_is_not_part_of_it(made: dict[str, Path], tmp_path: Path) -> None:
    """A read-me may change after `save`, and the hub's cache is made of links."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "README.md").write_text("first")
    save(load(made["bert"]), tmp_path / "a")
    (tmp_path / "a" / "README.md").write_text("then")
    load(tmp_path / "a")
    for name in ("blobs", "snapshot"):
        (tmp_path / name).mkdir()
    for file in (tmp_path / "a").iterdir():
        if file.suffix != ".md":
            (tmp_path / "blobs" / file.name).write_bytes(file.read_bytes())
            (tmp_path / "snapshot" / file.name).symlink_to(Path("../blobs") / file.name)
    assert load(tmp_path / "snapshot").config == load(tmp_path / "a").config
    for name in ("../blobs/config.json", str(tmp_path / "blobs" / "config.json")):
        told = {"task": None, "options": {}, "sha256": {name: "0"}}
        (tmp_path / "a" / "multihead.json").write_text(json.dumps(told))
        with pytest.raises(ValueError, match="leads out of the directory"):
            load(tmp_path / "a")


def test_a_flipped_bit_is_seen(made: dict[str, Path], tmp_path: Path) -> None:
    save(load(made["bert"]), tmp_path)
    for name in ("model.safetensors", "config.json"):
        file = tmp_path / name
        before = file.read_bytes()
        file.write_bytes(before[:-9] + bytes([before[-9] ^ 1]) + before[-8:])
        with pytest.raises(ValueError, match=f"{re.escape(str(file))}: not what was saved"):
            load(tmp_path)
        file.write_bytes(before)
    load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model\.safetensors: missing, though"):
        load(tmp_path)


def test_an_interrupted_save_is_seen(made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(made["bert"])
    save(loaded, tmp_path)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("multihead.pretrained.save"), "write_tensors", killed)
    with pytest.raises(KeyboardInterrupt):
        save(loaded, tmp_path)
    with pytest.raises(ValueError, match="interrupted"):
        load(tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype, made: dict[str, Path], tmp_path: Path) -> None:
    transformers.BertModel.from_pretrained(made["bert"], dtype=dtype).save_pretrained(tmp_path / "half")
    before = load_file(tmp_path / "half" / "model.safetensors")
    save(load(tmp_path / "half", dtype=None), tmp_path / "same")
    after = load_file(tmp_path / "same" / "model.safetensors")
    assert all(torch.equal(before[key], after[key]) and after[key].dtype == dtype for key in before)
    full = load(tmp_path / "half")
    assert {parameter.dtype for parameter in full.model.parameters()} == {torch.float32}
    save(full, tmp_path / "full")
    assert json.loads((tmp_path / "full" / "config.json").read_text())["dtype"] == "float32"


def test_a_new_readout_on_an_old_body(made: dict[str, Path], tmp_path: Path) -> None:
    old = load(made["bert"])
    new = with_readout(old, "ForSequenceClassification", ["no", "yes", "也许"])
    pooler = load_file(made["bert"] / "model.safetensors")["pooler.dense.weight"]
    assert torch.equal(new.model.readout.dense.weight, pooler)  # pre-trained, so it is used
    save(new, tmp_path, family=True)
    there = transformers.BertForSequenceClassification.from_pretrained(tmp_path)
    assert there.config.id2label == {0: "no", 1: "yes", 2: "也许"}
    with torch.no_grad():
        torch.testing.assert_close(new.model(TOKENS), there.eval()(TOKENS).logits, rtol=0, atol=1e-5)
    assert load(tmp_path).labels == ["no", "yes", "也许"]
    with pytest.raises(ValueError, match="supported: BertModel"):
        with_readout(old, "ForFun")


SMALL = ModelConfig(vocab=V, dim=24, layers=2, heads=3, inner=20, max_length=12)
BART = replace(SMALL, activation="gelu", positions="learned", position_offset=2, embed_norm=True)
T5 = replace(
    SMALL, positions="relative", norm="rms", norm_first=True, norm_eps=1e-6, attention_bias="", inner_bias=False,
    scale=1.0, key_dim=5, gated=True, activation="gelu_tanh",
)  # fmt: skip
BERT = replace(SMALL, activation="gelu", positions="learned", embed_norm=True, token_types=2)
LLAMA = replace(
    SMALL, positions="rotary", norm="rms", norm_first=True, attention_bias="", inner_bias=False, gated=True,
    activation="silu", heads=6, kv_heads=2, tied=False, rotary_theta=500.0,
    rotary_scaling={"kind": "llama3", "factor": 4.0, "low": 1.0, "high": 4.0, "original": 8},
)  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "suffix", "sides"),
    [
        ("bart", "ForConditionalGeneration", {"encoder": BART, "decoder": replace(BART, layers=1)}),
        ("t5", "ForConditionalGeneration", {"encoder": T5, "decoder": T5}),
        ("t5", "ForConditionalGeneration", {"encoder": replace(T5, tied=False), "decoder": replace(T5, tied=False)}),
        ("bert", "ForMaskedLM", {"encoder": BERT}),
        ("llama", "ForCausalLM", {"decoder": LLAMA}),
    ],
)
def test_made_here_opens_there(model_type: str, suffix: str, sides: dict[str, ModelConfig], tmp_path: Path) -> None:
    new = create(model_type, suffix, **sides, config={"pad_token_id": 1, "decoder_start_token_id": 2})
    for parameter in new.model.parameters():
        parameter.data.normal_(std=0.3)
    save(new, tmp_path, family=True)
    there = getattr(transformers, new.architecture).from_pretrained(tmp_path)
    with torch.no_grad():
        if "encoder" in sides and "decoder" in sides:
            ours, theirs = new.model(TOKENS, TOKENS), there(TOKENS, decoder_input_ids=TOKENS).logits
            again = load(tmp_path).model(TOKENS, TOKENS)
        else:
            ours, theirs, again = new.model(TOKENS), there(TOKENS).logits, load(tmp_path).model(TOKENS)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)
    assert torch.equal(ours, again)


def test_what_is_no_family(made: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not bert's: encoder: positions = 'alibi', not 'learned'"):
        create("bert", "ForMaskedLM", encoder=replace(BERT, positions="alibi"))
    loaded = load(made["bert"])
    other = replace(loaded, config={"model_type": "multihead"})
    with pytest.raises(ValueError, match="cannot be saved for transformers: its shape fits no family"):
        save(other, tmp_path / "refused", family=True)
    assert not (tmp_path / "refused").exists()
    save(other, tmp_path / "own")
    assert same(load(tmp_path / "own"), loaded)


def test_join(made: dict[str, Path], tmp_path: Path) -> None:
    """Widths differ; both sides keep their numbers, the cross-attention is new, and gradients reach all of it."""
    joined = load({"encoder": made["bert"], "decoder": made["gpt2"]})
    body, gpt2 = joined.model.body, load(made["gpt2"]).model
    with torch.no_grad():
        memory = body.encoder(TOKENS)
        assert torch.equal(memory, load(made["bert"]).model(TOKENS))
        for block in body.decoder.stack.blocks:
            assert block.cross.k.weight.shape == (16, 24)
            out = block.cross.out.weight.clone()
            block.cross.out.weight.zero_()
            block.cross.out.bias.zero_()
        assert torch.equal(joined.model(TOKENS, TOKENS), gpt2(TOKENS))  # deaf to the memory, it is GPT-2
        block.cross.out.weight.copy_(out)
        assert not torch.equal(joined.model(TOKENS, TOKENS), gpt2(TOKENS))
    assert joined.model.readout.weight is body.decoder.stem.embedding.weight
    joined.model(TOKENS, TOKENS).sum().backward()
    assert all(p.grad is not None for n, p in joined.model.named_parameters() if "types" not in n)
    save(joined, tmp_path)
    with torch.no_grad():
        assert torch.equal(load(tmp_path).model(TOKENS, TOKENS), joined.model(TOKENS, TOKENS))
    with pytest.raises(ValueError, match="encoder: a GPT2LMHeadModel is not an encoder"):
        join(load(made["gpt2"]), load(made["gpt2"]))
    with pytest.raises(ValueError, match="decoder: a BertModel is not a decoder"):
        join(load(made["bert"]), load(made["bert"]))
    with pytest.raises(ValueError, match="joining needs"):
        load({"encoder": made["bert"]})


def test_a_model_that_wrote_reads(made: dict[str, Path], tmp_path: Path) -> None:
    """Its weights are the same; what comes behind a token is seen, and the last token, which saw all, is as it was."""
    writes = load(made["gpt2"])
    reads = as_encoder(writes)
    assert isinstance(reads.model.body, Encoder)
    other = TOKENS.clone()
    other[:, -1] = 3
    with torch.no_grad():
        assert torch.equal(writes.model.body(TOKENS)[:, 0], writes.model.body(other)[:, 0])
        assert not torch.allclose(reads.model(TOKENS)[:, 0], reads.model(other)[:, 0], atol=1e-3)
        one = reads.model.body.stack.blocks[0].attention.q.weight
        assert torch.equal(one, writes.model.body.stack.blocks[0].attention.q.weight)
        alone = TOKENS[:, :1]
        torch.testing.assert_close(reads.model(alone), writes.model.body(alone))
    save(reads, tmp_path)
    assert same(load(tmp_path), reads)
    with pytest.raises(
        ValueError, match="cannot be saved for transformers: it is a causal language model with bidirectional attention"
    ):
        save(reads, tmp_path, family=True)
    pair = load({"encoder": made["bert"], "decoder": made["gpt2"]})
    assert same(as_encoder(pair), load(made["bert"]))
    bert = load(made["bert"])
    assert as_encoder(bert) is bert


def test_a_new_vocabulary_readout_is_tied_to_the_body(made: dict[str, Path], tmp_path: Path) -> None:
    masked = with_readout(load(made["bert"]), "ForMaskedLM")
    assert masked.model.readout.weight is masked.model.body.stem.embedding.weight
    save(masked, tmp_path)
    theirs = transformers.BertForMaskedLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(masked.model(TOKENS), theirs(TOKENS).logits, rtol=1e-4, atol=1e-4)


def test_a_model_that_scores_tokens_is_ready_as_it_comes(tmp_path: Path) -> None:
    """No task was trained here: its body says what it can do, its files how it writes."""
    tokenizer = Tokenizer.train(["the cat sat on the mat"], "bpe", 300)
    special = tokenizer.special
    shape = ModelConfig(vocab=len(tokenizer), dim=16, layers=1, heads=2, max_length=24, positions="learned", pad=0)
    bart = replace(shape, embed_norm=True, position_offset=2, activation="gelu")
    told = {"bos_token_id": special["bos"], "eos_token_id": special["eos"], "pad_token_id": special["pad"]}
    made = {
        "generate": create(
            "gpt2", "LMHeadModel", decoder=replace(shape, norm_first=True, activation="gelu_tanh"), config=told
        ),
        "translate": create(
            "bart", "ForConditionalGeneration", encoder=bart, decoder=bart,
            config=told | {"decoder_start_token_id": special["eos"], "forced_bos_token_id": special["bos"]},
        ),
        "mask": create(
            "bert", "ForMaskedLM",
            encoder=replace(shape, embed_norm=True, token_types=2, activation="gelu", norm_eps=1e-12), config=told,
        ),
    }  # fmt: skip
    for name, loaded in made.items():
        loaded.tokenizer = tokenizer
        save(loaded, tmp_path / name)
        opened = load(tmp_path / name)
        task = opened.make_task()
        assert (task.name, task.size) == (name, 24)
        (said,) = opened.predict(["the <mask> sat"])
        assert {"generate": "text", "translate": "target", "mask": "candidates"}[name] in said
    opened = load(tmp_path / "translate")
    assert opened.make_task().options["start"] == special["eos"]
    assert opened.make_task().options["first"] == [special["bos"]]
    assert opened.make_task().target("cat")[:2] == [special["eos"], special["bos"]], "as BART was taught"
    opened.generation |= {"do_sample": True, "temperature": 0.5, "num_beams": 4, "max_new_tokens": 7}
    decoding = {"sample": True, "temperature": 0.5, "beam": 1, "max_length": 7}
    assert opened.make_task().options["decode"] == decoding


@pytest.mark.parametrize(
    ("task", "row", "message"),
    [
        (
            "translate",
            {"source": "a cat"},
            "row 0: translate needs source and target for evaluation; the row has: source",
        ),
        ("generate", {"prompt": "a cat"}, "row 0: generate needs text for evaluation; the row has: prompt"),
    ],
)
def test_rows_that_cannot_be_scored_are_named(task: str, row: dict[str, Any], message: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["a cat", "a dog"], "bpe", 280)
    config = ModelConfig(vocab=len(tokenizer), dim=16, layers=1, heads=2, max_length=24)
    body = EncoderDecoder(config) if task == "translate" else Decoder(config)
    model = with_vocabulary(body, transform=False)
    special = tokenizer.special
    options = {"start": special["bos"], "stop": [special["eos"]], "size": 24, "overlap": 0}
    loaded = Pipeline(model.eval(), native_config(model), tokenizer, task=task, options=options)
    with pytest.raises(ValueError, match=message):
        loaded.evaluate([row])


def test_what_is_no_model_or_run_is_refused(made: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,b\n", encoding="utf-8")
    for wrong, message in (
        (3, r"give a model as a path or hub:owner/name \(a str\), not as int"),
        ({"encoder": None, "decoder": "x"}, "not as NoneType"),
        (tmp_path / "rows.csv", r"rows.csv: not a model directory or .gguf file"),
        (made["bert"] / "model.safetensors", f"give a directory: {made['bert']}"),
    ):
        with pytest.raises(ValueError, match=message):
            load(wrong)
    with pytest.raises(ValueError, match="expected the path or the text of a run file, not dict"):
        mh.train({"task": "ner"})


def test_wrong_inputs_and_rows_are_told_what_is_wanted() -> None:
    tokenizer = Tokenizer.train(["a fine film"], "bpe", 270)
    model = TaskModel(
        Encoder(ModelConfig(vocab=len(tokenizer), dim=8, layers=1, heads=2)), ClassifierReadout(8, 2, "mean")
    ).eval()
    loaded = Pipeline(
        model, native_config(model), tokenizer, labels=["bad", "good"], task="classify", options={"size": 32}
    )
    for wrong, message in (
        (lambda: loaded.predict(3), "predict expects a list, not int"),
        (lambda: loaded.predict([3]), "input 0: classify expects a text, or an object with text"),
        (lambda: loaded.evaluate(None), "evaluate expects a list of rows such as {text, label}, not NoneType"),
        (lambda: loaded.evaluate({"text": "a", "label": "bad"}), "not dict"),
        (lambda: loaded.evaluate(["a"]), "row 0: classify needs objects with text and label for evaluation, not str"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()


def test_rows_of_any_tag_scheme_are_scored_as_files_are(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["ada bo cleo went home"], "wordpiece", 60)
    config = ModelConfig(vocab=len(tokenizer), dim=16, layers=1, heads=2, max_length=24)
    torch.manual_seed(0)
    labels = ["O", "B-PER", "I-PER"]
    model = TaskModel(Encoder(config), ClassifierReadout(config.dim, len(labels), over="tokens")).eval()
    options = {"size": 24, "overlap": 0}
    loaded = Pipeline(model, native_config(model), tokenizer, labels=labels, task="ner", options=options)
    words = ["ada", "bo", "went", "cleo", "home", "went", "ada", "bo", "cleo"]
    schemes = {
        "BIO": "B I O B B O B I I",
        "IOB1": "I I O I B O I I I",
        "BILOU": "B L O U U O B I L",
        "BMES": "B E O S S O B M E",
    }
    rows = {
        name: {"tokens": words, "tags": [tag if tag == "O" else f"{tag}-PER" for tag in tags.split()]}
        for name, tags in schemes.items()
    }
    scores = [loaded.evaluate(iter([row] * 3)) for row in rows.values()]
    assert all(one == scores[0] for one in scores)
    for row in rows.values():
        file = tmp_path / "test.conll"
        file.write_text("\n".join(map(" ".join, zip(*row.values(), strict=True))) + "\n")
        assert [record.values["tags"] for record in read_records(file, task="ner")] == [rows["BIO"]["tags"]]
    with pytest.raises(ValueError, match=r"row 1: token 2: B-PER is not closed before O"):
        loaded.evaluate([rows["BILOU"], {"tokens": ["ada", "went"], "tags": ["B-PER", "O"]}])
