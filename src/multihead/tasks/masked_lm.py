"""mask: masked language modeling (Devlin et al. 2019; whole-word masking), and filling of mask tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.kernels.chunked_cross_entropy import vocabulary_loss, vocabulary_nats
from multihead.metrics import Bootstrap, PerplexityMetric, Score, percentile
from multihead.models import LMReadout, TaskModel
from multihead.tasks.masking import apply_masks, choose_masked, encode_with_masks, make_generator
from multihead.tasks.spec import SPECS
from multihead.tasks.task import IGNORE, Batch, Prediction, ReadoutKind, Scorer, Task, Values, Window
from multihead.tasks.word_spans import WORDS, word_of

MAX_CANDIDATES = 5  # candidates per mask token
EVAL_WINDOWS = 64  # windows per evaluation batch


class MaskedLM(Task):
    """Masked language model.

    options: share: fraction of words to mask; whole_words: mask all subwords of a word together.

    Validation masks the same words every time. A long text is split into windows without overlap.
    """

    spec = SPECS["mask"]
    readout = ReadoutKind("ForMaskedLM", "vocabulary")

    @classmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        return []

    def validate(self, raw_input: Any, where: str) -> Values:
        return {**super().validate(raw_input, where), "fill": True}

    def encode(self, values: Values) -> list[Window]:
        if values.get("fill"):
            return [{"tokens": np.array(encode_with_masks(self.tokenizer, values["text"], self.size), dtype=np.int32)}]
        places = [match.span() for match in WORDS.finditer(values["text"])]
        windows = []
        for part in self.tokenize_windows(values["text"]):
            special = np.array(part.special)
            word = word_of(part.offsets, places)
            alone = len(places) + np.arange(len(part))  # a token outside of words is masked on its own
            word = np.where(word < 0, alone, word) if self.options.get("whole_words", True) else alone
            word = np.where(special, -1, word)
            windows.append({"tokens": np.array(part.ids, dtype=np.int32), "word": word.astype(np.int32)})
        return windows

    def _overlap_within(self, room: int) -> int:
        return 0

    def skip_reason(self, windows: Sequence[Window]) -> str:
        return "" if any((window["word"] >= 0).any() for window in windows) else "the text has no token to mask"

    def add_noise(self, batch: Batch, seed: int) -> tuple[Tensor, Tensor]:
        """Return masked tokens and the labels of the masked positions; both [B, T]."""
        tokens, word = (batch[name].cpu().numpy() for name in ("tokens", "word"))
        shown, labels = tokens.copy(), np.full_like(tokens, IGNORE)
        for row, length in enumerate(batch["keep"].sum(1).tolist()):
            real = tokens[row, :length]
            random = make_generator(seed, real)
            chosen = choose_masked(word[row, :length], float(self.options.get("share", 0.15)), random)
            shown[row, :length] = apply_masks(real, chosen, self.tokenizer.special["mask"], self._plain, random)
            labels[row, :length][chosen] = real[chosen]
        return torch.from_numpy(shown).to(self.device), torch.from_numpy(labels).to(self.device)

    @cached_property
    def _plain(self) -> NDArray[np.int64]:
        """Token ids that are not special tokens."""
        control = [*self.tokenizer.control.values(), self.tokenizer.special.get("unk", -1)]
        plain: NDArray[np.int64] = np.setdiff1d(np.arange(len(self.tokenizer)), control)
        return plain

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        states, labels = self.masked_states(model, batch, torch.initial_seed() if model.training else 0)
        total = vocabulary_loss(cast(LMReadout, model.readout), states, labels, self.smoothing)
        return total, (labels != IGNORE).sum()

    def masked_states(self, model: TaskModel, batch: Batch, seed: int) -> tuple[Tensor, Tensor]:
        """Return hidden states [B, T, D] of the masked texts, and the labels [B, T]."""
        shown, labels = self.add_noise(batch, seed)
        keep = None if bool(batch["keep"].all()) else batch["keep"]
        return model.body(shown, keep), labels

    def score_rows(self, model: TaskModel, rows: Iterable[Values]) -> Iterator[tuple[Values, Prediction]]:
        """Mask words in each window and yield the loss on them and the number of correct predictions."""
        windows = ((values, window) for values in rows for window in self.encode(values))
        usable = ((values, window) for values, window in windows if not self.skip_reason([window]))
        model.eval()
        readout = cast(LMReadout, model.readout)
        while block := list(islice(usable, EVAL_WINDOWS)):
            batch = self.collate([window for _, window in block])
            with torch.inference_mode():
                states, labels = self.masked_states(model, batch, 0)
                nats = vocabulary_nats(readout, states, labels).sum(1).tolist()
                asked = labels != IGNORE
                right = torch.zeros_like(asked)
                right[asked] = readout(states[asked]).argmax(-1) == labels[asked]
            counts = zip(nats, asked.sum(1).tolist(), right.sum(1).tolist(), strict=True)
            for (values, _), (lost, count, good) in zip(block, counts, strict=True):
                yield values, {"nats": lost, "tokens": count, "right": good}

    def forward(self, model: TaskModel, batch: Batch) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Return the most likely tokens for each mask of a text, and their probabilities; both [masks, candidates]."""
        gaps = batch["tokens"] == self.tokenizer.special["mask"]
        states = model.body(batch["tokens"], None if bool(batch["keep"].all()) else batch["keep"])
        candidates = []
        for row, where in zip(states, gaps, strict=True):
            # An embedding matrix may have more rows than the vocabulary; they count in the softmax but are no
            # candidates.
            chances = model.readout(row[where]).float().softmax(-1)[:, : len(self.tokenizer)]
            best = chances.topk(min(MAX_CANDIDATES, chances.shape[1]), dim=-1)
            candidates.append((best.indices.cpu().numpy(), best.values.cpu().numpy()))
        return candidates

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[Any]) -> Prediction:
        ((tokens, chances),) = outputs
        return {
            "candidates": [
                [
                    {"text": self.tokenizer.decode([token]).strip(), "score": round(chance, 6)}
                    for token, chance in zip(*gap, strict=True)
                ]
                for gap in zip(tokens.tolist(), chances.tolist(), strict=True)
            ]
        }

    def scorer(self, replicates: int = 1000) -> Scorer:
        return MaskedLMScorer(replicates)


class MaskedLMScorer(Scorer):
    """Loss and accuracy on masked tokens; the sampling unit is a window."""

    main = "loss"

    def __init__(self, replicates: int) -> None:
        self.texts, self.counts = PerplexityMetric(replicates), Bootstrap(2, replicates)

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        self.texts.add([prediction["nats"]], [prediction["tokens"]], index=[index])
        self.counts.add([[prediction["right"], prediction["tokens"]]], [index])
        return bool(prediction["right"] == prediction["tokens"])

    def result(self) -> dict[str, Score]:
        def share(sums: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.divide(sums[..., 0], sums[..., 1], out=np.zeros(sums.shape[:-1]), where=sums[..., 1] > 0)

        drawn = self.counts.replicates(lambda sums: {"accuracy": share(sums)})
        interval = percentile(drawn["accuracy"]) if drawn else None
        return {**self.texts.result(), "accuracy": Score(float(share(self.counts.total)), interval=interval)}
