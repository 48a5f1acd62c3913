"""Tasks: one file each, one contract."""

from multihead.tasks.answer import Answer
from multihead.tasks.classify import Classify
from multihead.tasks.match import Match
from multihead.tasks.ner import Ner
from multihead.tasks.task import IGNORE, Batch, Prediction, ReadoutKind, Scorer, Task, Values, Window

TASKS: dict[str, type[Task]] = {"ner": Ner, "classify": Classify, "match": Match, "answer": Answer}

__all__ = [
    "IGNORE",
    "TASKS",
    "Answer",
    "Batch",
    "Classify",
    "Match",
    "Ner",
    "Prediction",
    "ReadoutKind",
    "Scorer",
    "Task",
    "Values",
    "Window",
]
