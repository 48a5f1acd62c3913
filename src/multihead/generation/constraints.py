"""Constraints on generated tokens: repetition penalty, no-repeat n-grams, minimum length, forbidden tokens, forced
prefix and end."""

from __future__ import annotations

from collections.abc import Sequence, Set

import torch
from torch import Tensor

from multihead.generation.config import GenerationConfig

NEVER = float("-inf")


class LogitsConstraints:
    """Constraints for B inputs with n texts each, N = B * n. Prompts [B, T] have `first` [B, 1] columns of left
    padding."""

    def __init__(
        self,
        settings: GenerationConfig,
        prompt: Tensor,
        first: Tensor | None,
        stop: Set[int],
        prefix: Sequence[Sequence[int]] | None,
        *,
        limits: Sequence[int],
    ) -> None:
        self.penalty, self.ngram = settings.repetition_penalty, settings.no_repeat_ngram
        self.stop = torch.tensor(sorted(stop), dtype=torch.long).to(prompt.device)
        self.never = torch.tensor(sorted(settings.forbidden), dtype=torch.long).to(prompt.device)
        self.end = torch.tensor(sorted(settings.end), dtype=torch.long).to(prompt.device)
        self.limits, self.nearest = torch.tensor(limits).to(prompt.device)[:, None], min(limits)
        self.shortest = settings.min_length if stop else 0
        self.first = prompt.new_zeros(len(prompt), 1) if first is None else first
        self.prompt = prompt
        self.forced = max(map(len, prefix), default=0) if prefix is not None else 0
        self.prefix = _table(prefix, self.forced, prompt) if prefix is not None and self.forced else None
        self.looks_back = self.penalty != 1.0 or self.ngram > 0
        held = self.shortest > 0 or self.forced > 0 or len(self.never) > 0 or len(self.end) > 0
        self.forbids = self.ngram > 0 or held

    def penalize(self, logits: Tensor, written: Tensor) -> Tensor:
        """Apply the repetition penalty to logits, or log p, [N, V] after the generated tokens `written` [N, t] (Keskar
        et al. 2019)."""
        if self.penalty == 1.0:
            return logits
        context = self._context_tokens(written)
        # Replace padding by the next token, which is penalized anyway.
        columns = torch.arange(context.shape[1], device=context.device)[None]
        context = context.gather(1, torch.maximum(columns, _each(self.first, len(context))))
        old = logits.gather(1, context)
        return logits.scatter(1, context, torch.where(old > 0, old / self.penalty, old * self.penalty))

    def forbid(self, scores: Tensor, written: Tensor) -> Tensor:
        """Return scores [N, V] with -inf for forbidden next tokens; the rest are unchanged."""
        place = written.shape[1]
        free = scores
        if len(self.never):
            scores = scores.index_fill(1, self.never, NEVER)
        if place < self.shortest:
            scores = scores.index_fill(1, self.stop[self.stop < scores.shape[1]], NEVER)
        if self.ngram:
            scores = self._no_repeat(scores, self._context_tokens(written))
        if self.prefix is not None and place < self.forced:
            want = _each(self.prefix[:, place : place + 1], len(free))  # [N, 1], -1: free
            alone = torch.full_like(free, NEVER).scatter(1, want.clamp(min=0), free.gather(1, want.clamp(min=0)))
            scores = torch.where(want < 0, scores, alone)
        if len(self.end) and place + 1 >= self.nearest:
            ended = torch.full_like(free, NEVER).index_fill(1, self.end, 0.0)
            scores = torch.where(_each(self.limits, len(free)) <= place + 1, ended, scores)
        return scores

    def select_rows(self, rows: Tensor) -> None:
        self.first, self.prompt = self.first.index_select(0, rows), self.prompt.index_select(0, rows)
        self.prefix = None if self.prefix is None else self.prefix.index_select(0, rows)
        self.limits = self.limits.index_select(0, rows)

    def _context_tokens(self, written: Tensor) -> Tensor:
        return torch.cat((_each(self.prompt, len(written)), written), dim=1)

    def _no_repeat(self, scores: Tensor, context: Tensor) -> Tensor:
        n = self.ngram
        if context.shape[1] < n:
            return scores
        runs = context.unfold(1, n, 1)  # [N, M, n]
        begins = torch.arange(runs.shape[1], device=context.device)[None]
        last = context[:, context.shape[1] - n + 1 :]
        again = (runs[:, :, :-1] == last[:, None]).all(dim=2) & (begins >= _each(self.first, len(context)))
        row, run = again.nonzero(as_tuple=True)
        return scores.index_put((row, runs[row, run, -1]), scores.new_full((), NEVER))


def _each(x: Tensor, rows: int) -> Tensor:
    """Repeat [B, …] to [N, …]: the same for the n texts of an input."""
    return x if len(x) == rows else x.repeat_interleave(rows // len(x), dim=0)


def _table(prefix: Sequence[Sequence[int]], width: int, like: Tensor) -> Tensor:
    rows = [[*row, *[-1] * (width - len(row))] for row in prefix]
    return torch.tensor(rows, dtype=torch.long).to(like.device)
