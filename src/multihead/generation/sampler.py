"""Token-by-token decoding of one text per row: greedy or sampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

import torch
from torch import Tensor

from multihead.generation.config import GenerationConfig
from multihead.generation.constraints import LogitsConstraints
from multihead.generation.incremental import Stepper
from multihead.generation.logits import CounterRNG, argmax, check_logits, sample, to_float32


class SampledStep(NamedTuple):
    """One decoding step: the rows that continued, their tokens and log p (0 where not requested)."""

    rows: list[int]
    tokens: list[int]
    scores: list[float]


class Sampler:
    """Decoding loop. `draws` None: greedy; `rules` None: no constraints; `scored`: compute log p."""

    def __init__(
        self,
        reader: Stepper,
        rules: LogitsConstraints | None,
        draws: CounterRNG | None,
        settings: GenerationConfig,
        scored: bool = True,
    ) -> None:
        self.reader, self.rules, self.draws, self.settings = reader, rules, draws, settings
        self.scored = scored or draws is not None
        self.written: Tensor | None = None  # [B, t], if the constraints need it

    def run(self, limits: Sequence[int], stop: Set[int]) -> Iterator[SampledStep]:
        """Yield steps until every row has met a stop token or its limit; a row without allowed tokens ends there."""
        rows, tokens = list(range(len(limits))), torch.empty(0)
        for place in range(max(limits)):
            with torch.inference_mode():  # not around the yield, where it would affect the caller
                logits = to_float32(self.reader.step(tokens[:, None]) if place else self.reader.start())
                if not place:
                    check_logits(logits)
                tokens, scores, blocked = self._choose(logits, place)
            chosen = tokens.tolist()
            going = [i for i, token in enumerate(chosen) if token not in stop and place + 1 < limits[rows[i]]]
            if blocked:
                free = [i for i in range(len(rows)) if i not in blocked]
                going = [i for i in going if i not in blocked]
                yield SampledStep([rows[i] for i in free], [chosen[i] for i in free], [scores[i] for i in free])
            else:
                yield SampledStep(rows, chosen, scores)
            if not going:
                return
            if len(going) < len(rows):
                rows = [rows[i] for i in going]
                with torch.inference_mode():
                    tokens = self._select_rows(torch.tensor(going).to(tokens.device), tokens)

    def _choose(self, logits: Tensor, place: int) -> tuple[Tensor, list[float], set[int]]:
        """Return tokens [B], their log p, and the rows without any allowed token."""
        rules, blocked = self.rules, set()
        written = self._written_tokens(logits)
        if rules is not None:
            logits = rules.penalize(logits, written)
        logp = torch.log_softmax(logits, dim=1) if self.scored else logits
        if rules is not None and rules.forbids:
            logp = rules.forbid(logp, written)
            blocked = set((logp.amax(dim=1) == float("-inf")).nonzero()[:, 0].tolist())
        if self.draws is None:
            tokens = argmax(logp)
        else:
            tokens = sample(logp, self.settings, self.draws.at(place))
        if rules is not None:
            self.written = torch.cat((written, tokens[:, None]), dim=1)
        scores = logp.gather(1, tokens[:, None])[:, 0].tolist() if self.scored else [0.0] * len(tokens)
        return tokens, scores, blocked

    def _written_tokens(self, logits: Tensor) -> Tensor:
        if self.written is None:
            self.written = torch.empty(len(logits), 0, dtype=torch.long, device=logits.device)
        return self.written

    def _select_rows(self, rows: Tensor, tokens: Tensor) -> Tensor:
        self.reader.select_rows(rows)
        for part in (self.rules, self.draws):
            if part is not None:
                part.select_rows(rows)
        if self.written is not None:
            self.written = self.written.index_select(0, rows)
        return tokens.index_select(0, rows)
