"""Beam search beside exhaustive search, and beside transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from multihead.generation import GenerationConfig, Hypothesis, decode, greedy
from multihead.generation.beam_search import BeamSearch
from multihead.models import TaskModel
from multihead.pretrained import load

Make = Callable[..., TaskModel]
PENALTIES = st.sampled_from([-0.5, 0.0, 0.3, 1.0, 2.0])


def everything(
    model: TaskModel, following: Callable[..., Tensor], memory: Tensor, limit: int, stop: set[int], penalty: float
) -> list[Hypothesis]:
    """All texts there are, best first."""
    found, going = [], {(): 0.0}
    for length in range(1, limit + 1):
        longer = {}
        for text, score in going.items():
            steps = following(model, [1, *text], memory).log_softmax(-1).tolist()
            longer.update({(*text, token): score + step for token, step in enumerate(steps)})
        over = {text for text in longer if text[-1] in stop or length == limit}
        found += [Hypothesis(list(text), longer[text] / length**penalty) for text in over]
        going = {text: score for text, score in longer.items() if text not in over}
    return sorted(found, key=lambda one: -one.score)


@settings(max_examples=25)
@given(st.integers(0, 1000), st.integers(1, 4), PENALTIES, st.sampled_from([set(), {2}, {0, 2}]), st.integers(1, 9))
def test_full_width_is_exhaustive(
    translator: Make,
    following: Callable[..., Tensor],
    seed: int,
    limit: int,
    penalty: float,
    stop: set[int],
    nbest: int,
) -> None:
    model = translator(seed, vocab=3, layers=1, positions="alibi").double()
    memory = model.body.encoder(torch.tensor([[1, 2, 0]])).detach()
    want = everything(model, following, memory, limit, stop, penalty)
    how = GenerationConfig(beam=3**limit + 9, nbest=nbest, length_penalty=penalty)
    (found,) = decode(model, torch.tensor([[1]]), how, memory=memory, limit=limit, stop=stop)
    assert [one.tokens for one in found] == [one.tokens for one in want[:nbest]]
    assert [one.score for one in found] == pytest.approx([one.score for one in want[:nbest]], abs=1e-10)


@settings(max_examples=25)
@given(st.integers(0, 1000), PENALTIES, st.integers(2, 4), st.integers(1, 14))
def test_stopping_early_changes_nothing(translator: Make, seed: int, penalty: float, beam: int, limit: int) -> None:
    """The rule only saves steps: without it, up to the limit, the n-best are the same."""
    model, stop = translator(seed, vocab=12, positions="rotary").double(), {1, 5}
    memory = model.body.encoder(torch.tensor([[3, 4, 6], [7, 8, 2]])).detach()
    how = GenerationConfig(beam=beam, nbest=2, length_penalty=penalty)
    start = torch.full((2, 1), 1)
    found = decode(model, start, how, memory=memory, limit=limit, stop=stop)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BeamSearch, "_is_open", lambda self, place, blocked: self.limits > place)
        patient = decode(model, start, how, memory=memory, limit=limit, stop=stop)
    assert [[one.tokens for one in several] for several in found] == [
        [one.tokens for one in several] for several in patient
    ]


def test_stopping_early_saves_steps(translator: Make) -> None:
    model, steps = translator(vocab=12), []
    with torch.no_grad():
        model.readout.bias[5] = 9.0  # a stop token that is likely
    model.readout.register_forward_hook(lambda *given: steps.append(1))
    memory = model.body.encoder(torch.tensor([[3, 4, 6]])).detach()
    counts = {}
    for early in ("exact", "full"):
        for penalty in (0.0, 1.0):
            steps.clear()
            how = GenerationConfig(beam=3, nbest=3, early=early, length_penalty=penalty)
            decode(model, torch.tensor([[1]]), how, memory=memory, limit=50, stop={5})
            counts[early, penalty] = len(steps)
    assert counts["exact", 0.0] < 10
    assert counts["exact", 0.0] <= counts["exact", 1.0] < 50
    assert counts["full", 1.0] <= counts["exact", 1.0]


PAIR = {
    "vocab_size": 41, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 28, "max_position_embeddings": 40,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
    "forced_eos_token_id": None, "forced_bos_token_id": None,
}  # fmt: skip
KINDS = {
    "MarianMTModel": PAIR,
    "BartForConditionalGeneration": PAIR,
    "GPT2LMHeadModel": {
        "vocab_size": 41, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 40, "bos_token_id": 0,
        "eos_token_id": 2, "pad_token_id": 1,
    },
}  # fmt: skip


def peer(kind: str, directory: Path) -> tuple[Any, TaskModel]:
    """A random model of transformers in which texts end at different lengths, and the same one here."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(5)
    made = getattr(transformers, kind)
    theirs = made(made.config_class(**KINDS[kind])).eval()
    for name, tensor in [*theirs.named_parameters(), *theirs.named_buffers()]:
        if kind != "MarianMTModel" or "embed_positions" not in name:  # sines stay
            tensor.data.normal_(std=0.3 if tensor.dim() > 1 else 0.05)
    for name, module in theirs.named_modules():  # tokens and places speak louder than biases
        if isinstance(module, nn.Embedding) and (kind != "MarianMTModel" or "positions" not in name):
            module.weight.data.normal_(std=0.8)
        elif "Norm" in type(module).__name__:
            module.weight.data.normal_(1.0, 0.2)
    theirs.save_pretrained(directory)
    return theirs, load(directory).model


@pytest.mark.parametrize(
    ("how", "theirs_too"),
    [
        ({}, {}),
        ({"no_repeat_ngram": 2}, {"no_repeat_ngram_size": 2}),
        ({"repetition_penalty": 1.4}, {"repetition_penalty": 1.4}),
        ({"min_length": 5}, {"min_new_tokens": 5}),
        ({"end": (2,)}, {"forced_eos_token_id": 2}),
        (
            {"beam": 4, "nbest": 2, "end": (2,), "length_penalty": 0.5},
            {"num_beams": 4, "num_return_sequences": 2, "forced_eos_token_id": 2, "length_penalty": 0.5}
            | {"early_stopping": "never"},
        ),
        (
            {"beam": 4, "nbest": 4, "repetition_penalty": 1.4},
            {"num_beams": 4, "num_return_sequences": 4, "repetition_penalty": 1.4, "early_stopping": "never"},
        ),
        ({"beam": 4, "nbest": 3}, {"num_beams": 4, "num_return_sequences": 3, "early_stopping": "never"}),
        (
            {"beam": 3, "length_penalty": 0.0},
            {"num_beams": 3, "length_penalty": 0.0, "early_stopping": "never"},
        ),
        (
            {"beam": 3, "length_penalty": 2.0, "no_repeat_ngram": 2},
            {"num_beams": 3, "length_penalty": 2.0, "no_repeat_ngram_size": 2, "early_stopping": "never"},
        ),
        (
            {"beam": 3, "nbest": 2, "early": "full", "min_length": 3},
            {"num_beams": 3, "num_return_sequences": 2, "early_stopping": True, "min_new_tokens": 3},
        ),
        ({"beam": 5, "length_penalty": -0.7}, {"num_beams": 5, "length_penalty": -0.7, "early_stopping": "never"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_as_transformers(kind: str, how: dict[str, Any], theirs_too: dict[str, Any], tmp_path: Path) -> None:
    theirs, ours = peer(kind, tmp_path)
    limit = 14
    draw = torch.Generator().manual_seed(8)
    tokens = torch.randint(4, 41, (6, 7), generator=draw)
    if kind == "GPT2LMHeadModel":
        given_ours: dict[str, Any] = {"tokens": tokens}
    else:
        given_ours = {"tokens": torch.full((6, 1), 2), "memory": ours.body.encoder(tokens)}
    free = decode(ours, settings=GenerationConfig(beam=4, nbest=4, no_repeat_ngram=2), **given_ours, limit=limit)
    stop = {free[0][0].tokens[4], free[2][3].tokens[6]}  # tokens that come, so that texts end
    options = {"max_new_tokens": limit, "do_sample": False, "bad_words_ids": None, "eos_token_id": sorted(stop)}
    options |= {"return_dict_in_generate": True, "output_scores": True, **theirs_too}
    out = theirs.generate(tokens, attention_mask=torch.ones_like(tokens), **options)
    found = decode(ours, settings=GenerationConfig(**how), **given_ours, limit=limit, stop=stop)
    texts = [one.tokens for several in found for one in several]
    want = out.sequences[:, 7 if kind == "GPT2LMHeadModel" else 1 :]
    width = want.shape[1]
    assert [text + [1] * (width - len(text)) for text in texts] == want.tolist()
    if "beam" in how:
        assert [one.score for several in found for one in several] == pytest.approx(
            out.sequences_scores.tolist(), abs=1e-4
        )
    elif not how:
        assert texts == greedy(ours, **given_ours, limit=limit, stop=stop)
    if how.get("nbest") == 3:
        assert len({len(text) for text in texts}) > 1, "texts must end at different lengths"
