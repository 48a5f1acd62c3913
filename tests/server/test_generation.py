"""Continuous batching: the texts of `decode`, whoever shares the batch and whenever they join."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from zlib import crc32

import numpy as np
import pytest
import torch

from multihead.attention import KVCache
from multihead.generation import GenerationConfig, decode
from multihead.models import LanguageModel, ModelConfig, TaskModel
from multihead.server.exclusion import ModelLock
from multihead.server.generation import Generator, Writing
from multihead.server.limits import RequestError
from multihead.server.prefixes import SHORTEST, PrefixStore
from multihead.server.slots import BatchReader, CacheReader, make_reader, read_on

SHAPES: dict[str, dict[str, object]] = {
    "rotary": {"positions": "rotary", "norm": "rms", "norm_first": True, "gated": True, "kv_heads": 2},
    "learned": {"positions": "learned", "norm_first": True},
    "sinusoidal": {"positions": "sinusoidal", "embed_norm": True, "embed_scale": 4.9},
    "alibi": {"positions": "alibi", "kv_heads": 1},
    "relative": {"positions": "relative", "attention_bias": "", "inner_bias": False},
    "window": {"positions": "rotary", "window": 4},
    "wide values": {"positions": "alibi", "value_dim": 9, "qk_norm": "rms"},  # not for the fast reader
}
VOCAB, SIZE = 31, 40
GREEDY = GenerationConfig()


def make_model(**shape: object) -> TaskModel:
    torch.manual_seed(3)
    config = ModelConfig(**{"vocab": VOCAB, "dim": 24, "layers": 2, "heads": 4, "max_length": 60, **shape})  # type: ignore[arg-type]
    model = LanguageModel(config).eval()
    with torch.no_grad():
        model.body.stem.embedding.weight.mul_(20)  # a random model otherwise repeats one token
    return model


@pytest.fixture(scope="module", params=SHAPES.values(), ids=SHAPES)
def model(request: pytest.FixtureRequest) -> TaskModel:
    return make_model(**request.param)


class Steps:
    """Counts, and can hold the generator between two steps."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.reused = 0
        self.gate = threading.Event()
        self.gate.set()

    def saw_step(self, rows: int, seconds: float) -> None:
        self.rows.append(rows)
        self.gate.wait(20)

    def saw_prompt(self, read: int, reused: int) -> None:
        self.reused += reused

    def saw_sequences(self, running: int) -> None:
        pass


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def generator(model: TaskModel, steps: Steps) -> Iterator[Generator]:
    made = Generator(model, steps, ModelLock())
    yield made
    steps.gate.set()
    made.close()


def prompt_of(seed: int, length: int) -> list[int]:
    return torch.randint(1, VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def make_writing(prompt: list[int], settings: GenerationConfig = GREEDY, wanted: int = 12, **more) -> Writing:
    return Writing(prompt, settings, wanted, SIZE, frozenset(), **more)


def expected(model: TaskModel, writing: Writing) -> list[int]:
    """The same text by `decode`, alone."""
    row = crc32(np.array(writing.prompt, np.int32).tobytes())
    tokens = torch.tensor([writing.prompt])
    ((found,),) = decode(
        model, tokens, writing.settings, limit=writing.wanted, stop=writing.stop, seed=writing.seed, rows=[row]
    )
    return found.tokens


def test_readers_give_the_logits_of_the_whole_text(model: TaskModel) -> None:
    """Texts of other lengths join and leave; every step equals reading the text anew."""
    reader = make_reader(model)
    assert isinstance(reader, CacheReader if model.body.config.value_dim == 9 else BatchReader)
    texts: list[list[int]] = []
    numbers = count(100)
    with torch.inference_mode():
        for step in range(24):
            if step % 4 == 0 and len(texts) < 5:
                text, cache = prompt_of(step, 3 + 5 * (step % 3)), KVCache()
                read_on(model, torch.tensor(text), cache)
                reader.join(cache)
                texts.append(text)
            elif step % 7 == 6:
                place = step % len(texts)
                reader.leave(place)
                texts[place] = texts[-1]
                texts.pop()
            new = [prompt_of(next(numbers), 1)[0] for _ in texts]
            for text, token in zip(texts, new, strict=True):
                text.append(token)
            logits = reader.step(torch.tensor(new))
            for text, row in zip(texts, logits, strict=True):
                whole = model.readout(model.body(torch.tensor([text])))[0, -1]
                assert torch.allclose(row, whole, atol=2e-4), (step, (row - whole).abs().max())
        kept = reader.cache_of(1)
        again = read_on(model, torch.tensor([5]), kept)[0]
        assert torch.allclose(again, model.readout(model.body(torch.tensor([[*texts[1], 5]])))[0, -1], atol=2e-4)


@pytest.mark.parametrize(
    "settings",
    [
        GenerationConfig(),
        GenerationConfig(sample=True, temperature=0.8, top_p=0.9),
        GenerationConfig(repetition_penalty=1.3, no_repeat_ngram=2, forbidden=(3, 4)),
        GenerationConfig(sample=True, min_length=6, top_k=5),
    ],
    ids=["greedy", "sample", "rules", "sample with rules"],
)
def test_texts_are_those_of_decode(model: TaskModel, generator: Generator, settings: GenerationConfig) -> None:
    writings = [make_writing(prompt_of(i, 2 + i), settings, wanted=4 + i, seed=7) for i in range(10)]
    for writing in writings:
        generator.submit(writing)
    for writing in writings:
        assert writing.future.result(30) == expected(model, writing)


def test_a_text_joins_others_amid_their_run(generator: Generator, steps: Steps, model: TaskModel) -> None:
    steps.gate.clear()
    first = make_writing(prompt_of(1, 9), wanted=20)
    generator.submit(first)
    while not steps.rows:
        time.sleep(0.001)
    second = make_writing(prompt_of(2, 3), wanted=6)  # shorter than what the other has read
    third = make_writing(prompt_of(3, 18), wanted=6)  # longer
    generator.submit(second)
    generator.submit(third)
    steps.gate.set()
    for writing in (second, third, first):
        assert writing.future.result(30) == expected(model, writing)
    assert max(steps.rows) == 3  # all were in one batch
    assert steps.rows[-1] == 1  # and the first went on alone


def test_a_client_that_leaves_frees_its_place(generator: Generator, steps: Steps, model: TaskModel) -> None:
    steps.gate.clear()
    left, stays = make_writing(prompt_of(1, 9), wanted=30), make_writing(prompt_of(2, 4), wanted=20)
    generator.submit(left)
    generator.submit(stays)
    while not steps.rows:
        time.sleep(0.001)
    assert left.future.cancel()
    steps.gate.set()
    assert stays.future.result(30) == expected(model, stays)
    assert len(left.tokens) < 30
    late = make_writing(prompt_of(3, 4), deadline=time.monotonic() - 1)
    generator.submit(late)
    with pytest.raises(RequestError):
        late.future.result(10)


def test_equal_beginnings_are_read_once(generator: Generator, steps: Steps, model: TaskModel) -> None:
    first = make_writing(prompt_of(5, SHORTEST + 4), wanted=5)
    generator.submit(first)
    text = first.future.result(30)
    again = make_writing(list(first.prompt), wanted=5)
    turn = make_writing([*first.prompt, *text[:3], 7], wanted=5)  # the next turn of a conversation
    for writing, reused in ((again, SHORTEST + 3), (turn, SHORTEST + 7)):
        before = steps.reused
        generator.submit(writing)
        assert writing.future.result(30) == expected(model, writing)
        assert steps.reused - before == reused


def test_a_listener_ends_a_text(generator: Generator) -> None:
    heard: list[int] = []
    writing = make_writing(prompt_of(1, 4), wanted=9, listener=lambda token: heard.append(token) or len(heard) == 3)
    generator.submit(writing)
    assert writing.future.result(30) == heard
    assert len(heard) == 3

    def fail(token: int) -> bool:
        raise KeyError(token)

    broken, fine = make_writing(prompt_of(1, 4), listener=fail), make_writing(prompt_of(2, 4))
    generator.submit(broken)
    generator.submit(fine)
    with pytest.raises(KeyError):
        broken.future.result(30)
    assert len(fine.future.result(30)) == 12


def test_prefixes_are_bounded() -> None:
    model, store = make_model(positions="rotary"), PrefixStore(most=60_000)
    with torch.inference_mode():
        for seed in range(12):
            prompt, cache = prompt_of(seed, 24), KVCache()
            read_on(model, torch.tensor(prompt), cache)
            store.add(prompt, cache)
            assert store.size <= 60_000
    assert 0 < len(store) < 12
    assert store.find(prompt_of(11, 24)) is not None
    assert store.find(prompt_of(0, 24)) is None
    assert store.find(prompt[: SHORTEST - 1]) is None


def test_a_full_window_goes_on_from_its_second_half(models, client) -> None:
    """More tokens than the model takes: as offline, where the second half of the window is read again."""
    options = {**models["generate"].options, "decode": {"max_length": 120, "sample": False}}
    prompts = ["number 1: Bo", "number 5: Finn lives"]
    wanted = replace(models["generate"], options=options).predict([{"prompt": prompt} for prompt in prompts])
    asked = {"model": "generate", "prompt": prompts, "max_tokens": 120, "temperature": 0}
    made = client.post("/v1/completions", asked).json
    assert [choice["text"] for choice in made["choices"]] == [prediction["text"] for prediction in wanted]
    assert max(prediction["tokens"] for prediction in wanted) > 48
