"""Dynamic batching for one model: what waits at a moment is read together, and nothing waits for company.

A request's rows are encoded in one thread, so that tokenizing a long text does not hold up the model, and their
windows are read in another. The rules are those of `multihead predict`: the same windows, the same way of joining what
the model gave for them. Only which windows share a batch differs, and that changes the last bits of float32.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

import torch

from multihead.generation import Hypothesis
from multihead.inference.engine import RejectedInput, answer_row, check_tokens, encode_row
from multihead.kernels.packed_linear import use_packed_weights
from multihead.models import TaskModel
from multihead.server.admission import check_size, too_much_text
from multihead.server.batching import choose_batch
from multihead.server.exclusion import ModelLock
from multihead.server.generation import Generator
from multihead.server.jobs import Alone, Job, Observer, Part, cancel_text, deadline_of, fail_work, future_of, run_alone
from multihead.server.limits import Limits, RequestError, deadline_error, overloaded_error, stopping_error
from multihead.server.style import Style, is_streamed, make_writing
from multihead.tasks import Prediction, Task, Values, Window
from multihead.tasks.generate import Generate

# Tokens of a batch. MiniLM reads 13-token texts at 0.28 ms of CPU each token alone and 0.11 ms from 150 tokens on; more
# only make whoever comes next wait longer.
BUDGET = 512


class Scheduler:
    """The queue of one model and the threads that empty it.

    workers: batches that are read at the same time.  lock: shared with whoever else uses the model.  generator: who
    writes texts, token by token; without one, they are written batch by batch.
    """

    def __init__(
        self,
        model: TaskModel,
        limits: Limits,
        observer: Observer,
        *,
        lock: ModelLock | None = None,
        generator: Generator | None = None,
        precision: str = "fp32",
        workers: int = 1,
        budget: int = BUDGET,
    ) -> None:
        self.model, self.limits, self.observer, self.generator = model, limits, observer, generator
        self.precision, self.budget, self.lock = precision, budget, lock or ModelLock()
        self.pace = 0.05  # seconds that an input takes, lately: what a client that is turned away is told to wait
        self._admitted = 0
        self._condition = threading.Condition()
        self._urgent: list[Part | Alone] = []
        self._waiting: list[Part] = []
        self._incoming: SimpleQueue[Job | None] = SimpleQueue()
        self._closed = False
        targets = [self._encode_jobs, *[self._read_batches] * workers]
        self._threads = [threading.Thread(target=run, name="multihead-serve", daemon=True) for run in targets]
        for thread in self._threads:
            thread.start()

    @property
    def depth(self) -> int:
        """Inputs that were admitted and are not answered yet."""
        return self._admitted

    def check_room(self, inputs: int = 1) -> None:
        """Raise if so many more inputs have no room: cheaply, before anything of a request is read."""
        if self._closed:
            raise stopping_error()
        if self._admitted + inputs > self.limits.queue:
            raise overloaded_error(self._admitted * self.pace)

    def submit(
        self, task: Task, rows: Sequence[Values], seconds: float | None = None, *, interactive: bool = False
    ) -> Future[list[Prediction]]:
        """Admit the rows of a request, which `task.checked` has seen, or `RejectedInput` ones; a prediction for each
        comes.

        Cancel the future if the client leaves. Raises RequestError where there is no room.
        """
        return self.admit_rows(task, rows, seconds, interactive=interactive).future

    def admit_rows(
        self, task: Task, rows: Sequence[Values], seconds: float | None = None, *, interactive: bool = False
    ) -> Job:
        """As `submit`; the job knows how many tokens its rows had, too."""
        return self.admit(Job(task, rows, self._deadline(seconds), interactive))

    def write(self, task: Generate, rows: Sequence[Values], style: Style) -> Job:
        """Admit prompts whose texts are written in a style of the request's own."""
        return self.admit(Job(task, rows, self._deadline(None), interactive=False, style=style))

    def admit(self, job: Job) -> Job:
        if len(job.rows) > self.limits.inputs:
            raise RequestError(413, "too_many_inputs", f"a request may hold {self.limits.inputs} inputs; send fewer")
        self._admit(job.future, len(job.rows))
        self._incoming.put(job)
        return job

    def submit_alone(self, function: Callable[[], Any], seconds: float | None = None) -> Future[Any]:
        """Run a function while nobody else uses the model, before all that waits."""
        work = Alone(function, self._deadline(seconds))
        self._admit(work.future, 1)
        with self._condition:
            self._urgent.append(work)
            self._condition.notify()
        return work.future

    def close(self) -> None:
        """Reject what comes and what waits, and end the threads after what they are doing."""
        with self._condition:
            self._closed = True
            waiting = [*self._urgent, *self._waiting]
            self._urgent, self._waiting = [], []
            self._condition.notify_all()
        self._incoming.put(None)
        for work in waiting:
            fail_work(work, stopping_error())
        for thread in self._threads:
            thread.join(timeout=self.limits.seconds)

    def _deadline(self, seconds: float | None) -> float:
        return time.monotonic() + min(self.limits.seconds, self.limits.seconds if seconds is None else seconds)

    def _admit(self, future: Future[Any], inputs: int) -> None:
        with self._condition:
            self.check_room(inputs)
            self._admitted += inputs
        future.add_done_callback(lambda _: self._release(inputs))

    def _release(self, inputs: int) -> None:
        with self._condition:
            self._admitted -= inputs

    def _encode_jobs(self) -> None:
        while (job := self._incoming.get()) is not None:
            if job.future.done():
                continue
            try:
                self._start(job)
            except BaseException as error:  # the tokenizers' panics are no Exception; one request is lost, no thread
                job.fail(error)

    def _start(self, job: Job) -> None:
        """Encode a job's rows and have them read, or gone on with."""
        parts = self._encode(job)
        if not parts:  # all rejected, or no rows
            self._finish(job)
        elif self.generator is not None and isinstance(job.task, Generate) and is_streamed(job.task, job.style):
            self._write_texts(job, parts, self.generator)
        else:
            with self._condition:
                if self._closed:
                    job.fail(stopping_error())
                (self._urgent if job.interactive else self._waiting).extend(parts)
                self._condition.notify_all()

    def _encode(self, job: Job) -> list[Part]:
        parts, tokens = [], 0
        job.rows = list(job.task.prepare(job.rows))
        for row, values in enumerate(job.rows):
            if not isinstance(values, RejectedInput):
                check_size(job.task, values, self.limits)
            encoding = values if isinstance(values, RejectedInput) else self._encode_row(job.task, values)
            job.encodings.append(encoding)
            for place, window in enumerate(() if isinstance(encoding, RejectedInput) else encoding):
                parts.append(Part(job, (row, place), window))
                tokens += len(window["tokens"])
            if tokens > self.limits.tokens:
                raise too_much_text(self.limits)
        job.missing = len(parts)
        return parts

    def _write_texts(self, job: Job, parts: list[Part], generator: Generator) -> None:
        """Have every prompt of a job gone on with, all at the same time."""
        assert isinstance(job.task, Generate)
        for part in parts:
            writing = make_writing(job.task, self.model, part.window, job.style, part.place[0])
            writing.deadline, writing.latest = job.deadline, job.deadline + self.limits.writing
            writing.future.add_done_callback(partial(self._collect_text, part, writing.prompt))
            job.future.add_done_callback(partial(cancel_text, writing.future))
            generator.submit(writing)

    def _collect_text(self, part: Part, prompt: list[int], text: Future[list[int]]) -> None:
        if text.cancelled():
            return
        if (error := text.exception()) is not None:
            part.job.fail(error)
            return
        self._put(part, (prompt, [Hypothesis(text.result(), 0.0)]))

    def _put(self, part: Part, output: Any) -> None:
        """Take what the model gave for a window; the last one of a job finishes it."""
        part.job.outputs[part.place] = output
        part.job.missing -= 1
        if not part.job.missing:
            self._finish(part.job)

    def _encode_row(self, task: Task, values: Values) -> list[Window] | RejectedInput:
        try:
            windows = encode_row(task, values)
            check_tokens(self.model, windows)
            return windows
        except ValueError as error:
            return RejectedInput("bad_input", str(error))

    @torch.inference_mode()
    def _read_batches(self) -> None:
        with use_packed_weights(self.model):  # packs the weights once, for as long as the model is served
            while (work := self._take()) is not None:
                if isinstance(work, Alone):
                    with self.lock.exclusive():
                        run_alone(work)
                else:
                    with self.lock.shared():
                        self._read(work)

    def _take(self) -> Alone | list[Part] | None:
        """Wait for work: something urgent, or the window that waited longest, with those that suit it."""
        with self._condition:
            while True:
                self._drop_settled()
                if self._urgent and isinstance(self._urgent[0], Alone):
                    return self._urgent.pop(0)  # type: ignore[return-value]
                if self._urgent or self._waiting:
                    return self._take_batch()
                if self._closed:
                    return None
                self._condition.wait()

    def _drop_settled(self) -> None:
        """Forget what nobody waits for any more: clients that left, and deadlines that passed."""
        now = time.monotonic()
        late = [work for work in (*self._urgent, *self._waiting) if deadline_of(work) < now]
        for work in late:
            fail_work(work, deadline_error())
        self._urgent = [work for work in self._urgent if not future_of(work).done()]
        self._waiting = [part for part in self._waiting if not part.job.future.done()]

    def _take_batch(self) -> list[Part]:
        every = [part for part in self._urgent if isinstance(part, Part)] + self._waiting
        fitting = [part for part in every if part.job.task is every[0].job.task]
        chosen = [fitting[i] for i in choose_batch([part.length for part in fitting], 0, self.budget)]
        taken = set(map(id, chosen))
        self._urgent = [work for work in self._urgent if id(work) not in taken]
        self._waiting = [part for part in self._waiting if id(part) not in taken]
        return chosen

    def _read(self, parts: list[Part]) -> None:
        task, start = parts[0].job.task, time.monotonic()
        try:
            with torch.autocast(task.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                outputs = task.forward(self.model, task.collate([part.window for part in parts]))
        except Exception as error:
            self._blame(parts, error)
            return
        seconds = time.monotonic() - start
        self.pace += 0.1 * (seconds / len(parts) - self.pace)
        tokens = sum(part.length for part in parts)
        self.observer.saw_batch(len(parts), tokens, len(parts) * max(part.length for part in parts) - tokens, seconds)
        for part, output in zip(parts, outputs, strict=True):
            self._put(part, output)

    def _blame(self, parts: list[Part], error: Exception) -> None:
        """Find out whose fault it was: a batch that failed is read again window by window."""
        if len(parts) == 1:
            parts[0].job.fail(error)
            return
        for part in parts:
            if not part.job.future.done():
                self._read([part])

    def _finish(self, job: Job) -> None:
        predictions: list[Prediction] = []
        try:
            for row, (values, windows) in enumerate(zip(job.rows, job.encodings, strict=True)):
                if isinstance(windows, RejectedInput):
                    predictions.append(windows)
                    continue
                outputs = [job.outputs[row, place] for place in range(len(windows))]
                predictions.append(answer_row(self.model, job.task, values, windows, outputs))
        except Exception as error:
            job.fail(error)
            return
        with suppress(Exception):  # the client left while this was read
            job.future.set_result(predictions)
