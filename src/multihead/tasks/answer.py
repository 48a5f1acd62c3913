"""answer: extractive question answering: the span of a text that answers a question, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from multihead.data.sliding_windows import split_windows
from multihead.metrics import Score, SquadMetric, exact_and_f1
from multihead.models import TaskModel
from multihead.tasks.spec import SPECS
from multihead.tasks.task import IGNORE, Batch, Prediction, ReadoutKind, Scorer, Task, Values, Window

if TYPE_CHECKING:
    from multihead.tasks.sections import TaskSection

NONE = 0  # the first token means "no answer here"
LEAST = 16  # minimum context tokens that must fit next to a question


class Answer(Task):
    """Extractive question answering.

    options: no_answer: a question may have no answer; longest: maximum answer length in tokens.
    """

    spec = SPECS["answer"]
    readout = ReadoutKind("ForQuestionAnswering", "tokens")

    @classmethod
    def resolve_options(cls, section: TaskSection, rows: Callable[[], Iterator[Values]]) -> dict[str, Any]:
        options = super().resolve_options(section, rows)
        options["longest"] = options.pop("max_answer_tokens")
        return options

    @classmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        return []

    def classes(self) -> int:
        return 2  # start and end logits

    def encode(self, values: Values) -> list[Window]:
        encoding = self.tokenizer.encode(values["question"], values["context"])
        question, context = ([i for i, side in enumerate(encoding.sequences) if side == which] for which in (0, 1))
        room = self.size - (len(encoding) - len(context))
        lost: list[int] = []
        if room < min(LEAST, self.size // 2):  # truncate the question: half of the window is for the context
            lost = question[room - self.size // 2 :]
            room += len(lost)
        cut = set(lost)
        windows: list[Window] = []
        for start, stop in split_windows(len(context), room, min(self.overlap, room // 2)) or [(0, 0)]:
            inside = set(context[start:stop])
            chosen = [i for i, side in enumerate(encoding.sequences) if (side != 1 or i in inside) and i not in cut]
            window = {
                "tokens": np.array([encoding.ids[i] for i in chosen], dtype=np.int32),
                "types": np.array([encoding.types[i] for i in chosen], dtype=np.int32),
                # Character span of each context token; -1 for tokens outside the context.
                "offsets": np.array(
                    [encoding.offsets[i] if encoding.sequences[i] == 1 else (-1, -1) for i in chosen], dtype=np.int32
                ),
                "cut": np.array(0 if windows else len(lost), dtype=np.int32),
            }
            if "answers" in values:
                window["span"] = np.array(self._span(values["answers"], window["offsets"]), dtype=np.int64)
            windows.append(window)
        if values.get("answers") and not any(window["span"].any() for window in windows):
            # An answer exists outside these windows, so the label "no answer" would be wrong.
            windows = [{**window, "span": np.full_like(window["span"], IGNORE)} for window in windows]
        return windows

    def skip_reason(self, windows: Sequence[Window]) -> str:
        lost = (windows[0]["span"] == IGNORE).any()
        return "no window of the context contains the full answer on token boundaries" if lost else ""

    def collate(self, windows: Sequence[Window]) -> Batch:
        batch = super().collate(windows)
        batch["offsets"][~batch["keep"]] = -1
        return batch

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        logits = self._mask_logits(self.logits(model, batch), batch)
        total = sum(F.cross_entropy(logits[..., side], batch["span"][:, side], reduction="sum") for side in (0, 1))
        return torch.as_tensor(total) / 2, torch.tensor(len(logits))

    def forward(self, model: TaskModel, batch: Batch) -> list[NDArray[Any]]:
        logits = self._mask_logits(self.logits(model, batch).float(), batch).cpu().numpy()
        return [row[:length] for row, length in zip(logits, batch["keep"].sum(1).tolist(), strict=True)]

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[NDArray[Any]]) -> Prediction:
        longest = int(self.options.get("longest", 30))
        spans: list[tuple[float, int, int]] = []
        none = []
        for window, scores in zip(windows, outputs, strict=True):
            none.append(float(scores[NONE].sum()))
            inside = np.flatnonzero(window["offsets"][:, 0] >= 0)
            if not len(inside):
                continue
            start, end = scores[inside, 0], scores[inside, 1]
            table = start[:, None] + end[None, :]
            ahead = np.arange(len(inside))[None, :] - np.arange(len(inside))[:, None]
            table = np.where((ahead >= 0) & (ahead < longest), table, -np.inf)
            a, b = np.unravel_index(int(table.argmax()), table.shape)
            low, high = window["offsets"][inside[a], 0], window["offsets"][inside[b], 1]
            spans.append((float(table[a, b]), int(low), int(high)))
        best = max(spans, default=(-np.inf, 0, 0))
        nothing = min(none)  # no answer only if every window predicts none
        chance = 1.0 / (1.0 + np.exp(np.clip(nothing - best[0], -50, 50)))
        if not spans or (self.options.get("no_answer") and nothing > best[0]):
            return {"answer": None, "start": None, "end": None, "score": round(float(1 - chance), 6)}
        _, low, high = best
        text = values["context"][low:high]  # some tokenizers count the space before a word as part of it
        low, high = low + len(text) - len(text.lstrip()), high - len(text) + len(text.rstrip())
        return {"answer": values["context"][low:high], "start": low, "end": high, "score": round(float(chance), 6)}

    def scorer(self, replicates: int = 1000) -> Scorer:
        return AnswerScorer(replicates)

    def _mask_logits(self, logits: Tensor, batch: Batch) -> Tensor:
        """Mask logits outside the context, except the first token, which means "no answer"."""
        able = batch["offsets"][..., 0] >= 0
        able[:, NONE] = True
        return logits.masked_fill(~able[..., None], -1e4)

    @staticmethod
    def _span(answers: Sequence[Any], offsets: NDArray[Any]) -> tuple[int, int]:
        """Return the first and last token of the first answer that lies fully inside this window."""
        for answer in answers:
            text = answer["text"]  # surrounding spaces belong to no token
            low, high = answer["start"] + len(text) - len(text.lstrip()), answer["start"] + len(text.rstrip())
            inside = np.flatnonzero((offsets[:, 0] < high) & (offsets[:, 1] > low) & (offsets[:, 0] >= 0))
            if len(inside) and offsets[inside[0], 0] <= low and offsets[inside[-1], 1] >= high:
                return int(inside[0]), int(inside[-1])
        return NONE, NONE


class AnswerScorer(Scorer):
    main = "f1"

    def __init__(self, replicates: int) -> None:
        self.metric = SquadMetric(replicates=replicates)

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        gold = [answer["text"] for answer in values["answers"]]
        self.metric.add([gold], [prediction["answer"]], index=[index])
        return exact_and_f1(gold, prediction["answer"])[0]

    def result(self) -> dict[str, Score]:
        return self.metric.result()
