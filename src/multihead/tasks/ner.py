"""ner: a tag for every word; entities by character offsets. Any token tagging works (parts of speech and the like).

Every subword learns a tag (the pieces behind a word's first one continue its entity), so that text which nobody cut
into words, Chinese above all, can be tagged as well; the tag of a word is that of its first piece.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from multihead.data.windows import owned, windows
from multihead.models import Encoder, Model, TokenStem
from multihead.scores import Score, Spans, Table, Tags, spans
from multihead.tasks.task import IGNORE, Batch, Prediction, ReadoutKind, Scorer, Task, Values, Window, frame

# A word of raw text: letters and digits together, any other sign and every Han, kana or hangul character alone.
HAN = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORDS = re.compile(rf"[^\W{HAN}]+|\S")
# How a word is written, as a token type. Type 0 stands for lower case, so that nothing changes for such words; type 1
# is BERT's second sentence.
CAPITAL, CAPITALS, MIXED, DIGITS = 2, 3, 4, 5


class Ner(Task):
    """options: context: words of the document to show on either side; case: tell an uncased body how words are
    written (through its token types)."""

    name = "ner"
    inputs = ("tokens",)
    gold = ("tags",)
    readout = ReadoutKind("ForTokenClassification", "tokens")

    @classmethod
    def learn(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        tags = {tag for values in rows for tag in values["tags"]}
        # A model that may say B-X must be able to go on with I-X, seen or not.
        tags |= {f"I-{tag[2:]}" for tag in tags if tag.startswith("B-")}
        return sorted(tags, key=lambda tag: (tag != "O", tag[2:], tag))

    def prepare(self, rows: Iterable[Values]) -> Iterable[Values]:
        return neighbours(rows, self.options["context"]) if self.options.get("context") else rows

    def adapt(self, model: Model) -> None:
        """More token types for the cases; they start as type 0, so nothing changes before training."""
        body = model.body
        if not self.options.get("case") or not isinstance(body, Encoder) or not isinstance(body.stem, TokenStem):
            return
        old = torch.zeros(1, body.config.dim) if body.stem.types is None else body.stem.types.weight.data
        if len(old) <= DIGITS:
            table = torch.cat((old, old[:1].repeat(DIGITS + 1 - len(old), 1)))
            body.stem.types = nn.Embedding.from_pretrained(table, freeze=False)
            body.config = replace(body.config, token_types=len(table))

    def checked(self, given: Any, where: str) -> Values:
        """Text, or words in `tokens`."""
        if isinstance(given, dict) and "tokens" in given:
            if not isinstance(given["tokens"], list) or not all(isinstance(word, str) for word in given["tokens"]):
                raise ValueError(f"{where}: 'tokens' is a list of words")
            return given
        text = given.get("text") if isinstance(given, dict) else given
        if not isinstance(text, str):
            raise ValueError(f"{where}: ner takes a text, {{text: …}} or {{tokens: […]}}")
        return {"text": text}

    def encode(self, values: Values) -> list[Window]:
        words, text, places = laid_out(values)
        before, after = values.get("before", ()), values.get("after", ())
        if before or after:
            everything = [*before, *words, *after]
            text, all_places = joined(everything)
            places = all_places[len(before) : len(before) + len(words)]
        encoding = self.tokenizer.encode(text)
        first, last = frame(encoding.special)
        owner = word_of(encoding.offsets[first:last], places)
        starts = np.concatenate(([True], owner[1:] != owner[:-1])) & (owner >= 0)
        labels = self._labels(values.get("tags"), owner, starts)
        kinds = self._kinds(words, owner)
        head, tail = encoding.ids[:first], encoding.ids[last:]
        room = self.size - len(head) - len(tail)
        cuts = self._cuts(owner, room)
        found = []
        for (start, stop), (own_start, own_stop) in zip(cuts, owned(cuts), strict=True):
            inside = slice(start, stop)
            mine = np.zeros(stop - start, dtype=bool)
            mine[own_start - start : own_stop - start] = True
            window = {
                "tokens": np.array([*head, *encoding.ids[first:last][inside], *tail], dtype=np.int32),
                "word": self._framed(np.where(mine & starts[inside], owner[inside], -1), head, tail, -1),
            }
            if labels is not None:
                window["labels"] = self._framed(np.where(mine, labels[inside], IGNORE), head, tail, IGNORE)
            if kinds is not None:
                window["types"] = self._framed(kinds[inside], head, tail, 0)
            found.append(window)
        return found

    def loss(self, model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
        logits = self.logits(model, batch)
        labels = batch["labels"]
        total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum")
        return total, (labels != IGNORE).sum()

    def read(self, model: Model, batch: Batch) -> list[NDArray[Any]]:
        scores = self.logits(model, batch).float().log_softmax(-1).numpy()
        return [row[word >= 0] for row, word in zip(scores, batch["word"].numpy(), strict=True)]

    def answer(self, values: Values, windows: Sequence[Window], said: Sequence[NDArray[Any]]) -> Prediction:
        words, text, places = laid_out(values)
        scores = np.full((len(words), len(self.labels)), -1e4)
        scores[:, self.numbers.get("O", 0)] = 0.0  # a word of which the tokenizer sees nothing is no entity
        for window, rows in zip(windows, said, strict=True):
            scores[window["word"][window["word"] >= 0]] = rows
        path = best_path(scores, self.labels)
        tags = [self.labels[i] for i in path]
        chances = np.exp(scores[np.arange(len(path)), path])
        entities = []
        if all(tag == "O" or tag[1:2] == "-" for tag in self.labels):
            for label, start, stop in spans(tags, "conlleval"):
                a, b = places[start][0], places[stop - 1][1]
                score = float(chances[start:stop].mean())
                entities.append({"start": a, "end": b, "label": label, "text": text[a:b], "score": round(score, 6)})
        prediction: Prediction = {"entities": entities}
        if "tokens" in values:
            prediction["tags"] = tags
        return prediction

    def scorer(self, replicates: int = 1000) -> Scorer:
        return TagScorer(self.labels, replicates)

    def _labels(self, tags: Sequence[str] | None, owner: NDArray[Any], starts: NDArray[Any]) -> NDArray[Any] | None:
        if tags is None:
            return None
        numbers = [self._number(tag) for tag in tags]
        inner = [
            self.numbers.get(f"I-{tag[2:]}", n) if tag[1:2] == "-" else n for tag, n in zip(tags, numbers, strict=True)
        ]
        both = np.array([numbers, inner])
        return np.where(owner >= 0, both[np.where(starts, 0, 1), owner], IGNORE)

    def _number(self, tag: str) -> int:
        if tag not in self.numbers:
            raise ValueError(f"the tag {tag!r} was not in the training data, which has: {', '.join(self.labels)}")
        return self.numbers[tag]

    def _kinds(self, words: Sequence[str], owner: NDArray[Any]) -> NDArray[Any] | None:
        if not self.options.get("case"):
            return None
        kinds = np.array([written(word) for word in words] + [0])
        return np.where(owner >= 0, kinds[owner], 0)

    def _cuts(self, owner: NDArray[Any], room: int) -> list[tuple[int, int]]:
        """Windows over the sentence; what is left of the room shows the words around it."""
        mine = np.flatnonzero(owner >= 0)
        if not len(mine):
            return [(0, min(len(owner), room))]
        low, high = int(mine[0]), int(mine[-1]) + 1
        if high - low > room:
            overlap = min(self.overlap, room - 1)
            return [(low + a, low + b) for a, b in windows(high - low, room, overlap)]
        spare = room - (high - low)
        left = min(low, max(spare // 2, spare - (len(owner) - high)))
        right = min(len(owner) - high, spare - left)
        return [(low - left, high + right)]

    @staticmethod
    def _framed(inside: NDArray[Any], head: Sequence[int], tail: Sequence[int], filler: int) -> NDArray[Any]:
        return np.pad(inside, (len(head), len(tail)), constant_values=filler).astype(np.int32)


class TagScorer(Scorer):
    """Entities where tags are BIO (strict and conlleval beside each other), and every tag in any case."""

    def __init__(self, labels: Sequence[str], replicates: int) -> None:
        self.tags = Tags(replicates)
        self.entities = Spans(replicates) if all(tag == "O" or tag[1:2] == "-" for tag in labels) else None
        self.main = "strict.f1" if self.entities is not None else "accuracy"

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        gold, said = list(values["tags"]), list(prediction["tags"])
        self.tags.add([gold], [said], [index])
        if self.entities is not None:
            self.entities.add([gold], [said], [index])
        return gold == said

    def result(self) -> dict[str, Score]:
        found = ({} if self.entities is None else self.entities.result()) | self.tags.result()
        first = ("strict.f1", "strict.precision", "strict.recall", "conlleval.f1", "accuracy", "macro_f1")
        return {name: found[name] for name in first if name in found} | found

    def tables(self) -> list[Table]:
        entities = [] if self.entities is None else [self.entities.table("strict"), self.entities.table("conlleval")]
        return [self.tags.table(), *entities]


def laid_out(values: Values) -> tuple[list[str], str, list[tuple[int, int]]]:
    """Words, the text, and where in it each word stands. Raw text is cut into words, words are joined to text."""
    if "tokens" in values:
        words = list(values["tokens"])
        text, places = joined(words)
        return words, text, places
    text = values["text"]
    found = list(WORDS.finditer(text))
    return [m.group() for m in found], text, [m.span() for m in found]


def joined(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Words with a space between them, but none between two Chinese or Japanese ones."""
    text, places = "", []
    for word in words:
        if text and not (re.match(f"[{HAN}]", word) and re.match(f"[{HAN}]", text[-1])):
            text += " "
        places.append((len(text), len(text) + len(word)))
        text += word
    return text, places


def word_of(offsets: Sequence[tuple[int, int]], places: Sequence[tuple[int, int]]) -> NDArray[Any]:
    """The word that each token stands in, -1: none."""
    if not places or not offsets:
        return np.full(len(offsets), -1)
    starts, ends = (np.array(side) for side in zip(*places, strict=True))
    # The middle of a token: some tokenizers count the space before a word as part of its first token.
    last = np.array([max(b - 1, a) for a, b in offsets])
    word = np.searchsorted(starts, last, side="right") - 1
    return np.where((word >= 0) & (last < ends[word]), word, -1)


def written(word: str) -> int:
    if any(c.isdigit() for c in word):
        return DIGITS
    if word.lower() == word:
        return 0
    if word.upper() == word and len(word) > 1:
        return CAPITALS
    return CAPITAL if word[0].isupper() and word[1:] == word[1:].lower() else MIXED


def neighbours(rows: Iterable[Values], count: int) -> Iterator[Values]:
    """Each sentence with up to `count` words of its document before and after it."""
    past: list[str] = []
    waiting: deque[tuple[Values, list[str]]] = deque()
    ahead, document = 0, object()

    def ready(everything: bool) -> Iterator[Values]:
        nonlocal ahead
        while waiting and (everything or ahead - len(waiting[0][0]["tokens"]) >= count):
            values, before = waiting.popleft()
            ahead -= len(values["tokens"])
            after: list[str] = []
            for later, _ in waiting:
                after += later["tokens"]
                if len(after) >= count:
                    break
            yield {**values, "before": before, "after": after[:count]}

    for values in rows:
        if values.get("document") != document:
            yield from ready(True)
            past, document = [], values.get("document")
        waiting.append((values, past[-count:]))
        past = (past + list(values["tokens"]))[-count:]
        ahead += len(values["tokens"])
        yield from ready(False)
    yield from ready(True)


def best_path(scores: NDArray[Any], labels: Sequence[str]) -> NDArray[Any]:
    """The most likely sequence of tags in which no I-X follows anything but B-X or I-X (Viterbi)."""
    T, C = scores.shape
    if T == 0:
        return np.zeros(0, dtype=np.int64)
    greedy = scores.argmax(1)
    allowed = np.array([[not b.startswith("I-") or a[1:] == b[1:] for b in labels] for a in labels])
    begin = np.array([not b.startswith("I-") for b in labels])
    if begin[greedy[0]] and allowed[greedy[:-1], greedy[1:]].all():
        return greedy  # mostly so: nothing to mend
    step = np.where(allowed, 0.0, -1e9)
    best, back = np.where(begin, scores[0], -1e9), np.zeros((T, C), dtype=np.int64)
    for t in range(1, T):
        ways = best[:, None] + step
        back[t] = ways.argmax(0)
        best = ways.max(0) + scores[t]
    path = np.empty(T, dtype=np.int64)
    path[-1] = best.argmax()
    for t in range(T - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    return path
