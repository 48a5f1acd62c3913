"""The loop that a tutorial has: a transformers model, AdamW, a linear decay, random batches padded to their longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.small_sets import Row
from multihead.machine.precision import choose_precision, matmul_backend, measure
from multihead.tasks import IGNORE

LONGEST = 256


@dataclass(frozen=True)
class PlainLoopSettings:
    """What both sides of the comparison are given."""

    epochs: int = 3
    lr: float = 1e-4
    batch: int = 16  # rows


class PlainLoop:
    """One fine-tuned transformers model: `fit`, then `predict`.

    Taggers learn the tag of each word's first subword; classifiers are what AutoModelForSequenceClassification is; a
    score is learned by mean squared error.
    """

    def __init__(self, model: Path, task: str, rows: Sequence[Row], seed: int) -> None:
        from transformers import (
            AutoModelForSequenceClassification,
            AutoModelForTokenClassification,
            AutoTokenizer,
            logging,
        )

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        torch.manual_seed(seed)
        self.task = task
        self.labels = labels_of(task, rows)
        self.numbers = {label: number for number, label in enumerate(self.labels)}
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        kind = AutoModelForTokenClassification if task == "ner" else AutoModelForSequenceClassification
        self.model: Any = kind.from_pretrained(model, num_labels=len(self.labels) or 1)
        # The same fp32, faster where MKL is slow.
        self.precision = "onednn" if measure(("onednn",))["onednn"].good else choose_precision("fp32")

    def fit(self, rows: Sequence[Row], settings: PlainLoopSettings) -> None:
        self.model.train()
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.lr, weight_decay=0.01, fused=True)
        steps = settings.epochs * -(-len(rows) // settings.batch)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))
        for _ in range(settings.epochs):
            for numbers in torch.randperm(len(rows)).split(settings.batch):
                batch, _ = self.collate([rows[i] for i in numbers.tolist()], learn=True)
                with matmul_backend(self.precision):
                    self.model(**batch).loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()

    @torch.inference_mode()
    def predict(self, rows: Sequence[Row]) -> list[Any]:
        """Return a list of tags, a label or a score for each row."""
        self.model.eval()
        order = sorted(range(len(rows)), key=lambda i: sum(map(len, map(str, rows[i].values()))))
        answers: dict[int, Any] = {}
        for at in range(0, len(order), 32):
            numbers = order[at : at + 32]
            batch, firsts = self.collate([rows[i] for i in numbers])
            with matmul_backend(self.precision):
                logits = self.model(**batch).logits
            for row, number in enumerate(numbers):
                if self.task == "ner":
                    tags = ["O"] * len(rows[number]["tokens"])
                    for place, word in firsts[row]:
                        tags[word] = self.labels[int(logits[row, place].argmax())]
                    answers[number] = tags
                else:
                    answers[number] = self.labels[int(logits[row].argmax())] if self.labels else float(logits[row, 0])
        return [answers[i] for i in range(len(rows))]

    def collate(self, rows: Sequence[Row], learn: bool = False) -> tuple[Any, list[list[tuple[int, int]]]]:
        """Return a padded batch and, of taggers, the place of every word's first subword."""
        options = {"padding": True, "truncation": True, "max_length": LONGEST, "return_tensors": "pt"}
        if self.task != "ner":
            sides = ("text",) if self.task == "classify" else ("text_a", "text_b")
            batch = self.tokenizer(*([row[side] for row in rows] for side in sides), **options)
            if learn:
                batch["labels"] = torch.tensor([self.numbers.get(row["label"], row["label"]) for row in rows])
            return batch, []
        batch = self.tokenizer([row["tokens"] for row in rows], is_split_into_words=True, **options)
        firsts = [first_subwords(batch.word_ids(row)) for row in range(len(rows))]
        if learn:
            batch["labels"] = torch.full_like(batch["input_ids"], IGNORE)
            for row, places in enumerate(firsts):
                for place, word in places:
                    batch["labels"][row, place] = self.numbers[rows[row]["tags"][word]]
        return batch, firsts


def first_subwords(words: Sequence[int | None]) -> list[tuple[int, int]]:
    before = [None, *words[:-1]]
    return [(at, word) for at, (word, last) in enumerate(zip(words, before, strict=True)) if word not in (None, last)]


def labels_of(task: str, rows: Sequence[Row]) -> list[str]:
    if task == "match":
        return []  # a score
    return sorted({tag for row in rows for tag in row["tags"]} if task == "ner" else {row["label"] for row in rows})
