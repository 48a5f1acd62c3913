"""A training run: from a run file to a trained model, as a stream of events.

An interrupted run resumes from its newest intact checkpoint, bit for bit.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from multihead.config import RunConfig, difference, pin_paths, read, write
from multihead.config.toml import format_toml
from multihead.inference import Pipeline
from multihead.inference.engine import evaluate
from multihead.io.files import make_directory, name_file_in_errors, remove_tree, write_bytes, write_json
from multihead.machine import memory
from multihead.machine.cpu_sharing import share_cpus
from multihead.machine.threads import processors
from multihead.metrics import Score, to_json
from multihead.models.finite import first_not_finite
from multihead.pretrained import save, without_readout
from multihead.tasks import Prediction, Scorer, Task, Values
from multihead.training import checkpoints
from multihead.training.acceleration import compile_model, resolve_precision, saved_precision
from multihead.training.dataset import TrainingData, build_dataset
from multihead.training.events import Evaluated, Event, Note, Resumed, Saved
from multihead.training.lock import lock_directory
from multihead.training.log import JsonlLog
from multihead.training.loop import TaskStream, TrainSettings, train_steps
from multihead.training.lora import merge_updates
from multihead.training.model_selection import finite_or_none, is_better, is_preferred, loss_of, mean_score
from multihead.training.multitask_schedule import make_schedule
from multihead.training.optimizer import adamw
from multihead.training.partial_embedding import restore_embedding, shrink_embedding
from multihead.training.resume import Origin, open_best, sweep_litter
from multihead.training.setup import TaskSetup, set_up
from multihead.training.summary import RunSummary
from multihead.training.tensorboard import TensorBoardWriter, step_scalars
from multihead.training.weight_averaging import (
    average_checkpoints,
    checkpoints_to_average,
    copy_weights,
    ema_update,
    swapped_weights,
)

log = logging.getLogger(__name__)

MEAN = "mean"  # multi-task main score
HELD = 0.5  # share of available memory above which freed memory is returned to the system


class TrainingRun(RunSummary):
    """Training run: `for event in training:` trains; `finish` evaluates the best model and saves it."""

    def __init__(self, run: RunConfig, fresh: bool = False) -> None:
        self.run, self.out = run, Path(run.out)
        self.notes: list[str] = []  # reported before the first step
        self._claim(fresh)
        began = None if fresh else saved_precision(self.out / "checkpoints")
        memory.disable_malloc_trim()
        self.room = int(HELD * memory.memory_limit())
        torch.set_num_threads(processors() if run.train.threads == "auto" else int(run.train.threads))
        share_cpus()
        self.subjects: list[TaskSetup]
        self.subjects, self.model = set_up(run)  # multi-task: the model holds all readouts
        options = run.train
        device = self.subjects[0].task.device
        precision, self.note = resolve_precision(began or options.precision, device)
        data = [build_task_dataset(subject, self.out / "cache", precision) for subject in self.subjects]
        self.plan = TrainSettings(
            epochs=options.epochs or 1,
            steps=options.steps,
            batch_tokens=max(options.batch_tokens, int(data[0].sizes.max())),
            accumulate=options.accumulate,
            schedule=options.schedule,
            warmup=float(options.warmup),
            floor=min(1.0, options.lr_end / options.lr),
            clip=options.clip,
            seed=options.seed,
            precision=precision,
        )
        self.parts = [
            TaskStream(compile_model(subject.loaded.model, options.compile), subject.task, windows, subject.name)
            for subject, windows in zip(self.subjects, data, strict=True)
        ]
        self.order, self.whose = make_schedule(data, [s.weight for s in self.subjects], self.plan, options.batch_tokens)
        self.origin = Origin(run, [key for windows in data for key in windows.keys])
        self.validated = [s for s in self.subjects if "valid" in s.sides and not s.auxiliary]
        self.best: dict[str, Any] = {}
        self.average: dict[str, Tensor] | None = None  # moving average over steps (ema)
        self.mean: dict[str, Tensor] = {}  # mean of the last checkpoints, if it is best
        self.mean_of: list[int] = []
        self.curves = TensorBoardWriter(self.out / "tensorboard")
        self.log = JsonlLog(self.out / "log.jsonl")
        self.scores: dict[str, Any] = {}  # of the best model, by split; multi-task: by name and split
        self.stop = False  # set from outside: save at the next step, and stop
        # Only now, after all checks: a faulty run file must neither lock its directory nor empty it.
        with lock_directory(self.out):
            sweep_litter(self.out)
            if fresh:
                self._clear()
            write_bytes(self.out / "run.toml", write(pin_paths(run)).encode())

    def _claim(self, fresh: bool) -> None:
        """Raise ValueError instead of overwriting a directory of another run, and show the difference."""
        with name_file_in_errors(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
        written = self.out / "run.toml"
        if not fresh and written.exists() and (changed := difference(self._read_settings(written), self.run)):
            written_otherwise = all(key.startswith("decode.") for key in changed)
            raise ValueError(
                f"{self.out} contains a run with different settings ({'; '.join(changed)}); "
                "choose another out, or start over with --fresh"
                + ("; evaluate and predict take decode.* for a trained model" if written_otherwise else "")
            )

    def _read_settings(self, file: Path) -> RunConfig:
        """Return the settings of the run in this directory; if the file is damaged, those in the newest checkpoint."""
        try:
            return read(file, [f"out={format_toml(str(self.out))}"])
        except ValueError as error:
            settings = next(
                (state["run"] for state in checkpoints.read_states(self.out / "checkpoints") if "run" in state), ""
            )
            if not settings:
                raise ValueError(f"{error}; fix it, choose another out, or start over with --fresh") from None
            self.notes.append(f"{error}; restored from the checkpoint")
            return read(settings)

    def _clear(self) -> None:
        """Remove files of an earlier run; the token cache validates itself."""
        for name in ("checkpoints", "best", "model", "tensorboard", "log.jsonl", "metrics.json", "run.toml"):
            remove_tree(self.out / name)

    def __iter__(self) -> Iterator[Event]:
        with lock_directory(self.out), closing(self.curves):
            yield from self._events()

    def _events(self) -> Iterator[Event]:
        options = self.run.train
        if all(subject.task.readout.over != "vocabulary" for subject in self.subjects):  # may share the embeddings
            also = {token for s in self.subjects for token in (s.task.pad, *s.task.tokenizer.special.values())}
            shrink_embedding(
                self.model.body, (array for part in self.parts for array in cast(TrainingData, part.data).tokens), also
            )
        optimizer = adamw(self.model, options.lr, options.weight_decay, options.layer_decay, options.beta2)
        checkpoint, wrong = checkpoints.latest_checkpoint(self.out / "checkpoints")
        start = 0
        if options.average == "ema":
            self.average = copy_weights(self.model)
        yield from (Note(note) for note in (*self.notes, self.note) if note)
        if checkpoint is not None:
            self.origin.check(checkpoint, self.out / "checkpoints" / f"step-{checkpoint.step}")
            start, self.best = checkpoint.step, checkpoint.state["best"]
            yield from (Note(fault) for fault in self._open_best()[1])
            checkpoints.restore_weights(self.model, checkpoint.tensors["model"])
            checkpoints.restore_optimizer(optimizer, checkpoint.tensors["optimizer"])
            if self.average is not None:
                self.average = {
                    name: torch.empty_like(weights).copy_(checkpoint.tensors["average"][name])
                    for name, weights in self.average.items()
                }
            yield Resumed(start, wrong)
        elif wrong:
            yield Resumed(0, wrong)
        if damaged := self.log.truncate(start):
            yield Note(damaged)
        each = options.eval_every or self._epoch()
        self.curves.begin(start)
        steps = train_steps(self.parts, optimizer, self.plan, self.order, start, self.whose)
        for step in () if self._is_out_of_patience() else steps:
            self.log.add({name: value for name, value in asdict(step).items() if name != "task" or value})
            self.curves.add(step.step, step_scalars(step))
            if self.average is not None:
                ema_update(self.average, self.model, min(options.ema_decay, (1 + step.step) / (10 + step.step)))
            if memory.resident_bytes() > self.room:
                memory.release_freed_memory()
            yield step
            last = step.step == self.order.steps
            if self.validated and (is_due(step.step, each) or last):
                yield self._evaluate(step.step)
            if step.step % options.save_every == 0 or last or self.stop or self._is_out_of_patience():
                path = self._save(step.step, optimizer)
                yield Saved(step.step, path)
            if self.stop:
                return
            if self._is_out_of_patience():
                break
        if options.average == "checkpoints":
            yield from self._mean()

    def _epoch(self) -> float:
        """Steps per epoch: not always an integer, so that the last epoch ends with the last step."""
        epochs = self.run.train.epochs
        return max(1.0, self.order.steps / epochs) if epochs else self.order.epoch_steps

    def _open_best(self) -> tuple[checkpoints.Checkpoint | None, list[str]]:
        """Return the best intact model, and notes about damaged ones."""
        self.best, checkpoint, faults = open_best(self.out / "best", self.best, self.origin)
        instead = (
            f"falling back to the previous best, step {checkpoint.step}"
            if checkpoint
            else "the next evaluation selects a new one, or the last weights are used"
        )
        return checkpoint, [f"{fault}; {instead}" for fault in faults]

    def _is_out_of_patience(self) -> bool:
        return 0 < self.run.train.patience <= self.best.get("stale", 0)

    def finish(
        self, replicates: int = 1000, on_row: Mapping[str, Callable[[Values, Prediction, bool], None]] | None = None
    ) -> dict[str, Scorer]:
        """Evaluate the best weights on validation and test data, and save them as a model directory.

        on_row: callbacks, by split; multi-task: by `TaskSetup.qualified_name`: sst2/test. The scorers have the same
        names.
        """
        with lock_directory(self.out):
            return self._finish(replicates, on_row or {})

    def _finish(
        self, replicates: int, on_row: Mapping[str, Callable[[Values, Prediction, bool], None]]
    ) -> dict[str, Scorer]:
        if (weights := self._final_weights()) is not None:
            checkpoints.restore_weights(self.model, weights)
        self._check_finite(self.best.get("step", self.order.steps))
        merge_updates(self.model)
        restore_embedding(self.model)
        self._write(self.out / "model")  # before anything that could fail
        scorers: dict[str, Scorer] = {}
        for subject in self.subjects:
            for side in ("valid", "test"):
                if side in subject.sides:
                    name, rows = subject.qualified_name(side), subject.sides[side]()
                    scorers[name] = evaluate(subject.loaded.model, subject.task, rows, replicates, on_row.get(name))
            scores = {side: scorers[subject.qualified_name(side)].result() for side in subject.sides if side != "train"}
            self.scores |= {subject.name: scores} if subject.name and scores else scores
        of = {"mean_of": self.mean_of} if self.mean else {"step": self.best.get("step", self.order.steps)}
        several = {"tasks": to_json(self.scores)} if self.subjects[0].name else to_json(self.scores)
        write_json(self.out / "metrics.json", {**of, **several})
        return scorers

    def _final_weights(self) -> Mapping[str, Tensor] | None:
        """Return the final weights; None: the model's current ones."""
        if self.mean:
            return self.mean
        if self.best:
            checkpoint, faults = self._open_best()
            for fault in faults:  # damaged during this run
                log.warning("%s", fault)
            if checkpoint is not None:
                return checkpoint.tensors["model"]
        return self.average

    def _write(self, directory: Path) -> None:
        """Save the model; multi-task: all tasks that are not auxiliary, or a single one as a plain model."""
        make_directory(directory)
        pipelines = {subject.name: subject.loaded for subject in self.subjects if not subject.auxiliary}
        name, first = next(iter(pipelines.items()))
        if len(pipelines) == 1:
            save(replace(first, name=name), directory)
        else:
            save(without_readout(first), directory, tasks=pipelines)

    @property
    def only_task(self) -> TaskSetup:
        """The task of a single-task run."""
        if len(self.subjects) > 1:
            names = ", ".join(subject.name for subject in self.subjects)
            raise ValueError(f"this run has several tasks: {names}; use .subjects")
        return self.subjects[0]

    @property
    def loaded(self) -> Pipeline:
        return self.only_task.loaded

    @property
    def task(self) -> Task:
        return self.only_task.task

    @property
    def examples(self) -> TrainingData:
        return cast(TrainingData, self.parts[self.subjects.index(self.only_task)].data)

    def _score(self) -> tuple[dict[str, Score], tuple[str, ...], str]:
        """Evaluate while training: the scores, each task's main score, and the deciding one; skips auxiliary tasks."""
        scores: dict[str, Score] = {}
        mains: list[str] = []
        for subject in self.validated:
            rows = islice(subject.sides["valid"](), self.run.train.eval_rows or None)
            scorer = evaluate(subject.loaded.model, subject.task, rows, replicates=0)
            scores |= {subject.qualified_name(name): score for name, score in scorer.result().items()}
            mains.append(subject.qualified_name(scorer.main))
        if len(mains) > 1:
            scores[MEAN] = mean_score([scores[main] for main in mains])
        return scores, tuple(mains), MEAN if len(mains) > 1 else mains[0]

    def _check_finite(self, step: int, **groups: Mapping[str, Tensor]) -> None:
        """Raise before non-finite weights are evaluated or saved; earlier checkpoints remain."""
        for what, tensors in ({"model": checkpoints.model_tensors(self.model)} | groups).items():
            name = first_not_finite(tensors.items())
            if name is not None:
                last = max(checkpoints.list_steps(self.out / "checkpoints"), default=0)
                stays = f"the checkpoint of step {last} remains" if last else "there is no checkpoint before it"
                raise ValueError(
                    f"{self.out}: at step {step} {name} ({what}) is not finite (NaN or infinite); it is not "
                    f"saved, {stays}: lower train.lr or train.weight_decay, and start over with --fresh"
                )

    def _evaluate(self, step: int) -> Evaluated:
        self._check_finite(step, average=self.average or {})
        with swapped_weights(self.model, self.average):
            scores, mains, main = self._score()
            best = is_preferred(scores, main, self.best)
            gain = not self.best or is_better(scores[main], self.best["score"])
            self.best["stale"] = 0 if gain else self.best["stale"] + 1  # evaluations since the score last rose
            if best:
                self.best |= {"step": step, "score": finite_or_none(scores[main].value), "loss": loss_of(scores)}
                # Older ones remain until no checkpoint refers to them.
                tensors = {"model": checkpoints.model_tensors(self.model)}
                state = {"best": self.best, **self.origin.state}
                checkpoints.save(self.out / "best", step, tensors, state, keep=sys.maxsize)
        logged = {name: finite_or_none(score.value) for name, score in scores.items()}
        self.log.add({"step": step, "valid": logged})
        self.curves.add(step, {f"valid/{name}": score.value for name, score in scores.items()})
        return Evaluated(step, scores, main, best, mains=mains)

    def _mean(self) -> Iterator[Event]:
        """Evaluate the mean of the last checkpoints against the best weights so far, as if it were the last evaluation.

        It depends on the files alone, so a run that is resumed after its last step yields the same.
        """
        options, directory = self.run.train, self.out / "checkpoints"
        chosen = checkpoints_to_average(checkpoints.list_steps(directory), options.keep_checkpoints, options.save_every)
        tensors, chosen, wrong = average_checkpoints(directory, chosen, self.origin.check)
        yield from (Note(f"excluded from the mean: {fault}") for fault in wrong)
        if not self.validated:
            self.mean, self.mean_of = tensors, chosen
            return
        with swapped_weights(self.model, tensors):
            scores, mains, main = self._score()
        best = is_preferred(scores, main, self.best)
        if best:
            self.mean, self.mean_of = tensors, chosen
        logged = {name: finite_or_none(score.value) for name, score in scores.items()}
        self.log.add({"step": chosen[-1], "mean_of": chosen, "mean": logged})
        yield Evaluated(chosen[-1], scores, main, best, tuple(chosen), mains)

    def _save(self, step: int, optimizer: torch.optim.Optimizer) -> Path:
        tensors = {
            "model": checkpoints.model_tensors(self.model),
            "optimizer": checkpoints.optimizer_tensors(optimizer),
        }
        if self.average is not None:
            tensors["average"] = self.average
        self._check_finite(step, **tensors)
        state = {
            "best": self.best,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "precision": self.plan.precision,
            **self.origin.state,
        }
        options = self.run.train
        every = options.save_every if options.average == "checkpoints" else 1
        saved = checkpoints.save(self.out / "checkpoints", step, tensors, state, options.keep_checkpoints, every)
        self._remove_stale()
        return saved

    def _remove_stale(self) -> None:
        """Remove best models that neither this run nor a checkpoint refers to."""
        states = checkpoints.read_states(self.out / "checkpoints")
        spoken = {best.get("step") for best in (self.best, *(state["best"] for state in states))}
        for step in checkpoints.list_steps(self.out / "best"):
            if step not in spoken:
                checkpoints.remove(self.out / "best" / f"step-{step}")


def is_due(step: int, each: float) -> bool:
    """Whether a multiple of `each` lies between the previous step and this one."""
    return step // each > (step - 1) // each


def build_task_dataset(subject: TaskSetup, cache: Path, precision: str) -> TrainingData:
    data = subject.run.data
    if subject.teachers is not None:
        subject.teachers.precision = precision
    files = [Path(file) for file in ([data.train] if isinstance(data.train, str) else data.train)]
    train, beside = subject.sides["train"], subject.beside
    return build_dataset(subject.task, train, cache, files, data.weights, subject.teachers, beside)
