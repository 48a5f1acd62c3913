"""Tasks: one file each, one contract."""

from multihead.tasks.answer import Answer
from multihead.tasks.classify import Classify
from multihead.tasks.denoise import Denoise
from multihead.tasks.generate import Generate
from multihead.tasks.mask import Mask
from multihead.tasks.match import Match
from multihead.tasks.ner import Ner
from multihead.tasks.summarize import Summarize
from multihead.tasks.task import IGNORE, Batch, Prediction, ReadoutKind, Scorer, Task, Values, Window
from multihead.tasks.translate import Translate

TASKS: dict[str, type[Task]] = {
    "ner": Ner,
    "classify": Classify,
    "match": Match,
    "answer": Answer,
    "translate": Translate,
    "summarize": Summarize,
    "generate": Generate,
    "mask": Mask,
    "denoise": Denoise,
}

__all__ = [
    "IGNORE",
    "TASKS",
    "Answer",
    "Batch",
    "Classify",
    "Denoise",
    "Generate",
    "Mask",
    "Match",
    "Ner",
    "Prediction",
    "ReadoutKind",
    "Scorer",
    "Summarize",
    "Task",
    "Translate",
    "Values",
    "Window",
]
