"""Every way of decoding gives one answer: cached, batched, alone, beam of one, streamed; and rules hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from multihead.generation import GenerationConfig, decode, greedy, stream
from multihead.generation import generate as room
from multihead.generation.beam_search import BeamSearch
from multihead.generation.incremental import CachedModelStepper, Prompt
from multihead.models import Encoder, LMReadout, ModelConfig, TaskModel

Make = Callable[..., TaskModel]
PROMPTS = [[5, 6, 7, 8, 9], [3], [11, 12, 13], [4, 4, 4, 4]]
V = 31

rules = st.fixed_dictionaries(
    {
        "repetition_penalty": st.sampled_from([1.0, 1.3]),
        "no_repeat_ngram": st.integers(0, 3),
        "min_length": st.integers(0, 4),
        "length_penalty": st.sampled_from([-0.5, 0.0, 0.6, 1.0]),
    }
)
drawing = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.7, 1.0, 1.5]),
        "top_k": st.sampled_from([0, 4]),
        "top_p": st.sampled_from([0.8, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05]),
    }
)
inputs = st.lists(st.lists(st.integers(3, V - 1), min_size=1, max_size=6), min_size=1, max_size=4)


def padded(rows: list[list[int]], left: bool = False) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    fill = [[0] * (width - len(row)) for row in rows]
    tokens = [empty + row if left else row + empty for empty, row in zip(fill, rows, strict=True)]
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    keep = torch.arange(width)[None] < lengths
    return torch.tensor(tokens), keep.flip(1) if left else keep


def batch(model: TaskModel, rows: list[list[int]], left: bool = False) -> dict[str, Any]:
    """What `decode` takes: prompts of a decoder, sources of an encoder-decoder."""
    tokens, keep = padded(rows, left)
    if hasattr(model.body, "encoder"):
        memory = model.body.encoder(tokens, keep).detach()
        return {"tokens": torch.full((len(rows), 1), 1), "memory": memory, "memory_keep": keep}
    return {"tokens": tokens, "keep": keep}


def tokens_of(found: list[list[Any]]) -> list[list[list[int]]]:
    return [[one.tokens for one in several] for several in found]


def same(found: list[list[Any]], want: list[list[Any]]) -> None:
    """Equal; where two texts score nearly alike, their order may differ."""
    for ours, theirs in zip(found, want, strict=True):
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-4)
        for a, b in zip(ours, theirs, strict=True):
            near = [one for one in theirs if abs(one.score - b.score) < 1e-4]
            assert a.tokens in [one.tokens for one in near]


@pytest.mark.parametrize("pair", [False, True], ids=["decoder", "pair"])
@pytest.mark.parametrize("beam", [1, 4])
def test_batch_alone_and_without_cache(
    shape: dict[str, object], pair: bool, beam: int, language_model: Make, translator: Make
) -> None:
    model = (translator if pair else language_model)(**shape)
    how = GenerationConfig(beam=beam, nbest=beam, no_repeat_ngram=3)
    limits = [9, 12, 4, 12]
    stop = {7, 19}
    whole = decode(model, settings=how, **batch(model, PROMPTS, left=True), limit=limits, stop=stop)
    alone = [
        decode(model, settings=how, **batch(model, [row]), limit=limit, stop=stop)[0]
        for row, limit in zip(PROMPTS, limits, strict=True)
    ]
    same(whole, alone)
    assert len({tuple(several[0].tokens) for several in whole}) > 1, "the input must matter"

    class Whole(CachedModelStepper):  # no cache: the whole text again at every step
        def start(self) -> Tensor:
            self.said = self.prompt[:, None]  # [B, n, T]
            return self._all()

        def step(self, tokens: Tensor, parents: Tensor | None = None) -> Tensor:
            if parents is not None:
                self.said = torch.take_along_dim(self.said, parents[..., None], dim=1)
            self.said = torch.cat((self.said, tokens[..., None]), dim=2)
            return self._all()

        def select_rows(self, rows: Tensor) -> None:
            raise AssertionError("one input does not leave early")

        def _all(self) -> Tensor:
            n = self.said.shape[1]
            memory = None if self.memory is None else self.memory.expand(n, -1, -1)
            return self.readout(self.decoder(self.said[0], memory=memory))[:, -1]

    for row, limit, want in zip(PROMPTS, limits, whole, strict=True):
        given = batch(model, [row])
        prompt = Prompt(model, given["tokens"], None, given.get("memory"))
        if beam > 1:
            checked = room._make_constraints(how, prompt, stop, None, [limit])
            same([want], BeamSearch(Whole(prompt), checked, how, [limit], stop).run())


@settings(max_examples=30)
@given(inputs, rules, st.booleans(), st.integers(1, 10))
def test_beam_of_one_is_greedy(
    language_model: Make, translator: Make, rows: list[list[int]], given_rules: dict[str, Any], pair: bool, limit: int
) -> None:
    model = (translator if pair else language_model)(positions="rotary")
    given_rules = given_rules | {"repetition_penalty": 1.0}  # of logits in the one, of log p in the other
    how, stop = GenerationConfig(**given_rules), {7}
    given_batch = batch(model, rows)
    found = decode(model, settings=how, **given_batch, limit=limit, stop=stop)
    prompt = Prompt(model, given_batch["tokens"], *(given_batch.get(k) for k in ("keep", "memory", "memory_keep")))
    limits = [limit] * len(rows)
    first = replace(how, early="full")  # a beam of one that ends with its first text; "exact" looks on for a better one
    beam = BeamSearch(
        room.make_stepper(prompt), room._make_constraints(how, prompt, stop, None, limits), first, limits, stop
    ).run()
    same(found, beam)
    if not given_rules["no_repeat_ngram"] and not given_rules["min_length"]:
        assert [several[0].tokens for several in found] == greedy(model, **given_batch, limit=limit, stop=stop)


@settings(max_examples=40)
@given(inputs, rules, drawing, st.sampled_from([1, 3, 5]), st.booleans(), st.integers(1, 9), st.data())
def test_rules_hold(
    language_model: Make,
    translator: Make,
    rows: list[list[int]],
    given_rules: dict[str, Any],
    draw: dict[str, Any],
    width: int,
    sample: bool,
    limit: int,
    data: st.DataObject,
) -> None:
    """Sorted, distinct, within the limit, long enough, no n-gram twice, beginning as told; scores are true."""
    model = (language_model if data.draw(st.booleans()) else translator)(positions="learned")
    how = (
        GenerationConfig(sample=True, nbest=width, **given_rules, **draw)
        if sample
        else GenerationConfig(beam=width, nbest=width, **given_rules)
    )
    stop = data.draw(st.sampled_from([set(), {7}, {7, 19, 4}]))
    limits = [data.draw(st.integers(1, limit)) for _ in rows]
    begins = [data.draw(st.lists(st.integers(3, V - 1), max_size=n)) for n in limits]
    given_batch = batch(model, rows)
    found = decode(model, settings=how, **given_batch, limit=limits, stop=stop, prefix=begins, seed=limit)
    for row, several, most, begin in zip(rows, found, limits, begins, strict=True):
        assert several == sorted(several, key=lambda one: -one.score)
        if not sample:
            assert len({tuple(one.tokens) for one in several}) == len(several) >= 1
        else:
            assert len(several) == width
        for tokens, _ in several:
            ended = [i for i, token in enumerate(tokens) if token in stop]
            assert len(tokens) <= most
            assert ended in ([], [len(tokens) - 1])
            assert tokens[: len(begin)] == begin[: len(tokens)]
            free = len(begin)
            if ended and ended[0] >= free:
                assert ended[0] >= how.min_length
            n = how.no_repeat_ngram
            said = tokens if hasattr(model.body, "encoder") else row + tokens
            if n:
                runs = [tuple(said[i : i + n]) for i in range(len(said) - n + 1)]
                new = runs[max(0, len(said) - len(tokens) + free - n + 1) :]  # those that the prefix did not force
                assert all(runs.count(run) == 1 for run in new)


@pytest.mark.parametrize(
    "how", [GenerationConfig(beam=3, nbest=3), GenerationConfig(), GenerationConfig(sample=True, top_k=5, nbest=2)]
)
def test_scores_are_log_p(how: GenerationConfig, translator: Make, following: Callable[..., Tensor]) -> None:
    model = translator()
    found = decode(model, settings=how, **batch(model, PROMPTS), limit=7, stop={7})
    for row, several in zip(PROMPTS, found, strict=True):
        memory = model.body.encoder(torch.tensor([row]))
        for tokens, score in several:
            steps = [
                following(model, [1, *tokens[:i]], memory).log_softmax(-1)[token] for i, token in enumerate(tokens)
            ]
            assert score == pytest.approx(float(sum(steps)) / len(tokens) ** how.length_penalty, abs=1e-4)


@settings(max_examples=25)
@given(inputs, drawing, st.integers(0, 2**40), st.data())
def test_draws_do_not_depend_on_the_batch(
    language_model: Make, rows: list[list[int]], draw: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    model = language_model(positions="rotary")
    how = GenerationConfig(sample=True, nbest=2, **draw)
    options = {"limit": 6, "stop": {7}, "seed": seed}
    whole = decode(model, settings=how, **batch(model, rows), **options)
    number = data.draw(st.integers(0, len(rows) - 1))
    alone = decode(model, settings=how, **batch(model, [rows[number]]), **options, rows=[number])[0]
    same([alone], [whole[number]])
    first = decode(model, torch.tensor([rows[0]]), GenerationConfig(sample=True, **draw), **options)[0][0]
    streamed = list(stream(model, torch.tensor([rows[0]]), GenerationConfig(sample=True, **draw), **options))
    assert streamed == first.tokens


def test_other_seeds_other_texts(language_model: Make) -> None:
    model = language_model()
    how = GenerationConfig(sample=True, nbest=4)
    texts = {
        tuple(one.tokens)
        for seed in range(5)
        for several in decode(model, torch.tensor([[5], [5]]), how, limit=8, seed=seed)
        for one in several
    }
    assert len(texts) > 30


def test_streaming(language_model: Make, translator: Make) -> None:
    model, prompt = language_model(positions="rotary"), torch.tensor([[5, 6, 7]])
    want = decode(model, prompt, GenerationConfig(no_repeat_ngram=2), limit=9, stop={7}, prefix=[[4, 3]])[0][0].tokens
    read: list[int] = []
    model.readout.register_forward_hook(lambda *given: read.append(1))
    flow = stream(model, prompt, GenerationConfig(no_repeat_ngram=2), limit=9, stop={7}, prefix=[4, 3])
    assert next(flow) == 4
    assert len(read) == 1, "a token comes as soon as it is chosen"
    assert not torch.is_inference_mode_enabled()
    assert [4, *flow] == want
    pair = translator()
    given_batch = batch(pair, [[5, 6]])
    assert (
        list(stream(pair, given_batch["tokens"], memory=given_batch["memory"], limit=5))
        == greedy(pair, given_batch["tokens"], memory=given_batch["memory"], limit=5)[0]
    )


def test_finished_inputs_leave_the_batch(translator: Make) -> None:
    model, sizes = translator(), []
    model.readout.register_forward_hook(lambda module, given, out: sizes.append(len(out)))
    for how, first in ((GenerationConfig(), 4), (GenerationConfig(beam=3, early="full"), 4)):
        sizes.clear()
        decode(model, settings=how, **batch(model, PROMPTS), limit=[2, 9, 4, 9])
        assert sizes[0] == first
        assert sizes[-1] == 2 * how.beam
        assert len(sizes) == 9


def test_nothing_may_follow(language_model: Make) -> None:
    """When every token is forbidden, a text ends as it is."""
    model = language_model(vocab=4)
    for beam in (1, 3):
        found = decode(model, torch.tensor([[1], [2]]), GenerationConfig(beam=beam, no_repeat_ngram=1), limit=9)
        assert [sorted(several[0].tokens) for several in found] == [[0, 2, 3], [0, 1, 3]]
    assert list(stream(model, torch.tensor([[1]]), GenerationConfig(no_repeat_ngram=1), limit=9)) == found[0][0].tokens


def test_misuse(language_model: Make, translator: Make) -> None:
    model, tokens = language_model(), torch.tensor([[5], [6]])
    for wrong, what in (
        ({"limit": 0}, "at least 1"),
        ({"limit": [3]}, "limit has 1 rows, but tokens has 2"),
        ({"limit": 3, "prefix": [[1]]}, "prefix has 1 rows"),
        ({"limit": 3, "rows": [1, 2, 3]}, "rows has 3 rows"),
        ({"limit": [3, 1], "prefix": [[], [4, 4]]}, "row 1: the prefix has 2 tokens, more than the limit of 1"),
    ):
        with pytest.raises(ValueError, match=what):
            decode(model, tokens, **wrong)
    for wrong, what in (
        ({"beam": 0}, "beam=0 must be at least 1"),
        ({"beam": 2, "nbest": 3}, "nbest=3 needs beam >= nbest"),
        ({"beam": 2, "sample": True}, "exclude each other"),
        ({"top_p": 0.0}, "above 0"),
        ({"min_p": 1.5}, "a share"),
        ({"temperature": 0.0}, "temperature=0.0 must be above 0"),
        ({"no_repeat_ngram": -1}, "at least 0"),
        ({"early": "soon"}, "'exact' or 'full'"),
    ):
        with pytest.raises(ValueError, match=what):
            GenerationConfig(**wrong)
    with pytest.raises(ValueError, match="only one can be streamed"):
        stream(model, tokens, limit=3)
    with pytest.raises(ValueError, match="set both to 1"):
        stream(model, tokens[:1], GenerationConfig(beam=2), limit=3)
    with pytest.raises(ValueError, match="memory has 1 rows, tokens 2"):
        decode(translator(), tokens, memory=torch.zeros(1, 3, 24), limit=2)
    small = ModelConfig(vocab=9, dim=8, layers=1, heads=2)
    with pytest.raises(ValueError, match="Encoder cannot generate"):
        decode(TaskModel(Encoder(small), LMReadout(small)).eval(), tokens, limit=1)
    with torch.no_grad():
        model.body.stem.embedding.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="are NaN"):
        decode(model, tokens, limit=2)
