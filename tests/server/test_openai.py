"""The official `openai` client against chat, completions and embeddings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

openai = pytest.importorskip("openai")

MESSAGES = [{"role": "user", "content": "Ada lives in"}]


@pytest.fixture(scope="module")
def official(server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="unused", max_retries=0, timeout=60) as made:
        yield made


def test_models(official, models) -> None:
    assert {model.id for model in official.models.list()} == set(models)
    assert official.models.retrieve("chat").id == "chat"


def test_chat(official, models) -> None:
    reply = official.chat.completions.create(model="chat", messages=MESSAGES, temperature=0, max_tokens=8)
    wanted = models["chat"].make_task()
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason in ("stop", "length")
    assert reply.usage.completion_tokens <= 8
    assert reply.usage.prompt_tokens == len(wanted.prompt({"messages": MESSAGES}))
    again = official.chat.completions.create(model="chat", messages=MESSAGES, temperature=0, max_tokens=8)
    assert again.choices[0].message.content == reply.choices[0].message.content


def test_chat_streams_the_same_text(official) -> None:
    asked = {"model": "chat", "messages": MESSAGES, "temperature": 0, "max_tokens": 9}
    whole = official.chat.completions.create(**asked)
    chunks = list(official.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.strip() == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage


def test_completions_are_those_of_predict(official, models, input_of) -> None:
    prompts = [input_of("generate", i, models["generate"])["prompt"] for i in range(4)]
    wanted = [prediction["text"] for prediction in models["generate"].predict([{"prompt": p} for p in prompts])]
    reply = official.completions.create(model="generate", prompt=prompts)
    assert [choice.text for choice in reply.choices] == wanted
    chunks = official.completions.create(model="generate", prompt=prompts[0], stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == wanted[0]


def test_many_streams_at_once_do_not_mix(official, models, input_of) -> None:
    prompts = [input_of("generate", i, models["generate"])["prompt"] for i in range(12)]
    wanted = [prediction["text"] for prediction in models["generate"].predict([{"prompt": p} for p in prompts])]

    def stream(prompt: str) -> str:
        chunks = official.completions.create(model="generate", prompt=prompt, stream=True)
        return "".join(chunk.choices[0].text for chunk in chunks)

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(stream, prompts)) == wanted


def test_a_reader_that_leaves_ends_the_text(official, server) -> None:
    served = server.table.models["generate"]
    before = served.metrics.generated._value.get()
    stream = official.completions.create(model="generate", prompt="number 3: Ada", max_tokens=4000, stream=True)
    next(iter(stream))
    stream.close()
    deadline = time.monotonic() + 20
    while served.scheduler.depth:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert served.metrics.generated._value.get() - before < 3000


def test_choices_seeds_and_temperature(official) -> None:
    asked = {"model": "generate", "prompt": "number 3: Ada", "n": 3, "temperature": 1.5, "max_tokens": 10}
    first, again = (official.completions.create(**asked, seed=5) for _ in range(2))
    other = official.completions.create(**asked, seed=6)
    texts = [choice.text for choice in first.choices]
    assert len(set(texts)) > 1
    assert texts == [choice.text for choice in again.choices]
    assert texts != [choice.text for choice in other.choices]
    assert first.usage.prompt_tokens == other.usage.prompt_tokens


def test_a_phrase_ends_the_text(official) -> None:
    asked = {"model": "generate", "prompt": "number 3: Ada", "temperature": 0, "max_tokens": 12}
    whole = official.completions.create(**asked).choices[0].text
    phrase = whole[4:6]
    cut = official.completions.create(**asked, stop=[phrase, "never there"]).choices[0]
    assert cut.text == whole[: whole.index(phrase)]
    assert cut.finish_reason == "stop"
    chunks = official.completions.create(**asked, stop=phrase, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == cut.text


def test_embeddings(official, models) -> None:
    texts = ["Ada went to Rome", "Bo is in Oslo", "很好"]
    wanted = models["vectors"].embed(texts)
    for more in ({}, {"encoding_format": "float"}):  # the client asks for base64 if it is not told, and decodes it
        reply = official.embeddings.create(model="vectors", input=texts, **more)
        assert np.allclose([item.embedding for item in reply.data], wanted, atol=1e-5)
    (alone,) = official.embeddings.create(model="vectors", input=texts[0]).data
    assert np.allclose(alone.embedding, wanted[0], atol=1e-5)
    assert reply.usage.prompt_tokens > len(texts)


@pytest.mark.parametrize(
    ("call", "status"),
    [
        (lambda c: c.chat.completions.create(model="none", messages=MESSAGES), 404),
        (lambda c: c.chat.completions.create(model="classify", messages=MESSAGES), 422),
        (lambda c: c.chat.completions.create(model="generate", messages=MESSAGES), 422),  # has no template
        (lambda c: c.chat.completions.create(model="chat", messages=[]), 422),
        (lambda c: c.chat.completions.create(model="chat", messages=MESSAGES, logprobs=True), 422),
        (lambda c: c.completions.create(model="generate", prompt="Ada", max_tokens=10**9), 422),
        (lambda c: c.completions.create(model="generate", prompt="Ada " * 500), 422),
        (lambda c: c.completions.create(model="generate", prompt="Ada " * 500, stream=True), 422),
        (lambda c: c.embeddings.create(model="vectors", input=[[1, 2]]), 422),
        (lambda c: c.embeddings.create(model="ner", input="x"), 422),
    ],
)
def test_errors_have_their_status(official, call, status: int) -> None:
    with pytest.raises(openai.APIStatusError) as error:
        call(official)
    assert error.value.status_code == status
    assert error.value.body["message"]
