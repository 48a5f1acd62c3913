"""A trained model whose answers a new one learns beside the labels (Hinton et al. 2015).

It is asked once, when the token cache is filled. What it believes, the chance of each label, becomes a part of what is
learnt: (1 - trust) of a row's own label and trust of that. It may be slow: its answers are kept, a piece of the rows at
a time, so that a run that was stopped goes on, and one begun anew with other settings need not ask again.

The two may have other tokenizers and other shapes: chances are of a text, or of a word. Of several teachers, the mean
of what they believe is learnt. Of inputs without labels, the best of what is believed stands for them.
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
ELSEWHERE = {"file", "line", "shown"}  # of a row: where it stands, which changes nothing; what its windows hold
PACE = 10  # words by which the time left is told

log = logging.getLogger(__name__)


class Teacher:
    def __init__(self, where: str, student: Task) -> None:
        self.loaded = load(where)
        self.task = self.loaded.make_task()
        if type(self.task) is not type(student):
            raise ValueError(f"data.teacher: {where} was trained for {self.task.name}; {student.name} is wanted")
        ends = [tuple(one.options.get("score", ())) for one in (self.task, student)]
        if ends[0] != ends[1]:
            told = ("scores from {} to {}".format(*one) if one else "classes" for one in ends)
            raise ValueError("data.teacher: {} gives {}, and the data has {}".format(where, *told))
        if {*self.task.labels} != {*student.labels}:
            odd = sorted({*self.task.labels} ^ {*student.labels})
            raise ValueError(f"data.teacher: {where} and the data have other labels: {', '.join(odd[:10])}")
        if self.task.options.get("crf"):
            raise ValueError(f"data.teacher: {where} has a crf, and so no chances of each word's tag; name one without")
        self.order = [self.task.numbers[label] for label in student.labels]
        self.digest = sha256(resolve(where) / MANIFEST)

    @torch.inference_mode()
    def soft_labels(self, rows: Iterable[Values], precision: str, cache: Path) -> Iterator[NDArray[Any]]:
        """Of each row the chance of each label [C], or of each word's [T, C]."""
        source = iter(self.task.prepare(rows))
        while piece := list(islice(source, AHEAD)):
            windows = [encode_row(self.task, values) for values in piece]
            key = self._key(piece, windows, precision)
            for said in token_cache.open_or_build(
                cache, key, FIELDS, partial(self._predict, piece, windows, precision)
            ):
                yield said["belief"].reshape(said["shape"])[..., self.order]

    def _key(self, piece: list[Values], windows: list[list[Window]], precision: str) -> str:
        digest = hashlib.sha256(f"belief {token_cache.VERSION} {self.digest} {precision}".encode())
        for values, several in zip(piece, windows, strict=True):
            plain = {name: value for name, value in values.items() if name not in ELSEWHERE}
            digest.update(json.dumps(plain, default=str).encode())
            for window in several:
                for name, array in sorted(window.items()):
                    digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def _predict(self, piece: list[Values], windows: list[list[Window]], precision: str) -> list[dict[str, Any]]:
        model = self.loaded.model.eval()
        said = iter(
            run_windows(model, self.task, [window for several in windows for window in several], precision=precision)
        )
        answers = [list(islice(said, len(several))) for several in windows]
        beliefs = map(self.task.soft_labels, piece, windows, answers)
        return [{"belief": belief.astype(np.float32).reshape(-1), "shape": belief.shape} for belief in beliefs]


class TeacherEnsemble:
    def __init__(self, where: str | Sequence[str], student: Task) -> None:
        self.student = student
        self.each = [Teacher(one, student) for one in ([where] if isinstance(where, str) else where)]
        self.precision = "fp32"  # or bf16, where the run trains in it

    @property
    def digests(self) -> list[str]:
        return [teacher.digest for teacher in self.each]

    def __call__(self, rows: Callable[[], Iterable[Values]], cache: Path) -> Iterator[Values]:
        """Rows with what is believed of each."""
        total = sum(1 for _ in rows())
        own, *asked = tee(rows(), 1 + len(self.each))  # one pass: a reading counts what it reads
        believed = [
            teacher.soft_labels(more, self.precision, cache) for teacher, more in zip(self.each, asked, strict=True)
        ]
        for values, *said in report_progress(zip(own, *believed, strict=True), total):
            yield {**values, "belief": sum(said[1:], said[0]) / len(said)}

    def pseudo_label(self, rows: Callable[[], Iterable[Values]], cache: Path) -> Iterator[Values]:
        """Rows without labels: what is believed most stands for them."""
        for values in self(rows, cache):
            yield {**values, **self.student.hard_labels(values["belief"])}


def report_progress(answered: Iterable[tuple[Any, ...]], total: int) -> Iterator[tuple[Any, ...]]:
    """The same, telling now and then how far they are."""
    pace: deque[tuple[float, int]] = deque(maxlen=PACE)
    for number, one in enumerate(answered):
        now = time.monotonic()
        if not pace:
            pace.append((now, 0))
        elif now - pace[-1][0] > token_cache.TELL:
            pace.append((now, number))
            first, before = pace[0]
            left = format_duration((now - first) / (number - before) * (total - number))
            log.info("the teacher has read %s of %s rows, %s left", f"{number:,}", f"{total:,}", left)
        yield one
