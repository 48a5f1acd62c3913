"""A trained model whose answers a new one learns beside the labels (Hinton et al. 2015).

It is asked once, when the token cache is filled. What it believes, the chance of each label, is kept there as a part of
what is learnt: (1 - trust) of a row's own label and trust of that. The two may have other tokenizers and other shapes:
chances are of a text, or of a word. Of several teachers, the mean of what they believe is learnt. Of inputs without
labels, the best of what is believed stands for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from multihead.build import load
from multihead.data.disk import sha256
from multihead.models.hub import resolve
from multihead.models.manifest import MANIFEST
from multihead.tasks import Task, Values
from multihead.tasks.predict import Refused, heard


class Teacher:
    def __init__(self, where: str, student: Task) -> None:
        self.loaded = load(where)
        self.task = self.loaded.ready()
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

    def believes(self, rows: Iterable[Values], precision: str) -> Iterator[NDArray[Any]]:
        """Of each row the chance of each label [C], or of each word's [T, C]."""
        for asked, windows, answers in heard(self.loaded.model, self.task, rows, precision=precision):
            assert not isinstance(windows, Refused)  # what cannot be read is raised
            yield self.task.belief(asked, windows, answers)[..., self.order]


class Teachers:
    def __init__(self, where: str | Sequence[str], student: Task) -> None:
        self.student = student
        self.each = [Teacher(one, student) for one in ([where] if isinstance(where, str) else where)]
        self.precision = "fp32"  # or bf16, where the run trains in it

    @property
    def digests(self) -> list[str]:
        return [teacher.digest for teacher in self.each]

    def __call__(self, rows: Callable[[], Iterable[Values]]) -> Iterator[Values]:
        """Rows with what is believed of each."""
        believed = [teacher.believes(rows(), self.precision) for teacher in self.each]
        for values, *said in zip(rows(), *believed, strict=True):
            yield {**values, "belief": sum(said[1:], said[0]) / len(said)}

    def alone(self, rows: Callable[[], Iterable[Values]]) -> Iterator[Values]:
        """Rows without labels: what is believed most stands for them."""
        for values in self(rows):
            yield {**values, **self.student.settled(values["belief"])}
