"""match with kind = "bi": each text becomes a vector of its own (the mean of its tokens', or the first one's, at length
1), and two texts are compared by their cosine. Vectors can be made ahead and searched; the two texts never see each
other.

Training on pairs that belong together (Henderson et al. 2017): in a batch, each text must find its partner among the
partners of all others. So this loss is *not* a sum over independent rows, the one exception among the tasks: it depends
on which rows share a batch (a pure function of seed and step), and accumulating smaller batches means fewer candidates.
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
POOL = 10_000  # rows among whose texts a query looks for its partner, when scored
QUERIES = 256  # ranked at a time


class EmbeddingTask(Task):
    """One text -> its vector; a text too long for the model has the mean of its windows'.

    options: pool: "first" takes the first token's vector, else it is the mean.
    """

    spec = TaskSpec(
        name="embed", implementation="multihead.tasks.bi_encoder:Embed", inputs=("text",)
    )  # no task of run files
    readout = ReadoutKind("Model", "none")

    @classmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        return []

    def classes(self) -> int:
        return 0

    def encode(self, values: Values) -> list[Window]:
        return [{"tokens": np.array(piece.ids, dtype=np.int32)} for piece in self.tokenize_windows(values["text"])]

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        raise NotImplementedError("a vector alone has nothing to learn from; train match with kind = bi")

    def forward(self, model: TaskModel, batch: Batch) -> list[NDArray[Any]]:
        return list(self.pool(model, batch).cpu().numpy())

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[NDArray[Any]]) -> Prediction:
        return {"vector": unit_vector(np.mean(outputs, axis=0))}

    def scorer(self, replicates: int = 1000) -> Scorer:
        raise NotImplementedError("a vector alone is neither right nor wrong")

    def pool(self, model: TaskModel, batch: Batch) -> Tensor:
        """The mean of the tokens' vectors [B, D], or the first token's."""
        hidden, real = self.logits(model, batch).float(), batch["keep"][..., None].float()
        if self.options.get("pool") == "first":
            return hidden[:, 0]
        return (hidden * real).sum(1) / real.sum(1)


class BiEncoder(EmbeddingTask):
    """options: score: (low, high) of a numeric label, which the cosine then learns (as a share of that range);
    positive: the label of texts that belong together; temperature; pool.

    Rows with another label teach nothing by themselves: their texts are wrong partners for the others of the batch, and
    good ones where the same text stands in a right pair too.
    """

    spec = SPECS["match"]

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        return BiEncoder if options.get("score") or options.get("positive") is not None else UnlabeledBiEncoder

    def encode(self, values: Values) -> list[Window]:
        """A window holds a piece of each text, both as long as the longer one: [2, T], flat; and two numbers that tell
        the whole texts. Of long texts, pieces go side by side; beside those that one has more, the other's last."""
        pieces = [[piece.ids for piece in self.tokenize_windows(values[name])] for name in self.inputs]
        texts = np.array([crc32(np.concatenate(side).astype(np.int32).tobytes()) for side in pieces], dtype=np.int64)
        pairs = [[side[min(i, len(side) - 1)] for side in pieces] for i in range(max(map(len, pieces)))]
        found = [{**self._pair(*pair), "texts": texts} for pair in pairs]
        if "label" in values and self.gold:
            label = np.array(self._target(values["label"]))
            found = [{**window, "label": label} for window in found]
        return found

    def collate(self, windows: Sequence[Window]) -> Batch:
        """tokens, keep [2 B, T], texts [2 B, 1]: all first texts, then all second ones."""
        width = max(len(window["tokens"]) for window in windows) // 2
        tokens = np.full((2, len(windows), width), self.pad, dtype=np.int64)
        keep = np.zeros(tokens.shape, dtype=bool)
        for row, window in enumerate(windows):
            length = len(window["tokens"]) // 2
            tokens[:, row, :length] = window["tokens"].reshape(2, length)
            keep[:, row, :length] = window["real"].reshape(2, length)
        batch = {"tokens": torch.from_numpy(tokens).flatten(0, 1), "keep": torch.from_numpy(keep).flatten(0, 1)}
        if "texts" in windows[0]:  # token caches of before have none
            batch["texts"] = torch.from_numpy(np.stack([window["texts"] for window in windows], axis=1).reshape(-1, 1))
        if "label" in windows[0]:
            batch["label"] = torch.from_numpy(np.stack([window["label"] for window in windows]).reshape(-1))
        return self.to_device(batch)

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """With scores: (cosine − share)², over rows. Else cross-entropy of finding the partner, the mean of both
        directions, over the rows that are right pairs."""
        a, b = F.normalize(self.pool(model, batch), dim=-1).chunk(2)
        if self.options.get("score"):
            return ((a * b).sum(-1) - batch["label"]).square().sum(), torch.tensor(len(a))
        right = batch["label"].bool() if "label" in batch else torch.ones(len(a), dtype=torch.bool, device=a.device)
        scores = a @ b.T / float(self.options.get("temperature", TEMPERATURE))
        same_a, same_b = (_same_texts(side) for side in batch["tokens"].chunk(2))
        if "texts" in batch:  # pieces of one long text are as little each other's wrong partners as copies are
            same_a, same_b = (
                same | _same_texts(side) for same, side in zip((same_a, same_b), batch["texts"].chunk(2), strict=True)
            )
        # Not a candidate: a partner's copy, and what stands beside a copy of the query in another right pair.
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
        ]  # behind them, the last piece stands again
        return PairScore(*(unit_vector(np.mean([one[i] for one in outputs[:n]], axis=0)) for i, n in enumerate(counts)))

    def scorer(self, replicates: int = 1000) -> Scorer:
        if self.options.get("score"):
            return SimilarityScorer(replicates, self.options["score"], self.cosine_to_label)
        return RetrievalScorer(self.options.get("positive"), replicates)

    def cosine_to_label(self, cosine: float) -> float:
        """A cosine as a label, where labels are scores."""
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
    """Data without labels: all its pairs belong together. Data to score on may have labels that say yes or no."""

    gold = ()
    judges = ("label",)


class PairScore(dict[str, Any]):
    """The prediction {score: cosine}, and beside it, for scoring, the two vectors."""

    def __init__(self, first: NDArray[Any], second: NDArray[Any]) -> None:
        super().__init__(score=round(float(first @ second), 6))
        self.vectors = (first, second)


class RetrievalScorer(Scorer):
    """Every distinct first text looks for its right partners among all second texts of the data.

    Of more than POOL rows, among those of its own POOL rows: memory stays constant, and larger sets are no harder. A
    second text that is the query itself is no candidate, unless it is a right one. A row counts as right if its cosine
    is at least 0.5 and it is a right pair, or below and it is not. positive: the label of a right pair; None: the one
    that says yes, and where there are no labels, every pair is one.
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
            raise ValueError(f"no row has the label {self.positive!r}: there is nothing to be found")
        return self.metric.result()

    def _rank(self) -> None:
        """Rank what has been gathered, and forget it."""
        seen = [label for _, _, labels, _ in self.pairs for label in labels or ()]
        if self.positive is None and seen:
            self.positive = _guess_positive_label(seen)
        place = {item: column for column, item in enumerate(self.vectors["item"])}
        wanted: dict[str, set[int]] = {}
        first: dict[str, int] = {}
        for query, item, labels, index in self.pairs:
            if self._right(labels):
                wanted.setdefault(query, set()).add(place[item])
                first.setdefault(query, index)
        items = np.array(list(self.vectors["item"].values()))
        queries = list(wanted)
        for start in range(0, len(queries), QUERIES):
            some = queries[start : start + QUERIES]
            scores = np.array([self.vectors["query"][query] for query in some]) @ items.T
            relevant = np.zeros(scores.shape, dtype=bool)
            for row, query in enumerate(some):
                relevant[row, list(wanted[query])] = True
                if query in place and place[query] not in wanted[query]:
                    scores[row, place[query]] = -np.inf
            self.metric.add(ranks_of(scores, relevant), [first[query] for query in some])
        self.pairs, self.vectors = [], {"query": {}, "item": {}}


def find_positive_label(labels: Iterable[str], wanted: str | None = None) -> str:
    """Which label marks texts that belong together: the wanted one, the only one, or the one that says yes."""
    known = sorted(set(labels))
    found = [wanted] if wanted in known else []
    if wanted is None:
        found = [label for label in known if label.casefold() in YES] if len(known) > 1 else known
    if len(found) != 1:
        raise ValueError(
            f'which label marks texts that belong together? Name it: match.positive = "…"; there are: '
            f"{', '.join(known[:20])}{' …' if len(known) > 20 else ''}"
        )
    return found[0]


def _guess_positive_label(labels: Sequence[str]) -> str:
    """As `find_positive_label`, of labels that a model was not trained with."""
    try:
        return find_positive_label(labels)
    except ValueError:
        known = ", ".join(sorted(set(labels))[:20])
        raise ValueError(
            f"this model was trained without labels, and those to score on do not say which texts belong together: "
            f"{known}; write 1 and 0, or give the column another name"
        ) from None


def unit_vector(vector: NDArray[Any]) -> NDArray[Any]:
    """The vector at length 1, as float32."""
    return (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)


def _same_texts(tokens: Tensor) -> Tensor:
    """[B, B]: which texts are equal."""
    return (tokens[:, None] == tokens[None]).all(-1)


def _off_diagonal(pairs: Tensor) -> Tensor:
    """Without the diagonal: a row is no other row."""
    return pairs.fill_diagonal_(False)
