"""Beam search: at every decoding step the `beam` best prefixes of each input are extended (Lowerre 1976).

Of the most likely continuations, those among the first `beam` that end in a stop token are finished: score = log p /
length ** penalty; the best `beam` of the rest are extended. At an input's limit all of them are finished.

When an input is finished. "exact": as soon as no open prefix could enter the n-best. log p only decreases, so a prefix
with log p = s scores at most s / limit ** penalty (penalty > 0: longer is better), s (0), or s / (length + 1) **
penalty (< 0). This changes no result, it only saves steps. "full": as soon as `beam` hypotheses are finished, as in
fairseq: fewer steps, and occasionally a better text is missed.

The model runs on its device; the search itself uses small numpy arrays, with which a step on the CPU takes 0.97 of the
time with torch's, and on a GPU there is one synchronization per step instead of five.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.generation.config import GenerationConfig, Hypothesis
from multihead.generation.constraints import NEVER, LogitsConstraints
from multihead.generation.incremental import Stepper
from multihead.generation.logits import FloatArray, IntArray, check_logits, to_float32, topk

BoolArray = NDArray[np.bool_]


class BeamSearch:
    """Beam search over B inputs. n: open hypotheses per input, 1 at first, then `beam`."""

    def __init__(
        self,
        reader: Stepper,
        rules: LogitsConstraints | None,
        settings: GenerationConfig,
        limits: Sequence[int],
        stop: Set[int],
    ) -> None:
        self.reader, self.rules, self.settings = reader, rules, settings
        self.stop = np.array(sorted(stop), dtype=np.int64)
        self.found: list[list[Hypothesis]] = [[] for _ in limits]
        self.rows = list(range(len(limits)))  # the input of each row of the batch
        self.limits: IntArray = np.array(limits)
        self.text: IntArray = np.empty((len(limits), 1, 0), dtype=np.int64)  # [B, n, t]

    def run(self) -> list[list[Hypothesis]]:
        """Return every input's n-best, best first."""
        with torch.inference_mode():
            logits = to_float32(self.reader.start())
            check_logits(logits)
            kind = np.float64 if logits.dtype == torch.float64 else np.float32
            self.scores: FloatArray = np.zeros((len(self.rows), 1), kind)  # [B, n]: log p
            self.worst: FloatArray = np.full(len(self.rows), NEVER, kind)  # [B]: the worst of the n-best so far
            while True:
                tokens, parents = self._advance(logits)
                if not self.rows:
                    break
                there = (torch.from_numpy(table).to(logits.device) for table in (tokens, parents))
                logits = to_float32(self.reader.step(*there))
        return [sorted(hypotheses, key=_score)[: self.settings.nbest] for hypotheses in self.found]

    def _advance(self, logits: Tensor) -> tuple[IntArray, IntArray]:
        """Return the next tokens [B, n] and their parents [B, n]; finished inputs are removed."""
        (B, n), beam, V = self.scores.shape, self.settings.beam, logits.shape[1]
        spare = 1 + max(1, len(self.stop))  # enough continuations per text besides stop tokens
        best, parents, tokens = topk(self._constrain(logits).view(B, n, V), self.scores, min(beam * spare, n * V))
        place = self.text.shape[2] + 1
        ends = (tokens[..., None] == self.stop).any(axis=2) | (self.limits <= place)[:, None]
        blocked = self._find_blocked(best) if self.rules is not None and self.rules.forbids else None
        if ends.any():
            self._finish(best, parents, tokens, ends, place)
            best = np.where(ends, NEVER, best)
            order = (-best).argsort(axis=1, kind="stable")
            best, parents, tokens = (np.take_along_axis(table, order, axis=1) for table in (best, parents, tokens))
        best, parents, tokens = best[:, :beam], parents[:, :beam], tokens[:, :beam]
        old = self.text[np.arange(B)[:, None], parents]
        self.text, self.scores = np.concatenate((old, tokens[..., None]), axis=2), best
        return self._select_rows(tokens, parents, self._is_open(place, blocked), logits.device)

    def _constrain(self, logits: Tensor) -> Tensor:
        rules, logp = self.rules, torch.log_softmax(logits, dim=1)
        if rules is None:
            return logp
        written = torch.from_numpy(self.text).flatten(0, 1).to(logits.device)
        logp = rules.penalize(logp, written)
        return rules.forbid(logp, written) if rules.forbids else logp

    def _finish(self, best: FloatArray, parents: IntArray, tokens: IntArray, ends: BoolArray, place: int) -> None:
        """Finish hypotheses among the first `beam` continuations that end."""
        beam, penalty = self.settings.beam, place**self.settings.length_penalty
        over = ends[:, :beam] & (best[:, :beam] > NEVER)
        touched = set()
        for row, rank in np.argwhere(over).tolist():
            text = [*self.text[row, parents[row, rank]].tolist(), int(tokens[row, rank])]
            self.found[self.rows[row]].append(Hypothesis(text, float(best[row, rank]) / penalty))
            touched.add(row)
        for row in touched:
            self._drop_worst(row)

    def _drop_worst(self, row: int) -> None:
        hypotheses = self.found[self.rows[row]]
        needed = self.settings.nbest if self.settings.early == "exact" else self.settings.beam
        if len(hypotheses) >= needed:
            if self.settings.early == "exact":
                hypotheses.sort(key=_score)
                del hypotheses[needed:]
                self.worst[row] = hypotheses[-1].score
            else:
                self.worst[row] = -NEVER  # no open prefix is good enough

    def _find_blocked(self, best: FloatArray) -> BoolArray:
        """Return inputs without any allowed continuation: they end as they are."""
        blocked: BoolArray = best[:, 0] == NEVER
        length = self.text.shape[2]
        for row in blocked.nonzero()[0].tolist():
            for text, score in zip(self.text[row].tolist(), self.scores[row].tolist(), strict=True):
                if score > NEVER:
                    penalty = max(1, length) ** self.settings.length_penalty
                    self.found[self.rows[row]].append(Hypothesis(text, score / penalty))
        return blocked

    def _is_open(self, place: int, blocked: BoolArray | None) -> BoolArray:
        """Return whether an input continues, [B]."""
        penalty = self.settings.length_penalty
        reach = self.scores[:, 0] / (self.limits if penalty > 0 else place + 1) ** penalty
        going: BoolArray = (reach > self.worst) & (self.limits > place)
        return going if blocked is None else going & ~blocked

    def _select_rows(
        self, tokens: IntArray, parents: IntArray, going: BoolArray, device: torch.device
    ) -> tuple[IntArray, IntArray]:
        if going.all():
            return tokens, parents
        keep = going.nonzero()[0]
        self.rows = [self.rows[row] for row in keep.tolist()]
        if self.rows:
            there = torch.from_numpy(keep).to(device)
            self.reader.select_rows(there)
            if self.rules is not None:
                self.rules.select_rows(there)
        self.text, self.scores = self.text[keep], self.scores[keep]
        self.worst, self.limits = self.worst[keep], self.limits[keep]
        return tokens[keep], parents[keep]


def _score(hypothesis: Hypothesis) -> float:
    return -hypothesis.score
