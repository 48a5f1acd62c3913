"""Head importance for a task: by ablation (exact, with a confidence interval), and by gradient (cheap)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from multihead.data.batching import plan_batches
from multihead.inference import Pipeline
from multihead.inspection import ablate
from multihead.io.html import html_table
from multihead.metrics import Difference, Score, Spearman
from multihead.models import TaskModel
from multihead.pruning.evaluation import (
    REPLICATES,
    EncodedRow,
    WindowOutputs,
    count_rows,
    encode_rows,
    make_batches,
    named_score,
    score,
    score_loss,
)
from multihead.pruning.gradient_importance import HeadGates
from multihead.pruning.partial_forward import PartialForward
from multihead.tasks import Batch, Scorer, Task, Values

BLOCK = 1024  # rows whose predictions are in memory at once
PORTIONS = 10  # early stopping tests the heads after each of them
CLEAR = 10  # rows: a head that affects at most this many of all rows is decided
GRADIENT = 3.0  # evaluations: a forward pass and a backward pass, which costs about two
MOST = 0.45  # share of the cost of measuring every head on every row: early stopping spends no more
ProgressCallback = Callable[[float], None] | None


@dataclass(frozen=True)
class HeadEffect:
    """Effect of one head: the score lost without it (positive: the head is needed), and on how many rows."""

    address: str
    loss: Difference | None
    gradient: float | None
    rows: int
    settled: bool = False  # the interval lies on one side of 0, or close around it


@dataclass(frozen=True)
class HeadRanking:
    """Ranking, most important head first. cost: in evaluations of the full model, counted in layers, not in seconds."""

    metric: str
    whole: Score | None
    effects: list[HeadEffect]
    agreement: float | None  # Spearman's correlation of the two methods
    cost: dict[str, float]
    clear: float | None = None  # early: largest interval around 0 that counts as decided

    def __repr__(self) -> str:
        lines = [f"{e.address:<20}{'' if e.loss is None else f'{e.loss.value:9.4f}'}" for e in self.effects]
        return f"{self.metric} lost without the head\n" + "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            (
                effect.address,
                "" if effect.loss is None else f"{effect.loss.value:+.4f}",
                "" if effect.loss is None else f"{effect.loss.interval.low:+.4f} to {effect.loss.interval.high:+.4f}",
                "" if effect.gradient is None else f"{effect.gradient:.3g}",
            )
            for effect in self.effects
        ]
        return html_table(f"{self.metric} lost without the head", ("head", "loss", "95 % CI", "gradient"), rows)


def rank(
    loaded: Pipeline,
    rows: Iterable[Values],
    by: Sequence[str] = ("ablation", "gradient"),
    *,
    metric: str | None = None,
    early: bool = False,
    batch_tokens: int = 4096,
    on_progress: ProgressCallback = None,
) -> HeadRanking:
    """Rank heads. by: "ablation", "gradient" or both. on_progress: called with the share completed.

    early: stop measuring a head once its interval, corrected for repeated tests, lies on one side of 0 or so close
    around it that at most ten of all rows can depend on the head.
    """
    if not by or not set(by) <= {"ablation", "gradient"}:
        raise ValueError(f"by={list(by)}: give ablation, gradient or both")
    task, model = loaded.make_task(), loaded.model.eval()
    ready = encode_rows(task, rows)
    cost: dict[str, float] = {}
    gradients: dict[str, float] = {}
    if "gradient" in by:
        gates = HeadGates(model)
        gates.measure(task, ready, batch_tokens)
        gradients, cost["gradient"] = gates.heads(), GRADIENT
    if "ablation" not in by:
        effects = [HeadEffect(address, None, value, len(ready)) for address, value in gradients.items()]
        effects.sort(key=lambda effect: -(effect.gradient or 0.0))
        return HeadRanking(named_score(task.scorer(1), metric), None, effects, None, cost)
    search = AblationStudy(model, task, ready, metric, batch_tokens, on_progress)
    effects = search.early() if early else search.exact()
    cost["ablation"] = search.cost
    effects = [replace(effect, gradient=gradients.get(effect.address)) for effect in effects]
    effects.sort(key=lambda effect: (-_value(effect), -(effect.gradient or 0.0)))
    full_score = search.whole.result()[search.metric]
    agreement = _agreement(effects) if gradients else None
    return HeadRanking(search.metric, full_score, effects, agreement, cost, search.clear if early else None)


class AblationStudy:
    """Ablation of every head in turn, on the same batches: the layers before it run once for all of them."""

    def __init__(
        self,
        model: TaskModel,
        task: Task,
        ready: list[EncodedRow],
        metric: str | None,
        batch_tokens: int,
        on_progress: ProgressCallback,
    ) -> None:
        self.task, self.model, self.batch_tokens, self.on_progress = task, model, batch_tokens, on_progress
        # In this order, any slice of rows is a representative sample of all of them.
        order = np.random.Generator(np.random.PCG64(0)).permutation(len(ready))
        self.rows = [ready[i] for i in order]
        self.passes = PartialForward(model)
        self.addresses = [f"{name}.{n}" for name, head_numbers in self.passes.numbers.items() for n in head_numbers]
        self.metric = named_score(task.scorer(1), metric)
        self.evaluation = len(self.passes.blocks) * area(ready, batch_tokens)
        self.whole = task.scorer(REPLICATES)
        self.clear = 0.0
        self.foretells = (
            task.score_rows(model, []) is not None
        )  # scored by text, not by predictions: no partial forward
        self.judged = 0  # windows scored

    @property
    def cost(self) -> float:
        return self.passes.ran / self.evaluation

    def exact(self) -> list[HeadEffect]:
        """Measure every head on every row."""
        scorers = {address: self.task.scorer(REPLICATES) for address in self.addresses}
        self._measure(self.addresses, self.rows, [self.whole], scorers, 1 + self._price(self.addresses))
        return [self._effect(address, self.whole, scorers[address], 0.95) for address in self.addresses]

    def early(self) -> list[HeadEffect]:
        """Measure portion by portion, dropping heads whose interval is decided. If `MOST` does not suffice for the
        rest, it is spent on those that are most likely important."""
        portions = [list(part) for part in np.array_split(np.array(self.rows, dtype=object), PORTIONS) if len(part)]
        wholes = [self.task.scorer(REPLICATES) for _ in portions]
        scorers = {address: self.task.scorer(REPLICATES) for address in self.addresses}
        level = 1 - 0.05 / len(portions)  # Bonferroni correction for repeated tests
        most = MOST * (1 + self._price(self.addresses))
        effects: dict[str, HeadEffect] = {}
        left = list(self.addresses)
        self.batch_tokens //= len(portions)  # fewer rows at a time vary more in length: smaller batches avoid padding
        shares = [len(self.passes.blocks) * area(rows, self.batch_tokens) / self.evaluation for rows in portions]
        for number, portion in enumerate(portions):
            rest, share = sum(shares[number:]), shares[number]
            while left and number and self.cost + rest + share * self._price(left) > most:
                left.pop()  # the least likely important of the undecided
            self._measure(left, portion, wholes[number:], scorers, most)
            self.clear = self._worth(wholes[number])
            for address in left:
                effects[address] = self._effect(address, wholes[number], scorers[address], level)
            left = sorted((a for a in left if not effects[a].settled), key=lambda a: -_high(effects[a]))
        self.whole = wholes[-1]
        return list(effects.values())

    def _worth(self, full: Scorer) -> float:
        """Return the value of `CLEAR` rows in the score; for an unbounded score, the same share of it."""
        now = full.result()[self.metric]
        return CLEAR / len(self.rows) * {"share": 1.0, "correlation": 1.0, "percent": 100.0}.get(now.unit, now.value)

    def _measure(
        self,
        heads: Sequence[str],
        rows: Sequence[EncodedRow],
        wholes: Sequence[Scorer],
        scorers: dict[str, Scorer],
        expected: float,
    ) -> None:
        every: dict[str, Sequence[Scorer]] = {"": wholes, **{address: [scorers[address]] for address in heads}}
        if self.foretells:
            self._measure_likelihood(every, rows, expected)
            return
        for start in range(0, len(rows), BLOCK):
            batches = make_batches(self.task, rows[start : start + BLOCK], self.batch_tokens)
            outputs: dict[str, WindowOutputs] = {address: {} for address in every}
            for numbers, batch in batches.batches:

                def read(batch: Batch = batch) -> Any:
                    return self.task.forward(self.model, batch)

                for address in outputs:
                    head_outputs = self.passes.run_without([address], read) if address else self.passes.run_whole(read)
                    outputs[address].update(zip(numbers, head_outputs, strict=True))
                if self.on_progress is not None:
                    self.on_progress(min(1.0, self.cost / expected))
            for address, head_scorers in every.items():
                for scorer in head_scorers:
                    score(self.task, batches, outputs[address], scorer)

    def _measure_likelihood(
        self, every: dict[str, Sequence[Scorer]], rows: Sequence[EncodedRow], expected: float
    ) -> None:
        """Measure a task scored by perplexity: it runs on the full text, whichever head is off."""
        values, count = [row.values for row in rows], 0
        for address, head_scorers in every.items():
            with ablate(self.model, [address] if address else []):
                scored = list(self.task.score_rows(self.model, values) or ())
            for scorer in head_scorers:
                for count, (scored_values, prediction) in enumerate(scored):
                    scorer.add(scored_values, prediction, self.judged + count)
            self.passes.ran += len(self.passes.blocks) * area(rows, self.batch_tokens)
            if self.on_progress is not None:
                self.on_progress(min(1.0, self.cost / expected))
        self.judged += count + 1

    def _price(self, heads: Sequence[str]) -> float:
        """Return the cost in evaluations of measuring these heads: the blocks from each head's own on."""
        if self.foretells:
            return float(len(heads))
        blocks = len(self.passes.blocks)
        return sum(blocks - self.passes.first[head.rpartition(".")[0]] for head in heads) / blocks

    def _effect(self, address: str, full: Scorer, without: Scorer, level: float) -> HeadEffect:
        loss = score_loss(full, without, self.metric, level)
        low, high = loss.interval.low, loss.interval.high
        settled = low > 0 or high < 0 or (low >= -self.clear and high <= self.clear)
        return HeadEffect(address, loss, None, count_rows(full), settled)


def area(rows: Sequence[EncodedRow], batch_tokens: int) -> int:
    """Return the number of positions of all batches, padding included: the input of one block in one pass."""
    total = 0
    for start in range(0, len(rows), BLOCK):
        sizes = np.array([len(window["tokens"]) for row in rows[start : start + BLOCK] for window in row.windows])
        total += sum(
            int(sizes[b].max()) * len(b) for b in plan_batches(sizes, max(batch_tokens, int(sizes.max())), 0, 0)
        )
    return total


def _value(effect: HeadEffect) -> float:
    return 0.0 if effect.loss is None else effect.loss.value


def _high(effect: HeadEffect) -> float:
    return 0.0 if effect.loss is None else effect.loss.interval.high


def _agreement(effects: Sequence[HeadEffect]) -> float:
    metric = Spearman(replicates=0)
    metric.add([_value(effect) for effect in effects], [effect.gradient or 0.0 for effect in effects])
    return metric.result()["spearman"].value
