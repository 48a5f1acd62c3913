"""Interface of a task: everything between a dataset row and a model, and between a model and a prediction.

values (of a record) -> `encode` -> windows -> `collate` -> batch -> `loss`; or `forward`, `postprocess` -> prediction.
A window is one input that fits the model, as arrays; a longer input has several windows, and `postprocess` merges the
model's outputs for them.
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

WINDOW_FIELDS = ("label", "span", "ends", "cut")  # per-window fields: stacked in a batch; per-token fields are padded

Values = Mapping[str, Any]
Window = dict[str, NDArray[Any]]  # "tokens" [T], and more
Batch = dict[str, Tensor]
Prediction = dict[str, Any]


class EmptyInput(ValueError):
    """Input without text: empty, or only white space."""


def check_filled(values: Values, where: str) -> None:
    """Raise ValueError for text that dataset readers reject too, above all empty text."""
    if fault := find_fault(values):
        kind = EmptyInput if fault[0].startswith("empty") else ValueError
        raise kind(f"{where}: {fault[1]}")


class ReadoutKind(NamedTuple):
    """Kind of readout on the body, and the family architecture it is saved as."""

    architecture: str
    over: Literal["tokens", "first", "last", "mean", "vocabulary", "none"]
    hidden: Literal["tanh"] | None = None
    other: str = ""  # its name in Marian and GPT-2


class Scorer(ABC):
    """Streaming comparison of predictions with gold. `main` names the score that selects the best model."""

    main: str

    @abstractmethod
    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        """Add one prediction and return whether it is correct."""

    @abstractmethod
    def result(self) -> dict[str, Score]: ...

    def tables(self) -> list[MetricTable]:
        return []


class Task(ABC):
    """One use of a model, built from a tokenizer, the labels and the model's maximum input length."""

    spec: ClassVar[TaskSpec]  # source of:
    name: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]]  # columns that prediction needs
    gold: ClassVar[tuple[str, ...]]  # columns that training needs in addition
    body: ClassVar[Body]  # kind of body
    judges: ClassVar[tuple[str, ...]] = ()  # optional columns that only scoring uses
    readout: ReadoutKind
    running: bool = False  # trained on running text: all rows concatenated, cut into equal windows
    readings: int = 1  # windows of an input that fits: 2 for a pair encoded in both orders
    smoothing: float = 0.0  # label smoothing, while training
    rdrop: float = 0.0  # R-Drop weight, while training
    distill_weight: float = 0.0  # weight of the teacher's soft labels in the loss; the rest is the gold labels
    device = torch.device("cpu")  # device of the model and its batches

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
        """Return the implementing class, where options select one of several."""
        return cls

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Return the columns of the training data."""
        return cls.gold if cls.spec.documents else (*cls.inputs, *cls.gold)

    @classmethod
    def resolve_options(cls, section: TaskSection, rows: Callable[[], Iterator[Values]]) -> dict[str, Any]:
        """Return the task's options: its section of the run file, plus options that depend on the training data."""
        options = section.model_dump()
        if cls.readout.over == "vocabulary":
            return options
        return {name: value for name, value in options.items() if value not in (None, False, 0, "none", "auto")}

    @classmethod
    def options_of_files(cls, section: TaskSection, formats: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Return the options that depend on the files of a run (name, format)."""
        return {}

    @classmethod
    @abstractmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        """Return the labels of a training set, in a fixed order."""

    @classmethod
    def labels_of_row(cls, values: Values, **options: Any) -> Iterable[str]:
        """Return the labels of one row, of those that `collect_labels` returns."""
        return ()

    @abstractmethod
    def encode(self, values: Values) -> list[Window]:
        """Encode one example to one or more windows. Gold columns, if present, become labels."""

    @abstractmethod
    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the summed loss and the count to divide by."""

    @abstractmethod
    def forward(self, model: TaskModel, batch: Batch) -> list[Any]:
        """Return the model's output for each window: an array without padding, or generated text."""

    @abstractmethod
    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[Any]) -> Prediction:
        """Merge the outputs of an example's windows into the prediction object."""

    def soft_labels(self, values: Values, windows: Sequence[Window], outputs: Sequence[Any]) -> NDArray[Any]:
        """Return soft labels for distillation: the probability of each label, per row or per word."""
        raise NotImplementedError(f"{self.name} has no labels")

    def hard_labels(self, belief: NDArray[Any]) -> Values:
        """Return the gold columns of a row for the most likely soft labels."""
        raise NotImplementedError(f"{self.name} has no labels")

    @abstractmethod
    def scorer(self, replicates: int = 1000) -> Scorer: ...

    def classes(self) -> int:
        """Return the output size of the readout."""
        return len(self.labels)

    def prepare(self, rows: Iterable[Values]) -> Iterable[Values]:
        """Add neighboring rows as context to rows that need it."""
        return rows

    def training_rows(self, rows: Iterable[Values]) -> Iterable[Values]:
        """Return rows as training needs them, where that differs from `prepare`."""
        return self.prepare(rows)

    def skip_reason(self, windows: Sequence[Window]) -> str:
        """Return why an encoded row is unusable for training, or ""; such rows are dropped, counted and reported."""
        return ""

    def score_rows(self, model: TaskModel, rows: Iterable[Values]) -> Iterable[tuple[Values, Prediction]] | None:
        """Yield scored rows, for tasks that score texts (perplexity) instead of predictions; None: score
        predictions."""
        return None

    def adapt(self, model: TaskModel) -> None:  # noqa: B027 - most tasks use a body unchanged
        """Change the body before training."""

    def collate(self, windows: Sequence[Window]) -> Batch:
        """Pad windows to one batch: tokens, keep, and the other fields of the windows."""
        width = max(len(window["tokens"]) for window in windows)
        lengths = torch.tensor([len(window["tokens"]) for window in windows])
        batch: Batch = {"keep": torch.arange(width)[None] < lengths[:, None]}
        for name, first in windows[0].items():
            if name in WINDOW_FIELDS:
                table = np.stack([window[name] for window in windows])
                batch[name] = torch.from_numpy(table if table.dtype.kind == "f" else table.astype(np.int64))
                continue
            integral = first.dtype.kind != "f"  # floats are label probabilities
            filler = {"tokens": self.pad, "labels": IGNORE, "word": -1}.get(name, 0) if integral else 0
            table = np.full((len(windows), width, *first.shape[1:]), filler, np.int64 if integral else np.float32)
            for row, window in zip(table, windows, strict=True):
                row[: len(window[name])] = window[name]
            batch[name] = torch.from_numpy(table)
        return self.to_device(batch)

    def to_device(self, batch: Batch) -> Batch:
        """Move a batch to the model's device."""
        if self.device.type == "cpu":
            return batch
        return {name: tensor.to(self.device) for name, tensor in batch.items()}

    def validate(self, raw_input: Any, where: str) -> Values:
        """Return a user's input as the task's columns; a plain string stands for the only one. Text that a dataset
        reader rejects, empty or with a NUL character, raises ValueError here too."""
        if isinstance(raw_input, str) and len(self.inputs) == 1:
            raw_input = {self.inputs[0]: raw_input}
        if not isinstance(raw_input, dict):
            text = "a text, or " if len(self.inputs) == 1 else ""
            raise ValueError(f"{where}: {self.name} expects {text}an object with {' and '.join(self.inputs)}")
        wrong = next((name for name in self.inputs if not isinstance(raw_input.get(name), str)), None)
        if wrong is not None and wrong in raw_input:
            raise ValueError(f"{where}: {wrong!r} must be text, not {str(raw_input[wrong])[:40]}")
        if wrong is not None:
            raise ValueError(
                f"{where}: {self.name} needs text in {wrong!r}; the input has: {', '.join(raw_input) or 'nothing'}"
            )
        check_filled({name: raw_input[name] for name in self.inputs}, where)
        return raw_input

    def survey(self, inputs: Iterable[Any]) -> None:  # noqa: B027 - most tasks treat inputs independently
        """Inspect all user inputs before the first prediction."""

    def map_columns(self, raw_input: Any) -> Any:
        """Return a user's input; of an object, only the input columns, by the task's column names or those of the
        training data."""
        if not isinstance(raw_input, Mapping):
            return raw_input
        trained_names: Mapping[str, str] = self.options.get("columns", {})
        named = {role: raw_input[name] for role, name in trained_names.items() if name in raw_input}
        return {name: value for name, value in {**raw_input, **named}.items() if name not in self.gold}

    def logits(self, model: TaskModel, batch: Batch) -> Tensor:
        types = {"types": batch["types"]} if "types" in batch else {}
        keep = None if bool(batch["keep"].all()) else batch["keep"]  # no mask at all where nothing is padded
        return model(batch["tokens"], keep, **types)

    def tokenize_windows(self, text: str, pair: str | None = None) -> list[Encoding]:
        """Encode a text, or a pair, as as many windows as needed, each with the special tokens. In a pair, the second
        text is split, and the first too if it alone takes more than half of the room."""
        encoding = self.tokenizer.encode(text, pair)
        if len(encoding) <= self.size:
            return [encoding]
        room = self.size - sum(encoding.special)
        if pair is None:
            spans = split_windows(len(encoding) - sum(encoding.special), room, self._overlap_within(room))
            return slice_encodings(encoding, ({0: span} for span in spans))
        lengths = [encoding.sequences.count(side) for side in (0, 1)]
        half = max(room // 2, room - lengths[1])
        firsts = split_windows(lengths[0], half, self._overlap_within(half))
        rest = room - min(lengths[0], half)
        seconds = split_windows(lengths[1], rest, self._overlap_within(rest))
        return slice_encodings(encoding, ({0: a, 1: b} for a in firsts for b in seconds))

    def _overlap_within(self, room: int) -> int:
        return min(self.overlap, room // 2)


def distinct_windows(windows: Iterable[Window]) -> tuple[list[Window], list[int]]:
    """Return the distinct windows (rows may share one), and the index of each given window among them."""
    distinct: dict[int, tuple[int, Window]] = {}
    numbers = [distinct.setdefault(id(window), (len(distinct), window))[0] for window in windows]
    return [window for _, window in distinct.values()], numbers


def content_span(special: Sequence[bool]) -> tuple[int, int]:
    """Return the start and end of the text between its special tokens."""
    inside = [i for i, flag in enumerate(special) if not flag]
    return (inside[0], inside[-1] + 1) if inside else (len(special), len(special))


def window_arrays(encoding: Encoding) -> Window:
    """Return tokens, and token types for a pair."""
    window = {"tokens": np.array(encoding.ids, dtype=np.int32)}
    return window | {"types": np.array(encoding.types, dtype=np.int32)} if any(encoding.types) else window


def slice_encodings(encoding: Encoding, parts: Iterable[Mapping[int, tuple[int, int]]]) -> list[Encoding]:
    """Return one encoding for each of `parts`, which maps the number of a text to a span of its tokens: those tokens,
    all of the other text, and every special token. Linear time: a text of 1 MB has 10,000 windows, and scanning all of
    its tokens for each of them took minutes."""
    places: dict[int | None, list[int]] = {None: [], 0: [], 1: []}
    for i, side in enumerate(encoding.sequences):
        places[side].append(i)
    columns = (encoding.ids, encoding.offsets, encoding.types, encoding.special, encoding.sequences)
    slices = []
    for spans in parts:
        inside = (i for side in (0, 1) for i in places[side][slice(*spans.get(side, (None, None)))])
        chosen = sorted([*places[None], *inside])
        slices.append(Encoding(*([column[i] for i in chosen] for column in columns)))  # type: ignore[arg-type]
    return slices
