"""classify: single-label or multi-label text classification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.metrics import ClassificationMetric, MetricTable, MultiLabelMetric, Score
from multihead.metrics.row_buffer import RowBuffer
from multihead.models import TaskModel
from multihead.tasks.losses import class_loss, label_loss
from multihead.tasks.spec import SPECS
from multihead.tasks.task import Batch, Prediction, ReadoutKind, Scorer, Task, Values, Window, window_arrays

if TYPE_CHECKING:
    from multihead.tasks.sections import TaskSection

SEVERAL = "set classify.multi_label = true, or fix the label"


class Classify(Task):
    """Text classifier. A long text is classified by the mean over its windows.

    options: multi_label; class_weights: {label: weight}.
    """

    spec = SPECS["classify"]
    readout = ReadoutKind("ForSequenceClassification", "first", "tanh")

    @classmethod
    def resolve_options(cls, section: TaskSection, rows: Callable[[], Iterator[Values]]) -> dict[str, Any]:
        options = super().resolve_options(section, rows)
        if options.get("class_weights") == "balanced":
            counts = Counter(label for values in rows() for label in label_names(values["label"]))
            options["class_weights"] = {k: counts.total() / (len(counts) * n) for k, n in counts.items()}
        return options

    @classmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        return sorted({label for values in rows for label in cls.labels_of_row(values, **options)})

    @classmethod
    def labels_of_row(cls, values: Values, **options: Any) -> Iterable[str]:
        names = label_names(values["label"])
        if not options.get("multi_label") and len(names) != 1:
            place = f"{values['file']}:{values['line']}: " if "file" in values else ""
            raise ValueError(f"{place}{len(names) or 'no'} labels for one text; {SEVERAL}")
        return names

    def encode(self, values: Values) -> list[Window]:
        windows = [window_arrays(encoding) for encoding in self.tokenize_windows(*self.texts(values))]
        if "label" in values:
            label = self._mix_soft_labels(self._target(values["label"]), values.get("belief"))
            windows = [{**window, "label": label} for window in windows]
        return windows

    def texts(self, values: Values) -> tuple[str, ...]:
        return (values["text"],)

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        logits, label = self.logits(model, batch), batch["label"]
        count = torch.tensor(len(label))
        if self.options.get("multi_label"):
            return label_loss(logits, label, self.smoothing, self.rdrop), count
        weights = self.options.get("class_weights")
        weight = None if not weights else logits.new_tensor([weights.get(name, 1.0) for name in self.labels])
        return class_loss(logits, label, self.smoothing, weight, self.rdrop), count

    def forward(self, model: TaskModel, batch: Batch) -> list[NDArray[Any]]:
        logits = self.logits(model, batch).float()
        chances = logits.sigmoid() if self.options.get("multi_label") else logits.softmax(-1)
        return list(chances.cpu().numpy())

    def soft_labels(self, values: Values, windows: Sequence[Window], outputs: Sequence[Any]) -> NDArray[Any]:
        """Return class probabilities [C], or the score [1]."""
        return np.mean(outputs, axis=0)

    def hard_labels(self, belief: NDArray[Any]) -> Values:
        if self.options.get("multi_label"):
            return {"label": [name for name, chance in zip(self.labels, belief, strict=True) if chance >= 0.5]}
        return {"label": self.labels[int(belief.argmax())]}

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[NDArray[Any]]) -> Prediction:
        chances = np.mean(outputs, axis=0)
        scores = {name: float(f"{chance:.6g}") for name, chance in zip(self.labels, chances, strict=True)}
        if self.options.get("multi_label"):
            return {"labels": [name for name, chance in scores.items() if chance >= 0.5], "scores": scores}
        best = self.labels[int(chances.argmax())]
        return {"label": best, "score": scores[best], "scores": scores}

    def scorer(self, replicates: int = 1000) -> Scorer:
        return ClassScorer(self.labels, bool(self.options.get("multi_label")), replicates)

    def _target(self, label: Any) -> NDArray[Any]:
        numbers = [self._number(name) for name in label_names(label)]
        if self.options.get("multi_label"):
            return np.isin(np.arange(len(self.labels)), numbers).astype(np.float32).reshape(-1)
        if len(numbers) != 1:
            raise ValueError(f"{len(numbers) or 'no'} labels for one text; {SEVERAL}")
        return np.array(numbers[0], dtype=np.int64)

    def _mix_soft_labels(self, target: NDArray[Any], belief: NDArray[Any] | None) -> NDArray[Any]:
        """Mix the label with the teacher's soft labels: probabilities [C]."""
        if belief is None:
            return target
        gold = np.eye(len(self.labels))[target] if target.dtype.kind == "i" else target
        return ((1 - self.distill_weight) * gold + self.distill_weight * belief.reshape(gold.shape)).astype(np.float32)

    def _number(self, name: str) -> int:
        if name not in self.numbers:
            raise ValueError(f"label {name!r} was not seen in training; labels are: {', '.join(self.labels)}")
        return self.numbers[name]


class ClassScorer(Scorer):
    def __init__(self, labels: Sequence[str], multi_label: bool, replicates: int, main: str = "accuracy") -> None:
        self.labels, self.numbers = list(labels), {label: i for i, label in enumerate(labels)}
        self.metric = MultiLabelMetric(labels, replicates) if multi_label else ClassificationMetric(labels, replicates)
        self.rows = RowBuffer(self.metric.add)
        self.main = "micro_f1" if multi_label else main

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        gold = label_names(values["label"])
        if isinstance(self.metric, MultiLabelMetric):
            predicted = set(prediction["labels"])
            self.rows.add(*([name in names for name in self.labels] for names in (gold, predicted)), index)
            return set(gold) == predicted
        if gold[0] not in self.numbers:
            raise ValueError(f"label {gold[0]!r} was not seen in training; labels are: {', '.join(self.labels)}")
        chances = np.array([prediction["scores"][name] for name in self.labels])
        self.rows.add(self.numbers[gold[0]], self.numbers[prediction["label"]], chances / chances.sum(), index)
        return bool(gold[0] == prediction["label"])

    @property
    def one(self) -> ClassificationMetric | None:
        """The single-label metric, with its confusion matrix and calibration."""
        self.rows.flush()
        return self.metric if isinstance(self.metric, ClassificationMetric) else None

    def result(self) -> dict[str, Score]:
        self.rows.flush()
        return self.metric.result()

    def tables(self) -> list[MetricTable]:
        self.rows.flush()
        return [self.metric.table()]


def label_names(label: Any) -> list[str]:
    """Return a label, or a list of labels, as strings: a file may spell a class 1, "1" or true."""
    return [str(name) for name in label] if isinstance(label, list | tuple) else [str(label)]
