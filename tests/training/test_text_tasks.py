"""Tasks that write, and pre-training, from a run file: trained, resumed, scored, saved, opened, used."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from multihead.config import read
from multihead.models import Encoder
from multihead.pretrained import load
from multihead.training.events import Evaluated, Saved
from multihead.training.run import TrainingRun

NAMES = ["Ada", "Bo", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal"]
PLACES = ["Rom", "Oslo", "Lima", "Bonn", "Kiew", "Bern", "Riga", "Cork"]
MODEL = "[model]\ndim = 32\nlayers = 1\nheads = 2\nmax_length = 48\ndropout = 0.1\n"
TOKENS = '[tokenizer]\nkind = "bpe"\nvocab = 320\n'


def sentences(count: int = 64) -> list[tuple[str, str]]:
    pairs = [(NAMES[i % 8], PLACES[i // 8 % 8]) for i in range(count)]
    return [(f"{name} is in {place}", f"{place} 有 {name}") for name, place in pairs]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = sentences()
    (tmp_path / "a.en").write_text("".join(f"{source}\n" for source, _ in rows), encoding="utf-8")
    (tmp_path / "a.zh").write_text("".join(f"{target}\n" for _, target in rows), encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    (tmp_path / "text.txt").write_text("\n".join(f"{a}. {b}。" for a, b in rows), encoding="utf-8")
    (tmp_path / "classes.csv").write_text(
        "text,label\n" + "".join(f"{a},{'early' if a < 'D' else 'late'}\n" for a, _ in rows), encoding="utf-8"
    )
    return tmp_path


def run_text(data: Path, out: str, task: str, files: str, more: str = "", **train: object) -> str:
    options = {"steps": 12, "batch_tokens": 300, "eval_every": 6, "save_every": 5, "lr": 3e-3, "threads": 1} | train
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items())
    decode = "[decode]\nbeam = 2\nmax_length = 12\n" if task in ("translate", "summarize", "denoise") else ""
    scratch = "" if "from =" in more else TOKENS + MODEL
    start = "".join(f"{line}\n" for line in more.split("\n") if line.startswith("from ="))
    rest = "\n".join(line for line in more.split("\n") if not line.startswith("from ="))
    return (
        f'task = "{task}"\nout = "{data / out}"\n{start}[data]\n{files}\n{scratch}[train]\nprecision = "fp32"\n'
        f"{lines}{decode}{rest}\n"
    )


FILES = {
    "translate": 'train = ["{d}/a.en", "{d}/a.zh"]',
    "summarize": 'train = "{d}/pairs.tsv"\nformat = "pairs"',
    "generate": 'train = "{d}/text.txt"',
    "mask": 'train = "{d}/text.txt"',
    "denoise": 'train = "{d}/text.txt"',
}


def training(data: Path, out: str, task: str, more: str = "", files: str = "", **train: object) -> TrainingRun:
    return TrainingRun(read(run_text(data, out, task, (files or FILES[task]).format(d=data), more, **train)))


def finished(run: TrainingRun) -> TrainingRun:
    for _ in run:
        pass
    run.finish(replicates=0)
    return run


def fingerprint(out: Path) -> str:
    return hashlib.sha256((out / "model" / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("task", FILES)
def test_stopped_anywhere_it_goes_on_bit_for_bit_and_the_model_opens(data, task):
    whole = finished(training(data, "whole", task))
    for stop_at in (4, 7):
        run = training(data, f"stopped-{stop_at}", task)
        for event in run:
            if getattr(event, "step", 0) == stop_at and not isinstance(event, Saved | Evaluated):
                break
        torch.manual_seed(stop_at)
        run = finished(training(data, f"stopped-{stop_at}", task))
        assert fingerprint(run.out) == fingerprint(whole.out)
    assert any("loss" in name for name in whole.scores["valid"])
    asked = {"generate": "Ada is", "mask": "Ada <mask> in Rom", "denoise": "Ada <mask> Rom"}.get(task, "Ada is in Rom")
    opened = load(whole.out / "model")
    assert opened.predict([asked]) == whole.loaded.predict([asked])
    assert opened.make_task().options == json.loads(json.dumps(whole.task.options))


def test_the_score_in_training_is_the_score_at_the_end(data):
    run = training(data, "run", "translate", steps=6)
    told = [event for event in run if isinstance(event, Evaluated)]
    run.finish(replicates=0)
    assert told[-1].scores == run.scores["valid"]
    assert "tok:13a" in str(told[-1].scores["bleu"].signature)


def test_from_scratch_it_is_a_family(data):
    transformers = pytest.importorskip("transformers")
    marian = ["model.positions=sinusoidal", "model.norm_first=false"]
    bert = ["model.positions=learned", "model.norm_first=false"]
    for task, kind, shape in (
        ("translate", "MBartForConditionalGeneration", []),
        ("translate", "MarianMTModel", marian),
        ("generate", "LlamaForCausalLM", []),
        ("mask", "BertForMaskedLM", bert),
    ):
        text = run_text(data, kind, task, FILES[task].format(d=data))
        run = finished(TrainingRun(read(text, [*shape, "train.steps=3"])))
        theirs = getattr(transformers, kind).from_pretrained(run.out / "model").eval()
        ours = run.loaded.model.eval()
        torch.manual_seed(0)
        source, target = torch.randint(5, 300, (2, 7)), torch.randint(5, 300, (2, 4))
        given = {"input_ids": source} | ({"decoder_input_ids": target} if task == "translate" else {})
        with torch.no_grad():
            logits = theirs(**given).logits
            torch.testing.assert_close(ours(*given.values()), logits, rtol=1e-4, atol=1e-4)


def test_transformers_writes_the_same_text(data):
    transformers = pytest.importorskip("transformers")
    run = finished(training(data, "run", "translate", steps=60))
    theirs = transformers.MBartForConditionalGeneration.from_pretrained(run.out / "model").eval()
    run.loaded.options["decode"] = {"beam": 1, "max_length": 12}
    (said,) = run.loaded.predict(["Cleo is in Bern"])
    ids = torch.tensor([run.task.tokenizer.encode("Cleo is in Bern").ids])
    written = theirs.generate(ids, max_new_tokens=12, num_beams=1, do_sample=False)[0]
    assert run.task.tokenizer.decode(written.tolist()).strip() == said["target"]


def test_two_vocabularies(data):
    text = run_text(data, "run", "translate", FILES["translate"].format(d=data))
    shape = ["model.positions=sinusoidal", "model.norm_first=false"]  # Marian's; mBART knows one vocabulary only
    run = finished(TrainingRun(read(text, ["tokenizer.shared=false", "tokenizer.kind=char", *shape])))
    reads, writes = run.task.tokenizer, run.task.tokenizer.target
    assert reads is not writes
    assert "有" not in reads.inner.get_vocab()
    assert "有" in writes.inner.get_vocab()
    opened = load(run.out / "model")
    assert opened.predict(["Ada is in Rom"]) == run.loaded.predict(["Ada is in Rom"])
    assert opened.config["model_type"] == "marian"


def test_pre_trained_then_fine_tuned(data):
    hidden = finished(training(data, "mask", "mask", steps=4))
    model = f'from = "{hidden.out / "model"}"'
    run = training(data, "classes", "classify", model, 'train = "{d}/classes.csv"', steps=4)
    body = load(hidden.out / "model", architecture="BertModel").model.body
    assert torch.equal(run.model.body.stem.embedding.weight, body.stem.embedding.weight)
    assert len(finished(run).scores["valid"]) > 2
    noisy = finished(training(data, "denoise", "denoise", steps=4))
    run = training(data, "short", "summarize", f'from = "{noisy.out / "model"}"', steps=4)
    assert torch.equal(run.model.readout.bias, noisy.model.readout.bias)
    assert run.model.readout.weight is run.model.body.decoder.stem.embedding.weight
    assert "lead.rouge1" in finished(run).scores["valid"]


def test_two_halves_are_joined(data):
    reads = finished(training(data, "mask", "mask", steps=2)).out / "model"
    writes = finished(training(data, "text", "generate", steps=2)).out / "model"
    more = f'from = {{ encoder = "{reads}", decoder = "{writes}" }}'
    run = finished(training(data, "run", "translate", more, steps=4))
    assert load(run.out / "model").predict(["Ada is in Rom"]) == run.loaded.predict(["Ada is in Rom"])
    target = run.examples[0]["target"].tolist()
    assert load(writes).tokenizer.decode(target) in (values["target"] for values in run.subjects[0].sides["train"]())
    with pytest.raises(ValueError, match="is not an encoder-decoder; translate needs one"):
        training(data, "wrong", "translate", f'from = "{reads}"')
    with pytest.raises(ValueError, match="is not a causal language model; generate needs"):
        training(data, "wrong2", "generate", f'from = "{reads}"')


@pytest.mark.parametrize("task", ["generate", "translate"])
def test_a_model_that_wrote_is_trained_to_read(data, task):
    """Of a pair the encoder. It learns, and opens as it was saved; tokens see those behind them."""
    writes = finished(training(data, "text", task, steps=2)).out / "model"
    files = 'train = "{d}/classes.csv"\nvalid = "{d}/classes.csv"'
    run = finished(training(data, "run", "classify", f'from = "{writes}"', files, steps=40))
    assert run.subjects[0].wrote == load(writes).architecture
    assert run.scores["valid"]["accuracy"].value > 0.9
    opened = load(run.out / "model")
    assert isinstance(opened.model.body, Encoder)
    asked = ["Ada is in Rom", "Hal is in Oslo"]
    assert opened.predict(asked) == run.loaded.predict(asked)


def test_weights_are_passes_through_each_file(data):
    (data / "few.tsv").write_text("one\teins\ntwo\tzwei\n", encoding="utf-8")
    files = 'train = ["{d}/pairs.tsv", "{d}/few.tsv"]\nvalid = "{d}/few.tsv"\nformat = "pairs"\nweights = [0.5, 4.0]'
    run = training(data, "run", "translate", files=files, steps=40)
    order, shown = run.order, {False: 0, True: 0}
    for step in range(order._before(4)):
        for rows in order[step][1]:
            for row in rows:
                shown[bool(row >= 64)] += 1
    assert shown[True] == 4 * 4 * 2
    assert shown[False] == pytest.approx(4 * 32, abs=20)
    with pytest.raises(ValueError, match=r"data\.weights has 2 numbers for 1 training files"):
        read(run_text(data, "x", "translate", f'train = "{data}/pairs.tsv"\nweights = [1.0, 2.0]'))


def test_what_cannot_be_learnt_is_left_out_and_told(data):
    long = "word " * 100
    with open(data / "pairs.tsv", "a", encoding="utf-8") as file:
        file.write(f"{long}\tshort\nshort\t{long}\n\tempty source\nno target\t\n")
    files = 'train = "{d}/pairs.tsv"\nvalid = "{d}/pairs.tsv"\nformat = "pairs"'
    for again in (False, True):  # the second time from the cache, the tokenizer too
        run = training(data, "run", "translate", '[translate]\nlanguage = "zh"', files=files)
        notes = "\n".join(run.examples.notes)
        assert "1 rows are not used: the source is longer than the model's 48 tokens; first: " in notes
        assert "1 rows are not used: the target is longer" in notes
        assert f"{data}/pairs.tsv:65" in notes
        assert len(run.examples) == 64
        assert "1 × empty source" in run.examples.read
        assert "1 × empty target" in run.examples.read
        reading = run.subjects[0].readings["train"]
        assert reading.rejected.reasons == ({} if again else {"empty source": 1, "empty target": 1})
    scores = finished(run)
    assert scores.scores["valid"]["bleu"].value >= 0, "and a long source is translated in parts"
    (said,) = run.loaded.predict([f"{long[:150]}. {long[:150]}."])
    assert said["input_info"]["windows"] > 1


def test_misaligned_files_are_named(data):
    with open(data / "a.en", "a", encoding="utf-8") as file:
        file.write("one more\n")
    with pytest.raises(ValueError, match=r"a\.en:65: the first line without a partner"):
        training(data, "run", "translate")
    (data / "b.en").write_bytes("caf\xe9\n".encode("latin-1"))
    (data / "b.zh").write_text("咖啡\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"b\.en:1: byte 0xe9 .* is not utf-8; .*latin-1"):
        training(data, "run2", "translate", files='train = ["{d}/b.en", "{d}/b.zh"]')


def test_summaries_of_long_texts_say_what_was_left_out(data):
    run = finished(training(data, "run", "summarize", steps=2))
    (said,) = run.loaded.predict(["word " * 100])
    assert said["input_info"]["truncated"] > 30


def test_a_document_is_read_packed_and_its_end_held_out(data):
    text = "".join(f"{a}. {b}。\n" for a, b in sentences(640))
    (data / "long.txt.gz").write_bytes(gzip.compress(text.encode()))
    run = training(data, "run", "generate", files='train = "{d}/long.txt.gz"', steps=4)
    valid = "".join(values["text"] for values in run.subjects[0].sides["valid"]())
    assert text.endswith(valid)
    assert len(valid) == len(text) - int(len(text) * 0.9)
    tokens = run.examples.files[0]
    decoded = run.task.tokenizer.decode(tokens.tolist())
    assert decoded == text.removesuffix(valid)
    assert finished(run).scores["valid"]["bits_per_character"].value > 0


TRAINED = """
import sys
from pathlib import Path
from multihead.machine.memory import peak_bytes
from multihead.config import read
from multihead.training.run import TrainingRun
run = TrainingRun(read(Path(sys.argv[1])))
for _ in run:
    pass
print(len(run.examples), peak_bytes())
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path):
    """30 MB of text, 60 MB of tokens, beside 1 MB; a corpus of 1 GB may need 200 MB more."""
    line = "the quick brown fox jumps over the lazy dog and {} runs away from it again and again\n"
    valid = tmp_path / "valid.txt"
    valid.write_text("the quick brown fox jumps over the lazy dog\n" * 20, encoding="utf-8")
    found = {}
    for size in (1, 30):
        path = tmp_path / f"{size}.txt"
        with open(path, "w", encoding="utf-8") as file:
            for i in range(size * 1_000_000 // len(line)):
                file.write(line.format(i))
        files = f'train = "{path}"\nvalid = "{valid}"'
        text = run_text(tmp_path, f"run-{size}", "generate", files, steps=1200, eval_every=1200, save_every=1200)
        (tmp_path / "run.toml").write_text(text.replace('kind = "bpe"', 'kind = "char"'), encoding="utf-8")
        said = subprocess.run(
            [sys.executable, "-c", TRAINED, str(tmp_path / "run.toml")], check=True, capture_output=True, text=True
        )
        found[size] = [int(number) for number in said.stdout.split()]
    assert found[30][0] > 25 * found[1][0]
    assert found[30][1] - found[1][1] < 40_000_000
