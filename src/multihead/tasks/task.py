"""The contract of a task: what is between a row of a file and a model, and between a model and an answer.

values (of a record) -> `encode` -> windows -> `collate` -> batch -> `loss`; or `forward`, `postprocess` -> prediction.
A window is one input that fits the model, as arrays; an input too long gives several, and `postprocess` joins what the
model said of each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.data.readers.columns import find_fault
from multihead.data.sliding_windows import split_windows
from multihead.kernels.chunked_cross_entropy import IGNORE as IGNORE
from multihead.metrics import MetricTable, Score
from multihead.models import TaskModel
from multihead.tasks.spec import Body, TaskSpec
from multihead.text.tokenizer import Encoding, Tokenizer

if TYPE_CHECKING:
    from multihead.tasks.sections import TaskSection

WHOLE = ("label", "span", "ends", "cut")  # fields of the whole window: stacked in a batch, where others are padded

Values = Mapping[str, Any]
Window = dict[str, NDArray[Any]]  # "tokens" [T], and more
Batch = dict[str, Tensor]
Prediction = dict[str, Any]


class EmptyInput(ValueError):
    """An input without text: nothing, or white space alone."""


def check_filled(values: Values, where: str) -> None:
    """Raise ValueError for what a row of a file would be rejected for, empty text above all: one rule everywhere."""
    if fault := find_fault(values):
        kind = EmptyInput if fault[0].startswith("empty") else ValueError
        raise kind(f"{where}: {fault[1]}")


class ReadoutKind(NamedTuple):
    """What sits on the body: the family architecture it is saved as, or the same outside a family."""

    architecture: str
    over: Literal["tokens", "first", "last", "mean", "vocabulary", "none"]
    hidden: Literal["tanh"] | None = None
    other: str = ""  # what Marian and GPT-2 call it


class Scorer(ABC):
    """Predictions against gold, streaming. `main` names the score that decides which model is best."""

    main: str

    @abstractmethod
    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        """Returns whether the prediction is right."""

    @abstractmethod
    def result(self) -> dict[str, Score]: ...

    def tables(self) -> list[MetricTable]:
        return []


class Task(ABC):
    """One way of using a model; made with a tokenizer, the labels and the longest input the model takes."""

    spec: ClassVar[TaskSpec]  # from which come:
    name: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]]  # columns that a prediction needs
    gold: ClassVar[tuple[str, ...]]  # columns that training needs on top
    body: ClassVar[Body]  # what it sits on
    judges: ClassVar[tuple[str, ...]] = ()  # columns that training does without, and scores heed where they are there
    readout: ReadoutKind
    running: bool = False  # trained on running text: all rows one after the other, cut into equal windows
    readings: int = 1  # windows that an input gives which fits: 2 where it is read both ways round
    smoothing: float = 0.0  # of labels, while training
    rdrop: float = 0.0  # while training, rows are read twice, and so much counts how far the two readings are apart
    distill_weight: float = (
        0.0  # of what is learnt, so much is what a teacher believes (`soft_labels` of a row), the rest its labels
    )
    device = torch.device("cpu")  # where the model is, and batches are made for it

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if (spec := cls.__dict__.get("spec")) is not None:
            cls.name, cls.inputs, cls.gold, cls.body = spec.name, spec.inputs, spec.gold, spec.body

    def __init__(self, tokenizer: Tokenizer, labels: Sequence[str], size: int = 512, overlap: int = 64, **options: Any):
        self.tokenizer, self.labels, self.size, self.overlap = tokenizer, list(labels), size, overlap
        self.numbers = {label: i for i, label in enumerate(labels)}
        self.options = options
        self.pad = tokenizer.special.get("pad", 0)

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        """The class that does it, where one task has several ways."""
        return cls

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """The columns that training data has."""
        return cls.gold if cls.spec.documents else (*cls.inputs, *cls.gold)

    @classmethod
    def resolve_options(cls, section: TaskSection, rows: Callable[[], Iterator[Values]]) -> dict[str, Any]:
        """Return the task's options: its section of the run file, with what the training data decides."""
        options = section.model_dump()
        if cls.readout.over == "vocabulary":
            return options
        return {name: value for name, value in options.items() if value not in (None, False, 0, "none", "auto")}

    @classmethod
    def options_of_files(cls, section: TaskSection, formats: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Return the options that the files of a run (name, format) decide."""
        return {}

    @classmethod
    @abstractmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        """The labels of a training set, in a fixed order."""

    @classmethod
    def labels_of_row(cls, values: Values, **options: Any) -> Iterable[str]:
        """The labels that a row holds, of those that `collect_labels` finds."""
        return ()

    @abstractmethod
    def encode(self, values: Values) -> list[Window]:
        """One example -> one window, or several. Gold columns that are there become labels."""

    @abstractmethod
    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """The sum of the losses, and over how many."""

    @abstractmethod
    def forward(self, model: TaskModel, batch: Batch) -> list[Any]:
        """What the model says of each window: an array with the padding cut off, or what it wrote."""

    @abstractmethod
    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[Any]) -> Prediction:
        """What was said of an example's windows -> the prediction object."""

    def soft_labels(self, values: Values, windows: Sequence[Window], outputs: Sequence[Any]) -> NDArray[Any]:
        """What another model can learn from what was said: the chance of each label, of the row or of each word."""
        raise NotImplementedError(f"{self.name} has no labels")

    def hard_labels(self, belief: NDArray[Any]) -> Values:
        """The gold columns of a row, were they what is believed most."""
        raise NotImplementedError(f"{self.name} has no labels")

    @abstractmethod
    def scorer(self, replicates: int = 1000) -> Scorer: ...

    def classes(self) -> int:
        """How many scores the readout gives."""
        return len(self.labels)

    def prepare(self, rows: Iterable[Values]) -> Iterable[Values]:
        """Rows that need their neighbours get them here."""
        return rows

    def training_rows(self, rows: Iterable[Values]) -> Iterable[Values]:
        """Rows as training takes them, where that is not as `prepare` gives them."""
        return self.prepare(rows)

    def skip_reason(self, windows: Sequence[Window]) -> str:
        """Why an encoded row cannot be learnt from; it is left out of training then, counted and told."""
        return ""

    def score_rows(self, model: TaskModel, rows: Iterable[Values]) -> Iterable[tuple[Values, Prediction]] | None:
        """What is scored, where that is not a prediction for each row: how well a text was foretold."""
        return None

    def adapt(self, model: TaskModel) -> None:  # noqa: B027 - most tasks take a body as it is
        """Changes that the task makes to a body before training."""

    def collate(self, windows: Sequence[Window]) -> Batch:
        """Windows -> one rectangle: tokens, keep, and what else the windows hold."""
        width = max(len(window["tokens"]) for window in windows)
        lengths = torch.tensor([len(window["tokens"]) for window in windows])
        batch: Batch = {"keep": torch.arange(width)[None] < lengths[:, None]}
        for name, first in windows[0].items():
            if name in WHOLE:
                table = np.stack([window[name] for window in windows])
                batch[name] = torch.from_numpy(table if table.dtype.kind == "f" else table.astype(np.int64))
                continue
            whole = first.dtype.kind != "f"  # else chances of labels
            filler = {"tokens": self.pad, "labels": IGNORE, "word": -1}.get(name, 0) if whole else 0
            table = np.full((len(windows), width, *first.shape[1:]), filler, np.int64 if whole else np.float32)
            for row, window in zip(table, windows, strict=True):
                row[: len(window[name])] = window[name]
            batch[name] = torch.from_numpy(table)
        return self.to_device(batch)

    def to_device(self, batch: Batch) -> Batch:
        """A batch where the model is."""
        if self.device.type == "cpu":
            return batch
        return {name: tensor.to(self.device) for name, tensor in batch.items()}

    def validate(self, given: Any, where: str) -> Values:
        """A user's input as the task's columns; a bare text stands for the only one. What a file's row may not hold,
        empty text or a NUL character, is no input either."""
        if isinstance(given, str) and len(self.inputs) == 1:
            given = {self.inputs[0]: given}
        if not isinstance(given, dict):
            text = "a text, or " if len(self.inputs) == 1 else ""
            raise ValueError(f"{where}: {self.name} takes {text}an object with {' and '.join(self.inputs)}")
        wrong = next((name for name in self.inputs if not isinstance(given.get(name), str)), None)
        if wrong is not None and wrong in given:
            raise ValueError(f"{where}: {wrong!r} is {str(given[wrong])[:40]}, and no text")
        if wrong is not None:
            raise ValueError(f"{where}: {self.name} wants text in {wrong!r}; this has: {', '.join(given) or 'nothing'}")
        check_filled({name: given[name] for name in self.inputs}, where)
        return given

    def survey(self, inputs: Iterable[Any]) -> None:  # noqa: B027 - most tasks answer each input alone
        """See a user's inputs before the first of them is answered."""

    def map_columns(self, given: Any) -> Any:
        """A user's input; of an object, what is asked, by the task's columns or by the names that the training data
        had for them."""
        if not isinstance(given, Mapping):
            return given
        learnt: Mapping[str, str] = self.options.get("columns", {})
        named = {role: given[name] for role, name in learnt.items() if name in given}
        return {name: value for name, value in {**given, **named}.items() if name not in self.gold}

    def logits(self, model: TaskModel, batch: Batch) -> Tensor:
        types = {"types": batch["types"]} if "types" in batch else {}
        keep = None if bool(batch["keep"].all()) else batch["keep"]  # no mask at all where nothing is padded
        return model(batch["tokens"], keep, **types)

    def tokenize_windows(self, text: str, pair: str | None = None) -> list[Encoding]:
        """A text, or a pair, in as many pieces as it needs; each with the special tokens. Of a pair, the second text
        is cut, and the first too if it alone takes more than half of the room."""
        whole = self.tokenizer.encode(text, pair)
        if len(whole) <= self.size:
            return [whole]
        room = self.size - sum(whole.special)
        if pair is None:
            spans = split_windows(len(whole) - sum(whole.special), room, self._overlap_within(room))
            return slice_encodings(whole, ({0: span} for span in spans))
        lengths = [whole.sequences.count(side) for side in (0, 1)]
        half = max(room // 2, room - lengths[1])
        firsts = split_windows(lengths[0], half, self._overlap_within(half))
        rest = room - min(lengths[0], half)
        seconds = split_windows(lengths[1], rest, self._overlap_within(rest))
        return slice_encodings(whole, ({0: a, 1: b} for a in firsts for b in seconds))

    def _overlap_within(self, room: int) -> int:
        return min(self.overlap, room // 2)


def distinct_windows(windows: Iterable[Window]) -> tuple[list[Window], list[int]]:
    """Rows may share a window, which is read once: the windows to read, and of each one given, which of them it is."""
    found: dict[int, tuple[int, Window]] = {}
    numbers = [found.setdefault(id(window), (len(found), window))[0] for window in windows]
    return [window for _, window in found.values()], numbers


def content_span(special: Sequence[bool]) -> tuple[int, int]:
    """Where the text begins and ends between the special tokens around it."""
    inside = [i for i, flag in enumerate(special) if not flag]
    return (inside[0], inside[-1] + 1) if inside else (len(special), len(special))


def window_arrays(encoding: Encoding) -> Window:
    """Tokens, and types where there are two texts."""
    window = {"tokens": np.array(encoding.ids, dtype=np.int32)}
    return window | {"types": np.array(encoding.types, dtype=np.int32)} if any(encoding.types) else window


def slice_encodings(whole: Encoding, parts: Iterable[Mapping[int, tuple[int, int]]]) -> list[Encoding]:
    """Return one encoding for each of `parts`, which maps the number of a text to a span of its tokens: those tokens,
    all of the other text, and every special token. Linear: a text of 1 MB has 10,000 windows, and looking through all
    of its tokens for each of them took minutes."""
    places: dict[int | None, list[int]] = {None: [], 0: [], 1: []}
    for i, side in enumerate(whole.sequences):
        places[side].append(i)
    columns = (whole.ids, whole.offsets, whole.types, whole.special, whole.sequences)
    found = []
    for spans in parts:
        inside = (i for side in (0, 1) for i in places[side][slice(*spans.get(side, (None, None)))])
        chosen = sorted([*places[None], *inside])
        found.append(Encoding(*([column[i] for i in chosen] for column in columns)))  # type: ignore[arg-type]
    return found
