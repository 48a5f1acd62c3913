"""Beam search: at every step the `beam` best beginnings of each input go on (Lowerre 1976).

Of the likeliest continuations, those that end in a stop token among the first `beam` are finished: score = log p /
length ** penalty; the best `beam` of the others go on. At an input's limit all of them are finished.

When an input is done. "exact": as soon as nothing that still goes on could enter the n-best. log p only falls, so a
beginning with log p = s scores at most s / limit ** penalty (penalty > 0: the longer the better), s (0), or
s / (length + 1) ** penalty (< 0). This changes no result, it only saves steps. "full": as soon as `beam` hypotheses
are finished, as fairseq does: fewer steps, and now and then a better text is missed.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import torch
from torch import Tensor

from multihead.decode.choose import best_of, refuse_broken, sound
from multihead.decode.rules import NEVER, Rules
from multihead.decode.settings import Decoding, Hypothesis
from multihead.decode.steps import Reader


class Beam:
    """The search over B inputs. n: texts of each that go on now, 1 at first, then `beam`."""

    def __init__(
        self, reader: Reader, rules: Rules | None, settings: Decoding, limits: Sequence[int], stop: Set[int]
    ) -> None:
        self.reader, self.rules, self.settings = reader, rules, settings
        self.stop = torch.tensor(sorted(stop), dtype=torch.long)
        self.found: list[list[Hypothesis]] = [[] for _ in limits]
        self.rows = list(range(len(limits)))  # which input each row of the batch is
        self.limits = torch.tensor(limits)

    def run(self) -> list[list[Hypothesis]]:
        """Every input's n-best, best first."""
        with torch.inference_mode():
            logits = sound(self.reader.start())
            refuse_broken(logits)
            device, B = logits.device, len(self.rows)
            self.stop, self.limits = self.stop.to(device), self.limits.to(device)
            self.text = torch.empty(B, 1, 0, dtype=torch.long, device=device)  # [B, n, t]
            self.scores = logits.new_zeros(B, 1)  # [B, n]: log p
            self.worst = logits.new_full((B,), NEVER)  # [B]: the last of the n-best so far
            nearest = int(self.limits.min())
            while True:
                tokens, parents = self._advance(logits, nearest)
                if not self.rows:
                    break
                logits = sound(self.reader.step(tokens, parents))
        return [sorted(found, key=_score)[: self.settings.nbest] for found in self.found]

    def _advance(self, logits: Tensor, nearest: int) -> tuple[Tensor, Tensor]:
        """The next tokens [B, n] and the texts [B, n] that they follow; inputs that are done have left."""
        B, n = self.scores.shape
        beam, V = self.settings.beam, logits.shape[1]
        logp = self._ruled(logits)
        spare = 1 + max(1, len(self.stop))  # so many continuations per text that enough of them are no stop tokens
        best, parents, tokens = best_of(logp.view(B, n, V), self.scores, min(beam * spare, n * V))
        place = self.text.shape[2] + 1
        ends = torch.isin(tokens, self.stop) if len(self.stop) else torch.zeros_like(tokens, dtype=torch.bool)
        if place >= nearest:
            ends |= (self.limits <= place)[:, None]
        blocked = self._blocked(best) if self.rules is not None and self.rules.forbids else None
        if bool(ends.any()):
            self._finish(best, parents, tokens, ends, place)
            best, order = best.masked_fill(ends, NEVER).topk(min(beam, best.shape[1]))
            parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        elif best.shape[1] > beam:
            best, parents, tokens = best[:, :beam], parents[:, :beam], tokens[:, :beam]
        first = torch.arange(0, B * n, n, device=parents.device)[:, None]
        old = self.text.view(B * n, -1).index_select(0, (first + parents).flatten()).view(*parents.shape, -1)
        self.text, self.scores = torch.cat((old, tokens[..., None]), dim=2), best
        return self._leave(tokens, parents, self._open(place, blocked))

    def _ruled(self, logits: Tensor) -> Tensor:
        rules, logp = self.rules, torch.log_softmax(logits, dim=1)
        if rules is None:
            return logp
        written = self.text.flatten(0, 1)
        logp = rules.penalise(logp, written)
        return rules.forbid(logp, written) if rules.forbids else logp

    def _finish(self, best: Tensor, parents: Tensor, tokens: Tensor, ends: Tensor, place: int) -> None:
        """Hypotheses among the first `beam` continuations that end."""
        beam, penalty = self.settings.beam, place**self.settings.length_penalty
        over = ends[:, :beam] & (best[:, :beam] > NEVER)
        touched = set()
        for row, rank in over.nonzero().tolist():
            text = [*self.text[row, int(parents[row, rank])].tolist(), int(tokens[row, rank])]
            self.found[self.rows[row]].append(Hypothesis(text, float(best[row, rank]) / penalty))
            touched.add(row)
        for row in touched:
            self._settle(row)

    def _settle(self, row: int) -> None:
        found = self.found[self.rows[row]]
        wanted = self.settings.nbest if self.settings.early == "exact" else self.settings.beam
        if len(found) >= wanted:
            if self.settings.early == "exact":
                found.sort(key=_score)
                del found[wanted:]
                self.worst[row] = found[-1].score
            else:
                self.worst[row] = -NEVER  # nothing that goes on is good enough

    def _blocked(self, best: Tensor) -> Tensor | None:
        """Inputs whose texts may not go on at all: they end as they are."""
        blocked = best[:, 0] == NEVER
        if not bool(blocked.any()):
            return None
        length = self.text.shape[2]
        for row in blocked.nonzero()[:, 0].tolist():
            for text, score in zip(self.text[row].tolist(), self.scores[row].tolist(), strict=True):
                if score > NEVER:
                    penalty = max(1, length) ** self.settings.length_penalty
                    self.found[self.rows[row]].append(Hypothesis(text, score / penalty))
        return blocked

    def _open(self, place: int, blocked: Tensor | None) -> Tensor:
        """[B]: whether an input goes on."""
        penalty = self.settings.length_penalty
        if penalty > 0:
            reach = self.scores[:, 0] / self.limits**penalty
        else:
            reach = self.scores[:, 0] / (place + 1) ** penalty
        going = (reach > self.worst) & (self.limits > place)
        return going if blocked is None else going & ~blocked

    def _leave(self, tokens: Tensor, parents: Tensor, going: Tensor) -> tuple[Tensor, Tensor]:
        if bool(going.all()):
            return tokens, parents
        keep = going.nonzero()[:, 0]
        self.rows = [self.rows[row] for row in keep.tolist()]
        if self.rows:
            self.reader.leave(keep)
            if self.rules is not None:
                self.rules.leave(keep)
        self.text, self.scores, self.worst, self.limits = (
            part.index_select(0, keep) for part in (self.text, self.scores, self.worst, self.limits)
        )
        return tokens.index_select(0, keep), parents.index_select(0, keep)


def _score(hypothesis: Hypothesis) -> float:
    return -hypothesis.score
