"""A run: from a run file to a trained model, step by step; what happens is told as events.

A run that was stopped, however, goes on from its newest whole checkpoint, bit for bit.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from multihead.build import Loaded, save
from multihead.data.disk import write_bytes, write_json
from multihead.machine.threads import processors
from multihead.run import RunFile, difference, read, write
from multihead.scores import Score, plain
from multihead.tasks import Prediction, Scorer, Values
from multihead.tasks.predict import evaluate
from multihead.train import checkpoints
from multihead.train.examples import Examples, cache_key, encoded
from multihead.train.lock import only_writer
from multihead.train.loop import Order, Plan, Step, fit
from multihead.train.optimizer import adamw
from multihead.train.setup import Setup, set_up


@dataclass(frozen=True)
class Resumed:
    step: int
    notes: list[str]  # what was wrong with newer checkpoints


@dataclass(frozen=True)
class Evaluated:
    step: int
    scores: dict[str, Score]
    main: str
    best: bool


@dataclass(frozen=True)
class Saved:
    step: int
    path: Path


Event = Step | Resumed | Evaluated | Saved


class Training:
    """`for event in training:` trains; `finish` scores the best model and writes it."""

    def __init__(self, run: RunFile, fresh: bool = False) -> None:
        self.run, self.out = run, Path(run.out)
        self._claim(fresh)
        torch.set_num_threads(processors() if run.train.threads == "auto" else int(run.train.threads))
        self.setup: Setup = set_up(run)
        self.task, self.model = self.setup.task, self.setup.loaded.model
        train = run.data.train
        files = [Path(f) for f in ([train] if isinstance(train, str) else train)]
        side = self.setup.sides["train"]
        key = cache_key(files, self.task, f"{side.side} {side.limit}")
        self.examples: Examples = encoded(self.task, side, self.out / "cache", key)
        options = run.train
        self.plan = Plan(
            epochs=options.epochs or 1,
            steps=options.steps,
            batch_tokens=max(options.batch_tokens, int(self.examples.sizes.max())),
            accumulate=options.accumulate,
            schedule=options.schedule,
            warmup=float(options.warmup),
            clip=options.clip,
            seed=options.seed,
        )
        self.order = Order(self.examples.sizes, self.plan)
        self.best: dict[str, Any] = {}
        self.average: dict[str, Tensor] | None = None
        self.scores: dict[str, dict[str, Score]] = {}  # of the best model, by side
        self.stop = False  # set from outside: save at the next step, and leave

    def _claim(self, fresh: bool) -> None:
        """A directory of another run is not overwritten: the difference is shown."""
        if fresh and self.out.exists():
            for name in ("checkpoints", "best", "model", "log.jsonl", "metrics.json", "run.toml"):
                path = self.out / name
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        written = self.out / "run.toml"
        if written.exists() and (changed := difference(read(written), self.run)):
            raise ValueError(
                f"{self.out} holds a run with other settings ({'; '.join(changed)}); "
                "choose another out, or start over with --fresh"
            )
        write_bytes(written, write(self.run).encode())

    def __iter__(self) -> Iterator[Event]:
        with only_writer(self.out):
            yield from self._events()

    def _events(self) -> Iterator[Event]:
        options = self.run.train
        optimizer = adamw(self.model, options.lr, options.weight_decay, options.layer_decay)
        kept, wrong = checkpoints.latest(self.out / "checkpoints")
        start = 0
        if options.average == "ema":
            self.average = {name: tensor.clone() for name, tensor in checkpoints.weights(self.model).items()}
        if kept is not None:
            start, self.best = kept.step, kept.state["best"]
            checkpoints.restore(self.model, kept.tensors["model"])
            checkpoints.restore_optimizer(optimizer, kept.tensors["optimizer"])
            if self.average is not None:
                self.average = {name: tensor.clone() for name, tensor in kept.tensors["average"].items()}
            yield Resumed(start, wrong)
        elif wrong:
            yield Resumed(0, wrong)
        self._cut_log(start)
        per_epoch = options.eval_every or max(1, round(self.order.steps / max(1, round(self.plan.epochs))))
        for step in fit(self.model, self.task, self.examples, optimizer, self.plan, start):
            self._log(asdict(step))
            if self.average is not None:
                self._blend(min(options.ema_decay, (1 + step.step) / (10 + step.step)))
            yield step
            last = step.step == self.order.steps
            if step.step % per_epoch == 0 or last:
                yield self._evaluate(step.step)
            enough = 0 < options.patience <= self.best.get("stale", 0)
            if step.step % options.save_every == 0 or last or self.stop or enough:
                path = self._save(step.step, optimizer)
                yield Saved(step.step, path)
            if self.stop or enough:
                return

    def finish(
        self, replicates: int = 1000, told: Mapping[str, Callable[[Values, Prediction, bool], None]] | None = None
    ) -> dict[str, Scorer]:
        """The best weights, scored on validation and test data, and written as a model directory."""
        if self.best:
            kept = checkpoints.opened(self.out / "best" / f"step-{self.best['step']}")
            checkpoints.restore(self.model, kept.tensors["model"])
        scorers: dict[str, Scorer] = {
            side: evaluate(self.model, self.task, self.setup.sides[side](), replicates, (told or {}).get(side))
            for side in ("valid", "test")
            if side in self.setup.sides
        }
        self.scores = {side: scorer.result() for side, scorer in scorers.items()}
        write_json(self.out / "metrics.json", {"step": self.best.get("step"), **plain(self.scores)})
        save(self.loaded, self.out / "model")
        return scorers

    @property
    def loaded(self) -> Loaded:
        return self.setup.loaded

    def _evaluate(self, step: int) -> Evaluated:
        held = None
        if self.average is not None:
            held = {name: tensor.clone() for name, tensor in checkpoints.weights(self.model).items()}
            checkpoints.restore(self.model, self.average)
        scorer = evaluate(self.model, self.task, self.setup.sides["valid"](), replicates=0)
        scores = scorer.result()
        value = scores[scorer.main].value
        best = not self.best or value > self.best["score"]
        self.best["stale"] = 0 if best else self.best["stale"] + 1  # evaluations since the best one
        if best:
            self.best |= {"step": step, "score": value}
            checkpoints.save(self.out / "best", step, {"model": checkpoints.weights(self.model)}, self.best, keep=1)
        if held is not None:
            checkpoints.restore(self.model, held)
        self._log({"step": step, "valid": {name: score.value for name, score in scores.items()}})
        return Evaluated(step, scores, scorer.main, best)

    def _save(self, step: int, optimizer: torch.optim.Optimizer) -> Path:
        tensors = {"model": checkpoints.weights(self.model), "optimizer": checkpoints.optimizer_tensors(optimizer)}
        if self.average is not None:
            tensors["average"] = self.average
        state = {"best": self.best, "threads": torch.get_num_threads(), "torch": torch.__version__}
        return checkpoints.save(self.out / "checkpoints", step, tensors, state, self.run.train.keep)

    def _blend(self, decay: float) -> None:
        assert self.average is not None
        now = checkpoints.weights(self.model)
        torch._foreach_lerp_(list(self.average.values()), [now[name] for name in self.average], 1 - decay)

    def _log(self, record: dict[str, Any]) -> None:
        with open(self.out / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def _cut_log(self, step: int) -> None:
        """Lines behind the checkpoint are written again by the steps that are taken again."""
        path = self.out / "log.jsonl"
        if path.exists():
            lines = path.read_text(encoding="utf-8").split("\n")
            keep = [line for line in lines if 0 <= _step_of(line) <= step]
            write_bytes(path, "".join(line + "\n" for line in keep).encode())


def _step_of(line: str) -> int:
    """The step of a line of the log; -1 for one that was cut off."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return -1
