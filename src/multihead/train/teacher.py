"""A trained model whose answers a new one learns beside the labels (Hinton et al. 2015).

It is asked once, when the token cache is filled. What it believes, the chance of each label, is kept there as a part of
what is learnt: (1 - trust) of a row's own label and trust of that. The two may have other tokenizers and other shapes:
chances are of a text, or of a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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

        self.precision = "fp32"  # or bf16, where the run trains in it

    def __call__(self, rows: Iterable[Values], again: Iterable[Values]) -> Iterator[Values]:
        """Rows with what the teacher believes of each; `again`: the same rows, for it to read."""
        said = heard(self.loaded.model, self.task, again, precision=self.precision)
        for values, (asked, windows, answers) in zip(rows, said, strict=True):
            assert not isinstance(windows, Refused)  # what cannot be read is raised
            yield {**values, "belief": self.task.belief(asked, windows, answers)[..., self.order]}
