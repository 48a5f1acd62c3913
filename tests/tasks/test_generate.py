"""generate: what is counted, what is written, and that streaming writes the same."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from multihead.inference.engine import evaluate, predict_rows
from multihead.models import LanguageModel, ModelConfig
from multihead.tasks import Generate
from multihead.text.chat_template import default_template
from multihead.text.tokenizer import Tokenizer

TEXT = "To be, or not to be: that is the question.\n生存还是毁灭，这是一个问题。🙂\n" * 3
CHAT = (
    "{% for message in messages %}<s>{{ message['role'] }}: {{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"
)


def made(kind: str = "bpe", size: int = 16, positions: str = "learned", **options):
    tokenizer = Tokenizer.train([TEXT], kind, 300)
    special = tokenizer.special
    borders = {"start": special["bos"], "stop": [special["eos"]], "decode": {"max_length": 40}}
    task = Generate(tokenizer, [], size, 0, **(borders | options))
    torch.manual_seed(1)
    config = ModelConfig(
        vocab=len(tokenizer), dim=24, layers=2, heads=2, max_length=size, positions=positions, norm_first=True
    )
    model = LanguageModel(config).eval()
    with torch.no_grad():
        model.body.stem.embedding.weight.mul_(20)
    return model, task


@pytest.mark.parametrize("kind", ["bpe", "char", "unigram"])
def test_characters_and_bytes_of_tokens_are_those_of_the_text(kind):
    _, task = made(kind)
    for text in (TEXT, "a", "🙂 ok ", "未知字符鱻"):
        whole = task.scored_text({"text": text})
        assert (whole.tokens[0], whole.tokens[-1]) == (task.tokenizer.special["bos"], task.tokenizer.special["eos"])
        assert whole.characters.sum() == len(text)
        assert whole.octets.sum() == len(text.encode())
        assert (whole.characters >= 0).all()
    first, last = task.scored_text({"text": "ab", "at": 0, "of": 4}), task.scored_text({"text": "cd", "at": 2, "of": 4})
    assert (first.tokens[0], last.tokens[-1]) == (task.tokenizer.special["bos"], task.tokenizer.special["eos"])
    assert task.tokenizer.special["eos"] not in first.tokens
    assert task.tokenizer.special["bos"] not in last.tokens


def test_every_token_is_scored_once_in_windows():
    model, task = made()
    rows = [{"text": TEXT}, {"text": "or not"}]
    stream = np.concatenate([task.scored_text(row).tokens for row in rows])
    scores = evaluate(model, task, iter(rows), replicates=0).result()
    nats, count = 0.0, 0
    for start in range(0, len(stream) - 1, task.size):
        window = torch.from_numpy(stream[start : start + task.size + 1]).long()[None]
        logits = model(window[:, :-1])
        nats += torch.nn.functional.cross_entropy(logits[0], window[0, 1:], reduction="sum").item()
        count += window.shape[1] - 1
    assert count == len(stream) - 1
    assert scores["loss"].value == pytest.approx(nats / count, rel=1e-5)
    assert scores["perplexity"].value == pytest.approx(math.exp(nats / count), rel=1e-4)
    letters = sum(len(row["text"]) for row in rows)
    assert scores["bits_per_character"].value == pytest.approx(nats / letters / math.log(2), rel=1e-2)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("sample", [False, True])
def test_what_streams_is_what_is_predicted_also_beyond_the_window(positions, sample):
    decoding = {"max_length": 40, "sample": sample, "temperature": 0.7}
    model, task = made("char", positions=positions, decode=decoding)
    rows = [{"prompt": "To be"}, {"prompt": ""}]
    said = [prediction for _, prediction in predict_rows(model, task, rows)]
    assert said[0]["tokens"] > task.size
    for row, prediction in zip(rows, said, strict=True):
        parts = list(task.stream(model, row))
        if not sample:  # draws of a stream hang on its seed, those of an input on its text
            assert "".join(parts) == prediction["text"]
        assert len(parts) > task.size or not row["prompt"]
        assert "".join(task.stream(model, row, turn=3)) == "".join(task.stream(model, row, turn=3))


def test_long_prompts_keep_their_end():
    model, task = made()
    ((_, said),) = predict_rows(model, task, [{"prompt": TEXT}])
    assert said["input_info"]["truncated"] == len(task.prompt({"prompt": TEXT})) - (task.size - 1)
    kept = task.encode({"prompt": TEXT})[0]["tokens"]
    assert task.prompt({"prompt": TEXT})[-len(kept) :] == kept.tolist()


def test_conversations():
    model, task = made(size=64, system="Be brief.")
    assert task.validate("hello", "here") == {"prompt": "hello"}
    task.tokenizer.template = CHAT
    values = task.validate("</s> hello", "here")
    assert values == {"messages": [{"role": "user", "content": "</s> hello"}]}
    ids = task.prompt(values)
    assert ids.count(task.tokenizer.special["eos"]) == 2, "of the template's two messages; the user's is text"
    assert "system: Be brief." in task.tokenizer.decode(ids)
    ((_, said),) = predict_rows(model, task, [values])
    assert said["text"] == said["text"].strip()
    for wrong in (3, {}, {"prompt": 3}, {"messages": []}, {"messages": ["x"]}):
        with pytest.raises(ValueError, match="here: "):
            task.validate(wrong, "here")


def test_the_end_of_a_turn_is_no_unknown_token():
    """In a chat with GPT-2, whose only special token stands for everything."""
    model, task = made()
    told = {"bos": "</s>", "eos": "</s>", "unk": "</s>"}
    task.tokenizer = Tokenizer(task.tokenizer.inner, told, template=default_template("", "</s>"))
    ((_, said),) = predict_rows(model, task, [task.validate("To", "line 1")])
    assert task.prompt(task.validate("To", "line 1")).count(task.tokenizer.special["unk"]) == 1
    assert said.get("input_info", {}).get("unknown", 0) == 0


def test_the_content_of_a_message_is_a_text():
    _, task = made(size=64)
    task.tokenizer.template = CHAT
    parts = [{"type": "text", "text": "To "}, {"type": "text", "text": "be"}]
    given = {"messages": [{"role": "system", "content": "x"}, {"role": "guest", "content": parts, "name": "Ann"}]}
    values = task.validate(given, "line 7")
    assert values["messages"][1] == {"role": "guest", "content": "To be", "name": "Ann"}
    assert given["messages"][1]["content"] is parts
    assert "guest: To be" in task.tokenizer.decode(task.prompt(values))
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    for content in (None, 5, [], {"text": "x"}, ["x"], [picture], [parts[0], picture], [{"type": "text"}]):
        with pytest.raises(ValueError, match=r"line 7: message 2 \(user\): content must be text, not"):
            task.validate({"messages": [given["messages"][0], {"role": "user", "content": content}]}, "line 7")
    with pytest.raises(ValueError, match=r"line 7: message 1 \(user\): content must be text, not None"):
        task.validate({"messages": [{"role": "user"}]}, "line 7")
    for wrong in ("x", {"content": "x"}, {"role": "", "content": "x"}, {"role": 1, "content": "x"}):
        with pytest.raises(ValueError, match="line 7: message 1: a message must be"):
            task.validate({"messages": [wrong]}, "line 7")


def test_n_best_are_told():
    model, task = made(decode={"max_length": 6, "beam": 3, "nbest": 3})
    ((_, said),) = predict_rows(model, task, [{"prompt": "To"}])
    assert len(said["nbest"]) == 3
    assert said["nbest"][0]["text"] == said["text"]


def test_what_ended_a_text_is_told():
    for settings, ends in (
        ({"max_length": 40}, {"stop", "length"}),  # on through the windows
        ({"max_length": 3, "beam": 2, "nbest": 2}, {"stop", "length"}),
        ({"max_length": 40, "beam": 2, "nbest": 2, "forbidden": (1, 2)}, {"window"}),
    ):
        model, task = made(decode=settings)
        task.options["stop"] = [2]
        ((_, said),) = predict_rows(model, task, [{"prompt": "To"}])
        assert said["ended"] in ends
        assert {one["ended"] for one in said.get("nbest", [])} <= ends
    model, task = made(decode={"max_length": 40})
    task.options["stop"] = list(range(len(task.tokenizer)))
    ((_, said),) = predict_rows(model, task, [{"prompt": "To"}])
    assert (said["ended"], said["tokens"]) == ("stop", 1)


def test_a_length_that_counts_the_prompt():
    """As max_length in the generation_config.json of a model that only writes; one for new tokens goes before it."""
    model, task = made(decode={"with_prompt": 24, "beam": 1})
    task.options["stop"] = [-1]
    for prompt in ("To", "To be, or not"):
        room = 24 - len(task.prompt({"prompt": prompt}))
        ((_, said),) = predict_rows(model, task, [{"prompt": prompt}])
        assert (said["tokens"], said["ended"]) == (room, "length")
        assert "".join(task.stream(model, {"prompt": prompt})) == said["text"]
    assert task.max_new_tokens(len(task.encode({"prompt": TEXT})[0]["tokens"])) == 256, "a prompt that was cut"
    task.options["decode"]["max_length"] = 5
    ((_, said),) = predict_rows(model, task, [{"prompt": "To"}])
    assert (said["tokens"], said["ended"]) == (5, "length")
    task.options["decode"] = {"with_prompt": 24}
    assert task.generation_config().sample, "how much is to be written says nothing of how"


def test_a_text_that_may_not_go_on_ends():
    """Every token was written once, and none may come twice: there is nothing left to write."""
    model, task = made("char", size=96)
    task.options["decode"] = {"max_length": 300, "no_repeat_ngram": 1, "forbidden": tuple(task.options["stop"])}
    assert len(task.tokenizer) < 48  # so that half a window holds them all
    ((_, said),) = predict_rows(model, task, [{"prompt": "To"}])
    assert said["tokens"] < 48
    assert said["ended"] == "rules"
    assert len("".join(task.stream(model, {"prompt": "To"}))) < 300


def test_the_shortest_length_counts_from_the_beginning():
    model, task = made(decode={"max_length": 60, "min_length": 10})
    task.options["stop"] = sorted({*range(len(task.tokenizer))} - {5, 6})  # it ends as soon as it may
    prompt = next(TEXT[:end] for end in range(len(TEXT)) if len(task.prompt({"prompt": TEXT[:end]})) == task.size // 2)
    ((_, said),) = predict_rows(model, task, [{"prompt": prompt}])
    assert 10 < said["tokens"] < 20, "its first window has room for 8: in the second, 2 more are wanted, not 10"


def test_rows_of_the_table_that_are_no_tokens_are_never_written():
    model, task = made(decode={"max_length": 8})
    wide = LanguageModel(replace(model.body.config, vocab=len(task.tokenizer) + 9)).eval()
    with torch.no_grad():
        wide.body.stem.embedding.weight[-9:] *= 500.0
    ((_, said),) = predict_rows(wide, task, [{"prompt": "To"}])
    assert said["tokens"] > 0
    assert "".join(task.stream(wide, {"prompt": "To"}))


def test_rows_of_training_data_are_texts_to_go_on_with():
    _, task = made(columns={"text": "line"})
    for row in ({"line": "to be", "text": "other"}, {"text": "to be"}, {"prompt": "to be", "text": "other"}):
        assert task.validate(task.map_columns(row), "input 0")["prompt"] == "to be"
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    assert task.map_columns({"conversation": talk}) == {"messages": talk[:1]}
