"""match: how two texts belong together: a class (paraphrase or not), or a score (how similar)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from multihead.models import Model
from multihead.scores import Pearson, Score, Spearman
from multihead.tasks.classify import Classify, ClassScorer
from multihead.tasks.task import Batch, Prediction, Scorer, Values, Window


class Match(Classify):
    """Both texts go through the model together (a cross-encoder), so that every word sees the other text.

    options: score: (low, high) of a numeric label; absent, the label is a class.
    """

    name = "match"
    inputs = ("text_a", "text_b")
    gold = ("label",)

    @classmethod
    def learn(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        return ["score"] if options.get("score") else super().learn(rows)

    def texts(self, values: Values) -> tuple[str, ...]:
        return values["text_a"], values["text_b"]

    def loss(self, model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
        if not self.options.get("score"):
            return super().loss(model, batch)
        # A score between two ends is learned as a chance: its logit has no ends to bump into.
        logits = self.logits(model, batch)[:, 0]
        total = F.binary_cross_entropy_with_logits(logits, batch["label"].to(logits.dtype), reduction="sum")
        return total, torch.tensor(len(logits))

    def read(self, model: Model, batch: Batch) -> list[NDArray[Any]]:
        if not self.options.get("score"):
            return super().read(model, batch)
        return list(self.logits(model, batch).float().sigmoid().numpy())

    def answer(self, values: Values, windows: Sequence[Window], said: Sequence[NDArray[Any]]) -> Prediction:
        if not self.options.get("score"):
            return super().answer(values, windows, said)
        low, high = self.options["score"]
        return {"score": round(float(np.mean(said)) * (high - low) + low, 6)}

    def scorer(self, replicates: int = 1000) -> Scorer:
        if self.options.get("score"):
            return SimilarityScorer(replicates)
        return ClassScorer(self.labels, False, replicates, "f1" if len(self.labels) == 2 else "accuracy")

    def _target(self, label: Any) -> NDArray[Any]:
        if not self.options.get("score"):
            return super()._target(label)
        low, high = self.options["score"]
        try:
            share = (float(label) - low) / (high - low)
        except ValueError:
            raise ValueError(f"the score {label!r} is no number") from None
        if not 0 <= share <= 1:
            raise ValueError(f"the score {label} lies outside {low} to {high}; set match.score to its ends")
        return np.array(share, dtype=np.float32)


class SimilarityScorer(Scorer):
    main = "spearman"

    def __init__(self, replicates: int) -> None:
        self.parts = (Spearman(replicates=replicates), Pearson(replicates=replicates))

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        gold, said = float(values["label"]), prediction["score"]
        for part in self.parts:
            part.add([gold], [said], [index])
        return abs(gold - said) < 0.5

    def result(self) -> dict[str, Score]:
        return {name: score for part in self.parts for name, score in part.result().items()}
