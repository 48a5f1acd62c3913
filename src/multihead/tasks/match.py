"""match: classify a pair of texts (paraphrase or not), or score its similarity.

This is the cross-encoder; tasks/bi_encoder.py embeds each text on its own (kind = "bi")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from multihead.models import TaskModel
from multihead.tasks.bi_encoder import BiEncoder, find_positive_label
from multihead.tasks.classify import Classify, ClassScorer, label_names
from multihead.tasks.pair_scores import SimilarityScorer, number, share_of
from multihead.tasks.spec import SPECS
from multihead.tasks.task import Batch, Prediction, Scorer, Task, Values, Window

if TYPE_CHECKING:
    from multihead.tasks.sections import TaskSection


class Match(Classify):
    """Cross-encoder: both texts share one input sequence, so that tokens attend across texts.

    options: score: (low, high) of a numeric label; absent: the label is a class. positive: of two classes, the one for
    matching texts. symmetric: each pair is encoded in both orders, and the two outputs are averaged.
    """

    spec = SPECS["match"]

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        return BiEncoder.variant(options) if options.get("kind") == "bi" else cls

    @classmethod
    def resolve_options(cls, section: TaskSection, rows: Callable[[], Iterator[Values]]) -> dict[str, Any]:
        options = super().resolve_options(section, rows)
        if options.pop("target", None) == "score":
            numbers = [number(values) for values in rows()]
            options["score"] = (min(numbers), max(numbers))
        if options.get("kind") != "bi":
            return {name: value for name, value in options.items() if name not in ("kind", "temperature")}
        if options.pop("symmetric", None) is not None:
            raise ValueError('match.symmetric needs kind = "cross"; a bi-encoder is symmetric already; remove it')
        if "score" not in options and "label" in next(rows(), {}):
            labels = (label for values in rows() for label in label_names(values["label"]))
            options["positive"] = find_positive_label(labels, options.get("positive"))
        return options

    @classmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        return ["score"] if options.get("score") else super().collect_labels(rows, **options)

    @classmethod
    def labels_of_row(cls, values: Values, **options: Any) -> Iterable[str]:
        return () if options.get("score") else super().labels_of_row(values, **options)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.readings = 2 if options.get("symmetric") else 1

    def encode(self, values: Values) -> list[Window]:
        if self.readings == 1:
            return super().encode(values)
        turned = {**values, "text_a": values["text_b"], "text_b": values["text_a"]}
        return super().encode(values) + super().encode(turned)

    def texts(self, values: Values) -> tuple[str, ...]:
        return values["text_a"], values["text_b"]

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        if not self.options.get("score"):
            return super().loss(model, batch)
        # A bounded score is learned as a probability: its logit is unbounded.
        logits = self.logits(model, batch)[:, 0]
        total = F.binary_cross_entropy_with_logits(logits, batch["label"].to(logits.dtype), reduction="sum")
        return total, torch.tensor(len(logits))

    def forward(self, model: TaskModel, batch: Batch) -> list[NDArray[Any]]:
        if not self.options.get("score"):
            return super().forward(model, batch)
        return list(self.logits(model, batch).float().sigmoid().cpu().numpy())

    def hard_labels(self, belief: NDArray[Any]) -> Values:
        if not self.options.get("score"):
            return super().hard_labels(belief)
        low, high = self.options["score"]
        return {"label": float(belief[0]) * (high - low) + low}

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[NDArray[Any]]) -> Prediction:
        if not self.options.get("score"):
            return super().postprocess(values, windows, outputs)
        low, high = self.options["score"]
        return {"score": round(float(np.mean(outputs)) * (high - low) + low, 6)}

    def scorer(self, replicates: int = 1000) -> Scorer:
        if self.options.get("score"):
            return SimilarityScorer(replicates, self.options["score"])
        if len(self.labels) != 2:
            return ClassScorer(self.labels, False, replicates)
        scorer = ClassScorer(self.labels, False, replicates, "f1")
        assert scorer.one is not None
        scorer.one.positive = self._positive()
        return scorer

    def _positive(self) -> int:
        """Return the class whose F1 is reported: matching texts, or the second class if no label name shows it."""
        requested = self.options.get("positive")
        try:
            return self.numbers[find_positive_label(self.labels, requested)]
        except ValueError:
            if requested is not None:
                raise
            return 1

    def _target(self, label: Any) -> NDArray[Any]:
        if not self.options.get("score"):
            return super()._target(label)
        return np.array(share_of(label, *self.options["score"]), dtype=np.float32)
