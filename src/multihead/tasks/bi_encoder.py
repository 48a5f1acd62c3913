"""match with kind = "bi": a bi-encoder. Each text is embedded on its own (mean of its token vectors, or the first
token's vector, normalized to length 1) and pairs are compared by cosine similarity. Embeddings can be precomputed and
searched; the two texts do not attend to each other.

Training uses in-batch negatives (Henderson et al. 2017): each text must retrieve its partner among the partners of all
other examples. This loss is therefore *not* a sum over independent examples, the only exception among the tasks: it
depends on which examples share a batch (a pure function of seed and step), and accumulating smaller batches means fewer
candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from multihead.metrics import Score
from multihead.metrics.retrieval import RetrievalMetric, ranks_of
from multihead.models import TaskModel
from multihead.tasks.classify import label_names
from multihead.tasks.pair_scores import SimilarityScorer, share_of
from multihead.tasks.spec import SPECS, TaskSpec
from multihead.tasks.task import Batch, Prediction, ReadoutKind, Scorer, Task, Values, Window

TEMPERATURE = 0.05
YES = {
    "1", "true", "yes", "same", "positive", "paraphrase", "duplicate", "match", "similar", "equivalent", "entailment",
    "relevant", "是", "相同", "相似",
}  # fmt: skip
POOL = 10_000  # examples in the candidate pool of a query during evaluation
QUERIES = 256  # queries ranked per matrix product


class EmbeddingTask(Task):
    """Embed one text; the embedding of a text longer than the model is the mean over its windows.

    options: pool: "first" takes the first token's vector; the default is the mean.
    """

    spec = TaskSpec(
        name="embed", implementation="multihead.tasks.bi_encoder:Embed", inputs=("text",)
    )  # not available in run files
    readout = ReadoutKind("Model", "none")

    @classmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        return []

    def classes(self) -> int:
        return 0

    def encode(self, values: Values) -> list[Window]:
        return [{"tokens": np.array(part.ids, dtype=np.int32)} for part in self.tokenize_windows(values["text"])]

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        raise NotImplementedError("embeddings have no training loss; train match with kind = bi")

    def forward(self, model: TaskModel, batch: Batch) -> list[NDArray[Any]]:
        return list(self.pool(model, batch).cpu().numpy())

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[NDArray[Any]]) -> Prediction:
        return {"vector": unit_vector(np.mean(outputs, axis=0))}

    def scorer(self, replicates: int = 1000) -> Scorer:
        raise NotImplementedError("embeddings have no metric; evaluate match with kind = bi")

    def pool(self, model: TaskModel, batch: Batch) -> Tensor:
        """Return the mean of the token vectors [B, D], or the first token's vector."""
        hidden, real = self.logits(model, batch).float(), batch["keep"][..., None].float()
        if self.options.get("pool") == "first":
            return hidden[:, 0]
        return (hidden * real).sum(1) / real.sum(1)


class BiEncoder(EmbeddingTask):
    """Bi-encoder trained on labeled pairs.

    options: score: (low, high) of a numeric label, which the cosine then regresses (as a share of that range);
    positive: the label of matching texts; temperature; pool.

    Examples with another label have no loss of their own: their texts are negatives for the rest of the batch, and
    positives where the same text also occurs in a matching pair.
    """

    spec = SPECS["match"]

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        return BiEncoder if options.get("score") or options.get("positive") is not None else UnlabeledBiEncoder

    def encode(self, values: Values) -> list[Window]:
        """Encode a pair. A window holds one part of each text, both padded to the longer one ([2, T], flat), and two
        checksums that identify the full texts. Long texts are paired part by part; the shorter text repeats its last
        part."""
        parts = [[part.ids for part in self.tokenize_windows(values[name])] for name in self.inputs]
        texts = np.array([crc32(np.concatenate(side).astype(np.int32).tobytes()) for side in parts], dtype=np.int64)
        pairs = [[side[min(i, len(side) - 1)] for side in parts] for i in range(max(map(len, parts)))]
        windows = [{**self._pair(*pair), "texts": texts} for pair in pairs]
        if "label" in values and self.gold:
            label = np.array(self._target(values["label"]))
            windows = [{**window, "label": label} for window in windows]
        return windows

    def collate(self, windows: Sequence[Window]) -> Batch:
        """Collate to tokens, keep [2 B, T] and texts [2 B, 1]: all first texts, then all second texts."""
        width = max(len(window["tokens"]) for window in windows) // 2
        tokens = np.full((2, len(windows), width), self.pad, dtype=np.int64)
        keep = np.zeros(tokens.shape, dtype=bool)
        for row, window in enumerate(windows):
            length = len(window["tokens"]) // 2
            tokens[:, row, :length] = window["tokens"].reshape(2, length)
            keep[:, row, :length] = window["real"].reshape(2, length)
        batch = {"tokens": torch.from_numpy(tokens).flatten(0, 1), "keep": torch.from_numpy(keep).flatten(0, 1)}
        if "texts" in windows[0]:  # absent from token caches of older versions
            batch["texts"] = torch.from_numpy(np.stack([window["texts"] for window in windows], axis=1).reshape(-1, 1))
        if "label" in windows[0]:
            batch["label"] = torch.from_numpy(np.stack([window["label"] for window in windows]).reshape(-1))
        return self.to_device(batch)

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return (cosine − share)², summed over examples, for scores; otherwise the cross-entropy of retrieving the
        partner, averaged over both directions, summed over matching pairs."""
        a, b = F.normalize(self.pool(model, batch), dim=-1).chunk(2)
        if self.options.get("score"):
            return ((a * b).sum(-1) - batch["label"]).square().sum(), torch.tensor(len(a))
        right = batch["label"].bool() if "label" in batch else torch.ones(len(a), dtype=torch.bool, device=a.device)
        scores = a @ b.T / float(self.options.get("temperature", TEMPERATURE))
        same_a, same_b = (_same_texts(side) for side in batch["tokens"].chunk(2))
        if "texts" in batch:  # neither copies nor parts of one long text are negatives of each other
            same_a, same_b = (
                same | _same_texts(side) for same, side in zip((same_a, same_b), batch["texts"].chunk(2), strict=True)
            )
        # Excluded candidates: copies of the partner, and partners of a copy of the query in another matching pair.
        to_b = scores.masked_fill(_off_diagonal(same_b | (same_a & right)), -torch.inf)
        to_a = scores.T.masked_fill(_off_diagonal(same_a | (same_b & right)), -torch.inf)
        partner = torch.arange(len(a), device=a.device)[right]
        total = sum(F.cross_entropy(side[right], partner, reduction="sum") for side in (to_b, to_a))
        return torch.as_tensor(total) / 2, right.sum()

    def forward(self, model: TaskModel, batch: Batch) -> list[NDArray[Any]]:
        return list(self.pool(model, batch).unflatten(0, (2, -1)).transpose(0, 1).cpu().numpy())

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[NDArray[Any]]) -> Prediction:
        if len(windows) == 1:
            return PairScore(*(unit_vector(vector) for vector in outputs[0]))
        counts = [
            len(self.tokenize_windows(values[name])) for name in self.inputs
        ]  # after its own parts, a text repeats its last one
        return PairScore(
            *(unit_vector(np.mean([output[i] for output in outputs[:n]], axis=0)) for i, n in enumerate(counts))
        )

    def scorer(self, replicates: int = 1000) -> Scorer:
        if self.options.get("score"):
            return SimilarityScorer(replicates, self.options["score"], self.cosine_to_label)
        return RetrievalScorer(self.options.get("positive"), replicates)

    def cosine_to_label(self, cosine: float) -> float:
        """Convert a cosine to a label, where labels are scores."""
        low, high = self.options["score"]
        return float(low + cosine * (high - low))

    def _pair(self, first: Sequence[int], second: Sequence[int]) -> Window:
        tokens = np.full((2, max(len(first), len(second))), self.pad, dtype=np.int32)
        real = np.zeros(tokens.shape, dtype=np.int8)
        for row, ids in enumerate((first, second)):
            tokens[row, : len(ids)], real[row, : len(ids)] = ids, 1
        return {"tokens": tokens.reshape(-1), "real": real.reshape(-1)}

    def _target(self, label: Any) -> np.float32 | np.int64:
        if self.options.get("score"):
            return np.float32(share_of(label, *self.options["score"]))
        return np.int64(self.options["positive"] in label_names(label))


class UnlabeledBiEncoder(BiEncoder):
    """Bi-encoder for data without labels: all training pairs match. Evaluation data may have yes/no labels."""

    gold = ()
    judges = ("label",)


class PairScore(dict[str, Any]):
    """Prediction {score: cosine} that also carries both embeddings, for the retrieval metric."""

    def __init__(self, first: NDArray[Any], second: NDArray[Any]) -> None:
        super().__init__(score=round(float(first @ second), 6))
        self.vectors = (first, second)


class RetrievalScorer(Scorer):
    """Retrieval metric: every distinct first text queries all second texts of the dataset.

    With more than POOL examples, each query searches its own block of POOL examples: memory stays constant, and larger
    datasets are no harder. A second text equal to the query is not a candidate unless it is relevant. An example counts
    as correct if its cosine is at least 0.5 and it is a matching pair, or below 0.5 and it is not. positive: the label
    of a matching pair; None: the label that means yes; without labels, every pair matches.
    """

    main = "mrr"

    def __init__(self, positive: str | None, replicates: int, pool: int = POOL) -> None:
        self.positive, self.pool, self.metric = positive, pool, RetrievalMetric(replicates=replicates)
        self.pairs: list[tuple[str, str, list[str] | None, int]] = []
        self.vectors: dict[str, dict[str, NDArray[Any]]] = {"query": {}, "item": {}}

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        assert isinstance(prediction, PairScore)
        labels = None if self.positive is None and "label" not in values else label_names(values["label"])
        query, item = values["text_a"], values["text_b"]
        self.pairs.append((query, item, labels, index))
        self.vectors["query"][query], self.vectors["item"][item] = prediction.vectors
        if len(self.pairs) >= self.pool:
            self._rank()
        return bool(prediction["score"] >= 0.5) == self._right(labels)

    def _right(self, labels: Sequence[str] | None) -> bool:
        if labels is None or self.positive is None:
            return labels is None or any(label.casefold() in YES for label in labels)
        return self.positive in labels

    def result(self) -> dict[str, Score]:
        self._rank()
        if not self.metric.bootstrap_sample.samples:
            raise ValueError(f"no example has the label {self.positive!r}; retrieval needs at least one matching pair")
        return self.metric.result()

    def _rank(self) -> None:
        """Rank the buffered examples and clear the buffer."""
        labels_seen = [label for _, _, labels, _ in self.pairs for label in labels or ()]
        if self.positive is None and labels_seen:
            self.positive = _guess_positive_label(labels_seen)
        place = {item: column for column, item in enumerate(self.vectors["item"])}
        relevant_items: dict[str, set[int]] = {}
        first: dict[str, int] = {}
        for query, item, labels, index in self.pairs:
            if self._right(labels):
                relevant_items.setdefault(query, set()).add(place[item])
                first.setdefault(query, index)
        items = np.array(list(self.vectors["item"].values()))
        queries = list(relevant_items)
        for start in range(0, len(queries), QUERIES):
            some = queries[start : start + QUERIES]
            scores = np.array([self.vectors["query"][query] for query in some]) @ items.T
            relevant = np.zeros(scores.shape, dtype=bool)
            for row, query in enumerate(some):
                relevant[row, list(relevant_items[query])] = True
                if query in place and place[query] not in relevant_items[query]:
                    scores[row, place[query]] = -np.inf
            self.metric.add(ranks_of(scores, relevant), [first[query] for query in some])
        self.pairs, self.vectors = [], {"query": {}, "item": {}}


def find_positive_label(labels: Iterable[str], requested: str | None = None) -> str:
    """Return the label of matching texts: the requested one, the only one, or the one that means yes."""
    known = sorted(set(labels))
    candidates = [requested] if requested in known else []
    if requested is None:
        candidates = [label for label in known if label.casefold() in YES] if len(known) > 1 else known
    if len(candidates) != 1:
        raise ValueError(
            f"cannot tell which label means that texts match; set match.positive; labels are: "
            f"{', '.join(known[:20])}{' …' if len(known) > 20 else ''}"
        )
    return candidates[0]


def _guess_positive_label(labels: Sequence[str]) -> str:
    """Like `find_positive_label`, for labels that were not in the training data."""
    try:
        return find_positive_label(labels)
    except ValueError:
        known = ", ".join(sorted(set(labels))[:20])
        raise ValueError(
            f"this model was trained without labels, and the labels of the evaluation data do not show which match: "
            f"{known}; write 1 and 0, or rename the column"
        ) from None


def unit_vector(vector: NDArray[Any]) -> NDArray[Any]:
    """Normalize a vector to length 1, as float32."""
    return (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)


def _same_texts(tokens: Tensor) -> Tensor:
    """Compare texts: [B, B], True where two texts are equal."""
    return (tokens[:, None] == tokens[None]).all(-1)


def _off_diagonal(pairs: Tensor) -> Tensor:
    """Clear the diagonal: an example is not its own negative."""
    return pairs.fill_diagonal_(False)
