"""Knowledge distillation: train on a teacher's soft labels in addition to the labels (Hinton et al. 2015).

The teacher runs once, when the token cache is filled. Its label probabilities are mixed into the target: weight w for
the soft labels, 1 - w for the gold label. A teacher may be slow: its outputs are cached in chunks of rows, so that an
interrupted run resumes, and a new run with other settings reuses them.

Teacher and student may have different tokenizers and sizes: probabilities are per text, or per word. Several teachers
are averaged. Unlabeled inputs get the most likely label as a pseudo-label.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, tee
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from multihead.data import token_cache
from multihead.inference.engine import AHEAD, encode_row, run_windows
from multihead.io.files import sha256
from multihead.io.hub import resolve
from multihead.io.manifest import MANIFEST
from multihead.pretrained import load
from multihead.tasks import Task, Values, Window
from multihead.training.events import format_duration

FIELDS = {"belief": np.float32, "shape": np.int64}
ELSEWHERE = {"file", "line", "shown"}  # row fields that do not affect the output, or are part of its windows
PACE = 10  # seconds between progress messages

log = logging.getLogger(__name__)


class Teacher:
    def __init__(self, where: str, student: Task) -> None:
        self.loaded = load(where)
        self.task = self.loaded.make_task()
        if type(self.task) is not type(student):
            raise ValueError(
                f"data.teacher: {where} was trained for {self.task.name}; name a model trained for {student.name}"
            )
        ends = [tuple(item.options.get("score", ())) for item in (self.task, student)]
        if ends[0] != ends[1]:
            descriptions = ("scores from {} to {}".format(*item) if item else "classes" for item in ends)
            raise ValueError("data.teacher: {} has {}, but the training data has {}".format(where, *descriptions))
        if {*self.task.labels} != {*student.labels}:
            odd = sorted({*self.task.labels} ^ {*student.labels})
            raise ValueError(
                f"data.teacher: {where} and the training data have different labels: {', '.join(odd[:10])}"
            )
        if self.task.options.get("crf"):
            raise ValueError(
                f"data.teacher: {where} has a CRF and no per-word probabilities; name a teacher without a CRF"
            )
        self.order = [self.task.numbers[label] for label in student.labels]
        self.digest = sha256(resolve(where) / MANIFEST)

    @torch.inference_mode()
    def soft_labels(self, rows: Iterable[Values], precision: str, cache: Path) -> Iterator[NDArray[Any]]:
        """Yield the label probabilities of each row [C], or of each of its words [T, C]."""
        source = iter(self.task.prepare(rows))
        while chunk := list(islice(source, AHEAD)):
            windows = [encode_row(self.task, values) for values in chunk]
            key = self._key(chunk, windows, precision)
            for cached in token_cache.open_or_build(
                cache, key, FIELDS, partial(self._predict, chunk, windows, precision)
            ):
                yield cached["belief"].reshape(cached["shape"])[..., self.order]

    def _key(self, chunk: list[Values], windows: list[list[Window]], precision: str) -> str:
        digest = hashlib.sha256(f"belief {token_cache.VERSION} {self.digest} {precision}".encode())
        for values, several in zip(chunk, windows, strict=True):
            plain = {name: value for name, value in values.items() if name not in ELSEWHERE}
            digest.update(json.dumps(plain, default=str).encode())
            for window in several:
                for name, array in sorted(window.items()):
                    digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def _predict(self, chunk: list[Values], windows: list[list[Window]], precision: str) -> list[dict[str, Any]]:
        model = self.loaded.model.eval()
        outputs = iter(
            run_windows(model, self.task, [window for several in windows for window in several], precision=precision)
        )
        answers = [list(islice(outputs, len(several))) for several in windows]
        beliefs = map(self.task.soft_labels, chunk, windows, answers)
        return [{"belief": belief.astype(np.float32).reshape(-1), "shape": belief.shape} for belief in beliefs]


class TeacherEnsemble:
    def __init__(self, where: str | Sequence[str], student: Task) -> None:
        self.student = student
        self.each = [Teacher(item, student) for item in ([where] if isinstance(where, str) else where)]
        self.precision = "fp32"  # or bf16, where the run trains in it

    @property
    def digests(self) -> list[str]:
        return [teacher.digest for teacher in self.each]

    def __call__(self, rows: Callable[[], Iterable[Values]], cache: Path) -> Iterator[Values]:
        """Yield rows with their soft labels."""
        total = sum(1 for _ in rows())
        student_rows, *asked = tee(rows(), 1 + len(self.each))  # one pass: a reading counts what it reads
        soft_labels_by_teacher = [
            teacher.soft_labels(more, self.precision, cache) for teacher, more in zip(self.each, asked, strict=True)
        ]
        for values, *probabilities in report_progress(zip(student_rows, *soft_labels_by_teacher, strict=True), total):
            yield {**values, "belief": sum(probabilities[1:], probabilities[0]) / len(probabilities)}

    def pseudo_label(self, rows: Callable[[], Iterable[Values]], cache: Path) -> Iterator[Values]:
        """Yield unlabeled rows with the teachers' most likely labels."""
        for values in self(rows, cache):
            yield {**values, **self.student.hard_labels(values["belief"])}


def report_progress(answered: Iterable[tuple[Any, ...]], total: int) -> Iterator[tuple[Any, ...]]:
    """Yield the items unchanged, logging progress now and then."""
    pace: deque[tuple[float, int]] = deque(maxlen=PACE)
    for number, item in enumerate(answered):
        now = time.monotonic()
        if not pace:
            pace.append((now, 0))
        elif now - pace[-1][0] > token_cache.TELL:
            pace.append((now, number))
            first, before = pace[0]
            left = format_duration((now - first) / (number - before) * (total - number))
            log.info("the teacher has processed %s of %s rows, %s left", f"{number:,}", f"{total:,}", left)
        yield item
