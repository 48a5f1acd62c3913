"""Entry points: `decode` for a batch, `greedy` for its simplest case, `stream` for one input, token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from torch import Tensor

from multihead.generation.beam_search import BeamSearch
from multihead.generation.config import GenerationConfig, Hypothesis
from multihead.generation.constraints import LogitsConstraints
from multihead.generation.fast.decoder import FastDecoder
from multihead.generation.fast.layers import is_supported
from multihead.generation.incremental import CachedModelStepper, Prompt, Stepper
from multihead.generation.logits import CounterRNG
from multihead.generation.sampler import Sampler
from multihead.models import TaskModel

PLAIN = GenerationConfig()


def decode(
    model: TaskModel,
    tokens: Tensor,
    settings: GenerationConfig = PLAIN,
    *,
    keep: Tensor | None = None,
    memory: Tensor | None = None,
    memory_keep: Tensor | None = None,
    limit: int | Sequence[int],
    stop: Set[int] = frozenset(),
    prefix: Sequence[Sequence[int]] | None = None,
    seed: int = 0,
    rows: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Decode tokens [B, T]: for every row `settings.nbest` hypotheses, best first; B rows in one batch, with a KV
    cache.

    tokens: prompts, padded on either side, keep [B, T] True = a real token; an encoder-decoder takes memory [B, S, D]
    and memory_keep [B, S] from its encoder, and the start token alone as prompt.
    limit: maximum number of new tokens, for all rows or one number per row.  stop: tokens that end a text.
    prefix: forced first tokens of each row's new text; they count for length and score.
    seed, rows: samples are a pure function of (seed, rows[i], index in the n-best, position); rows are the inputs'
    numbers, 0.. by default, so that an input gets the same text alone and in any batch.
    """
    prompt = Prompt(model, tokens, keep, memory, memory_keep)
    B = len(tokens)
    limits = [limit] * B if isinstance(limit, int) else list(limit)
    _check(prompt, limits, prefix, rows)
    if not B:
        return []
    if settings.beam > 1:
        rules = _make_constraints(settings, prompt, stop, prefix, limits)
        hypotheses = BeamSearch(make_stepper(prompt), rules, settings, limits, stop).run()
    else:
        n = settings.nbest
        prompt.repeat(n)
        limits = [limit_ for limit_ in limits for _ in range(n)]
        begins = None if prefix is None else [start for start in prefix for _ in range(n)]
        rules = _make_constraints(settings, prompt, stop, begins, limits)
        draws = CounterRNG(seed, range(B) if rows is None else rows, n) if settings.sample else None
        single = Sampler(make_stepper(prompt), rules, draws, settings)
        texts = _collect(single, limits, stop, settings.length_penalty)
        hypotheses = [sorted(texts[i : i + n], key=lambda text: -text.score) for i in range(0, B * n, n)]
    if any(text.score != text.score for several in hypotheses for text in several):
        raise ValueError("the model's logits are NaN; its weights are broken: load or train it again")
    return hypotheses


def stream(
    model: TaskModel,
    tokens: Tensor,
    settings: GenerationConfig = PLAIN,
    *,
    memory: Tensor | None = None,
    limit: int,
    stop: Set[int] = frozenset(),
    prefix: Sequence[int] = (),
    seed: int = 0,
    row: int = 0,
) -> Iterator[int]:
    """Stream one prompt, tokens [1, T]: the same tokens as `decode`, each as soon as it is chosen (beam=1 only)."""
    if settings.beam > 1 or settings.nbest > 1:
        raise ValueError(f"beam={settings.beam}, nbest={settings.nbest}: only one text can be streamed; set both to 1")
    if len(tokens) != 1:
        raise ValueError(f"{len(tokens)} prompts: only one can be streamed; use decode")
    prompt = Prompt(model, tokens, None, memory)
    prefixes = [prefix] if prefix else None
    _check(prompt, [limit], prefixes, None)
    draws = CounterRNG(seed, [row], 1) if settings.sample else None
    rules = _make_constraints(settings, prompt, stop, prefixes, [limit])
    single = Sampler(make_stepper(prompt), rules, draws, settings, scored=False)
    return (token for chosen in single.run([limit], stop) for token in chosen.tokens)


def greedy(
    model: TaskModel,
    tokens: Tensor,
    *,
    keep: Tensor | None = None,
    memory: Tensor | None = None,
    memory_keep: Tensor | None = None,
    limit: int,
    stop: Set[int] = frozenset(),
) -> list[list[int]]:
    """Decode tokens [B, T] greedily: the most likely next tokens of every row; the stop token is included.

    Equals `decode` with default settings, without the cost of scores.

    An encoder-decoder takes memory [B, S, D] (and memory_keep [B, S]) from its encoder; tokens are the target's first.
    """
    prompt = Prompt(model, tokens, keep, memory, memory_keep)
    limits = [limit] * len(tokens)
    _check(prompt, limits, None, None)
    if not limits:
        return []
    written: list[list[int]] = [[] for _ in range(len(tokens))]
    single = Sampler(make_stepper(prompt), None, None, PLAIN, scored=False)
    for chosen in single.run(limits, stop):
        for row, token in zip(chosen.rows, chosen.tokens, strict=True):
            written[row].append(token)
    return written


def make_stepper(prompt: Prompt) -> Stepper:
    """Return the optimized stepper if it supports every part of the model, else the model's own forward pass."""
    return FastDecoder(prompt) if is_supported(prompt) else CachedModelStepper(prompt)


def _check(
    prompt: Prompt, limits: Sequence[int], prefix: Sequence[Sequence[int]] | None, rows: Sequence[int] | None
) -> None:
    B = len(prompt.tokens)
    for name, values in (("limit", limits), ("prefix", prefix), ("rows", rows)):
        if values is not None and len(values) != B:
            raise ValueError(f"{name} has {len(values)} rows, but tokens has {B}")
    if min(limits, default=1) < 1:
        raise ValueError(f"limit={min(limits)} is too small; it must be at least 1")
    known = range(prompt.decoder.stem.embedding.num_embeddings)
    for number, (forced, most) in enumerate(zip(prefix or (), limits, strict=False)):
        if wrong := next((token for token in forced if token not in known), None):
            raise ValueError(f"row {number}: the prefix has token {wrong}; the vocabulary ends at {known[-1]}")
        if len(forced) > most:
            raise ValueError(f"row {number}: the prefix has {len(forced)} tokens, more than the limit of {most}")
    prompt.check(max(limits, default=1))


def _make_constraints(
    settings: GenerationConfig,
    prompt: Prompt,
    stop: Set[int],
    prefix: Sequence[Sequence[int]] | None,
    limits: Sequence[int],
) -> LogitsConstraints | None:
    first = None if prompt.keep is None else (~prompt.keep).sum(1, keepdim=True)
    rules = LogitsConstraints(settings, prompt.tokens, first, stop, prefix, limits=limits)
    return rules if rules.looks_back or rules.forbids else None


def _collect(single: Sampler, limits: Sequence[int], stop: Set[int], penalty: float) -> list[Hypothesis]:
    texts: list[list[int]] = [[] for _ in limits]
    sums = [0.0] * len(limits)
    for chosen in single.run(limits, stop):
        for row, token, score in zip(*chosen, strict=True):
            texts[row].append(token)
            sums[row] += score
    return [Hypothesis(text, total / max(1, len(text)) ** penalty) for text, total in zip(texts, sums, strict=True)]
