"""Chat fine-tuning from a run file: trained on answers only, saved with its template, opened, asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from multihead.config import read
from multihead.pretrained import load, save
from multihead.training.dataset import cache_key
from multihead.training.run import TrainingRun

TALKS = {
    "How many legs has a spider?": "Eight.",
    "And a cat?": "Four, as a dog has.",
    "蜘蛛有几条腿？": "八条。",
    "Who are you?": "A small model </s> of few words.",
    "Say nothing.": "No.",
}
MODEL = "[model]\ndim = 48\nlayers = 2\nheads = 2\nmax_length = 64\ndropout = 0.0\n[tokenizer]\nvocab = 320\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    rows = [
        {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]}
        for asked, answered in TALKS.items()
    ]
    rows.append({"messages": [*rows[0]["messages"], *rows[1]["messages"]]})
    (tmp_path / "chats.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    (tmp_path / "text.txt").write_text("How many legs has a spider? Who are you?\n" * 40, encoding="utf-8")
    return tmp_path


def training(place: Path, out: str, more: str = "", files: str = "", **train: object) -> TrainingRun:
    options = {"steps": 2, "batch_tokens": 300, "lr": 3e-3, "threads": 1, "precision": "fp32"} | train
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items())
    files = files or 'train = "{d}/chats.jsonl"\nvalid = "{d}/chats.jsonl"'
    scratch = "" if "from =" in more else MODEL
    start, _, rest = more.partition("\n") if "from =" in more else ("", "", more)
    head = f'task = "generate"\nout = "{place / out}"\n{start}\n[data]\n{files.format(d=place)}\n'
    return TrainingRun(read(f"{head}{scratch}[train]\n{lines}[decode]\nsample = false\nmax_length = 40\n{rest}"))


def finished(run: TrainingRun) -> TrainingRun:
    for _ in run:
        pass
    run.finish(replicates=0)
    return run


def test_conversations_are_learnt_by_heart_saved_and_answered(place):
    run = finished(training(place, "run", steps=120, lr=1e-2, eval_every=120))
    assert run.scores["valid"]["loss"].value < 0.05
    assert "bits_per_character" not in run.scores["valid"]
    assert len(run.examples) == 6, "every conversation is an example of its own"
    opened = load(run.out / "model")
    assert opened.tokenizer.template == run.task.tokenizer.template
    assert len(opened.tokenizer) <= 320
    assert [said["text"] for said in opened.predict(list(TALKS))] == list(TALKS.values())
    first, second = list(TALKS.items())[:2]
    messages = [{"role": "user", "content": first[0]}, {"role": "assistant", "content": first[1]}]
    (said,) = opened.predict([{"messages": [*messages, {"role": "user", "content": second[0]}]}])
    assert said["text"] == second[1]
    task = opened.make_task()
    assert "".join(task.stream(opened.model, task.validate(second[0], "here"))).strip() == second[1]
    rows = [{"messages": [*messages]}]
    assert opened.evaluate(rows)["loss"].value < 0.05


@pytest.mark.parametrize("stop", [3, 6])
def test_a_stopped_run_goes_on_bit_for_bit(place, stop):
    def weights(out: str) -> bytes:
        return (finished(training(place, out, steps=8, save_every=2)).out / "model/model.safetensors").read_bytes()

    whole = weights("whole")
    for event in training(place, "stopped", steps=8, save_every=2):
        if event.step == stop:
            break
    assert any((place / "stopped" / "checkpoints").iterdir())
    assert weights("stopped") == whole


def test_transformers_writes_conversations_alike(place):
    transformers = pytest.importorskip("transformers")
    run = finished(training(place, "run"))
    theirs = transformers.AutoTokenizer.from_pretrained(run.out / "model")
    messages = [{"role": "system", "content": "你好"}, {"role": "user", "content": "Who are you?"}]
    found = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert found == run.task.tokenizer.encode_chat(messages)


def test_a_model_without_a_template_gets_one_and_keeps_its_own(place):
    text = finished(training(place, "text", files='train = "{d}/text.txt"'))
    assert text.task.running
    start = f'from = "{text.out / "model"}"\n'
    run = finished(training(place, "chat", start, steps=120, lr=1e-2, eval_every=120))
    assert load(text.out / "model").tokenizer.template is None
    opened = load(run.out / "model")
    assert opened.tokenizer.template is not None
    assert len(opened.tokenizer) == len(text.task.tokenizer), "its vocabulary is what it was"
    assert opened.predict(["Say nothing."])[0]["text"] == "No."
    assert opened.make_task().prompt({"prompt": "a"}) == text.task.prompt({"prompt": "a"})


def test_a_model_keeps_its_own_template(place):
    text = finished(training(place, "text", files='train = "{d}/text.txt"')).loaded
    told = "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}</s>{% endfor %}"
    text.tokenizer.template = told
    save(text, place / "own")
    run = finished(training(place, "run", f'from = "{place / "own"}"\n'))
    assert load(run.out / "model").tokenizer.template == told
    (place / "own" / "multihead.json").unlink()
    (place / "own" / "chat_template.jinja").write_text(f"{told}{{# other #}}", encoding="utf-8")
    again = training(place, "other", f'from = "{place / "own"}"\n')
    assert again.task.tokenizer.template == f"{told}{{# other #}}"
    keys = [cache_key([], task, "all", {}) for task in (run.task, again.task)]
    assert keys[0] != keys[1], "another template, another cache"


def test_what_is_cut_and_left_out_is_told(place):
    long = [{"role": "user", "content": "word " * 90}, {"role": "assistant", "content": "yes"}]
    ends = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "word " * 90}]
    with open(place / "chats.jsonl", "a", encoding="utf-8") as file:
        for messages in (long, ends, long[:1], "x"):
            file.write(json.dumps({"messages": messages}) + "\n")
    for again in (False, True):  # the second time from the cache
        run = training(place, "run")
        notes = "\n".join(run.examples.notes)
        assert "1 rows are not used: no answer starts within the model's 64 tokens; first: " in notes
        assert f"{place}/chats.jsonl:7" in notes
        whole = len(run.task.tokenizer.encode_chat(ends, add_generation_prompt=False))
        assert f"1 rows are longer than 64 tokens: {whole - 65} tokens at their ends are truncated" in notes
        assert "1 × no assistant turn" in run.examples.read
        assert "1 × no list of messages" in run.examples.read
        assert len(run.examples) == 7
        assert (run.subjects[0].readings["train"].rows > 1) != again  # one row shows that there are some


def test_texts_and_conversations_do_not_mix(place):
    with pytest.raises(
        ValueError, match=r"chats\.jsonl holds conversations, .*text\.txt texts; make each a task of its own"
    ):
        training(place, "run", files='train = "{d}/chats.jsonl"\nvalid = "{d}/text.txt"')
    with pytest.raises(ValueError, match=r"generate.turns needs conversations"):
        training(place, "run", '[generate]\nturns = "all"\n', 'train = "{d}/text.txt"')
    run = training(place, "all", '[generate]\nturns = "all"\nsystem = "Be brief."\n')
    assert run.examples[0]["counted"].all()


def test_both_on_one_trunk(place):
    blocks = (
        f'[[tasks]]\nname = "text"\ntask = "generate"\nauxiliary = true\n[tasks.data]\ntrain = "{place}/text.txt"\n'
        f'[[tasks]]\nname = "chat"\ntask = "generate"\n[tasks.data]\ntrain = "{place}/chats.jsonl"\n'
        f'valid = "{place}/chats.jsonl"\n'
    )
    head = f'out = "{place}/both"\n{MODEL}[train]\nsteps = 6\nthreads = 1\nprecision = "fp32"\n'
    run = finished(TrainingRun(read(head + blocks)))
    opened = load(run.out / "model")
    assert opened.tokenizer.template is not None
    assert opened.options["chat"]
