"""ner: token classification; entities by character offsets. Any word tagging works (part-of-speech tags and the like).

Every subword has a label (subwords after the first continue the entity), so that text without word boundaries, above
all Chinese, can be tagged as well; the tag of a word is that of its first subword.

With `crf`, the tags of a sentence are trained and decoded as one sequence (a conditional random field) restricted to
valid BIO sequences, in training and in prediction; other subwords keep their per-token loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from multihead.data.readers.columns import is_string_list
from multihead.data.readers.notation import BIO, TagNotation, are_bio, choose_notation
from multihead.data.readers.tag_schemes import TagCounts
from multihead.data.sliding_windows import core_spans, split_windows
from multihead.metrics import entity_spans
from multihead.models import ClassifierReadout, Encoder, TaskModel, TokenEmbedding
from multihead.models.crf import CRFReadout, crf_nll
from multihead.models.viterbi import SpanProbabilities, TransitionScores, best_legal_path, best_path, transition_rules
from multihead.tasks.losses import class_loss, label_mask
from multihead.tasks.spec import SPECS
from multihead.tasks.tag_scorer import TagScorer, is_bio
from multihead.tasks.task import (
    IGNORE,
    Batch,
    Prediction,
    ReadoutKind,
    Scorer,
    Task,
    Values,
    Window,
    check_filled,
    content_span,
)
from multihead.tasks.word_spans import (
    DIGITS,
    ContextWindow,
    add_context,
    case_of,
    gold_of_words,
    join_sentences,
    join_tokens,
    layout_words,
    separate_marks,
    tags_of_tokens,
    word_of,
)
from multihead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from multihead.tasks.sections import TaskSection


class Ner(Task):
    """Named-entity tagger.

    options: context: words of the document to show on either side; case: encode each word's casing for an uncased body
    (through its token types); crf: model tag transitions; notation: the prefixes of the training data's tags, if not
    BIO.
    """

    spec = SPECS["ner"]
    readout = ReadoutKind("ForTokenClassification", "tokens")

    def __init__(self, tokenizer: Tokenizer, labels: Sequence[str], size: int = 512, overlap: int = 64, **options: Any):
        super().__init__(tokenizer, labels, size, overlap, **options)
        self.rules = transition_rules(self.labels)
        going_on = (self.numbers.get(f"I-{tag[2:]}", n) if tag[1:2] == "-" else n for n, tag in enumerate(labels))
        self.inner = np.array([*going_on], dtype=np.int64)  # tag -> tag of the subwords after a word's first
        self.moves = self.rules  # with a crf, `forward` adds the trained transitions
        self.notation = TagNotation(options.get("notation", BIO))  # of predictions, unless inputs have tags in another
        self.seen_tags: TagCounts | None = TagCounts()  # of the inputs so far; None: all inputs were surveyed

    @classmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        tags = {tag for values in rows for tag in values["tags"]}
        foreign = sorted(tag for tag in tags if tag[1:2] == "-" and tag[0] in "LUSEMW")
        if foreign and all(tag == "O" or tag[1:2] == "-" for tag in tags):
            scheme = "BMES" if any(tag[0] in "MW" for tag in foreign) else "BILOU"
            raise ValueError(f'tags such as {foreign[0]!r} are not BIO; set ner.scheme = "{scheme}"')
        # A model that can predict B-X must be able to continue with I-X, whether it occurs in training or not.
        tags |= {f"I-{tag[2:]}" for tag in tags if tag.startswith("B-")}
        return sorted(tags, key=lambda tag: (tag != "O", tag[2:], tag))

    @classmethod
    def labels_of_row(cls, values: Values, **options: Any) -> Iterable[str]:
        tags: Iterable[str] = values["tags"]
        return tags

    @classmethod
    def resolve_options(cls, section: TaskSection, rows: Callable[[], Iterator[Values]]) -> dict[str, Any]:
        options = super().resolve_options(section, rows)
        options.pop("scheme", None)  # of the files; readers convert to BIO
        return options

    def prepare(self, rows: Iterable[Values]) -> Iterable[Values]:
        return add_context(rows, self.options["context"]) if self.options.get("context") else rows

    def training_rows(self, rows: Iterable[Values]) -> Iterable[Values]:
        """Return rows for training. With context, all words of a document window have a loss at once: each then has
        neighbors on both sides at no extra cost, where one sentence amid unlabeled context costs a multiple of its own
        length."""
        return join_sentences(rows, 2 * self.options["context"]) if self.options.get("context") else rows

    def adapt(self, model: TaskModel) -> None:
        """Add token types for the cases, initialized as type 0 so that nothing changes before training, and a CRF
        readout."""
        if (
            self.options.get("crf")
            and isinstance(model.readout, ClassifierReadout)
            and not isinstance(model.readout, CRFReadout)
        ):
            model.readout = CRFReadout.from_classifier(model.readout)
        body = model.body
        if not self.options.get("case") or not isinstance(body, Encoder) or not isinstance(body.stem, TokenEmbedding):
            return
        old = torch.zeros(1, body.config.dim) if body.stem.types is None else body.stem.types.weight.data
        if len(old) <= DIGITS:
            table = torch.cat((old, old[:1].repeat(DIGITS + 1 - len(old), 1)))
            body.stem.types = nn.Embedding.from_pretrained(table, freeze=False)
            body.config = replace(body.config, token_types=len(table))

    def survey(self, inputs: Iterable[Any]) -> None:
        """Detect the tag notation of the inputs; predictions are written in it."""
        tags = TagCounts()
        for raw_input in inputs:
            self._see_tags(raw_input, tags)
        self.write_as(choose_notation(tags, self.notation.letters))

    def write_as(self, letters: str) -> None:
        """Write the tags of all predictions in these letters (`data.notation`); "": as in the training data."""
        self.notation, self.seen_tags = TagNotation(letters) if letters else self.notation, None

    def _see_tags(self, raw_input: Any, survey: TagCounts) -> None:
        column = self.options.get("columns", {}).get("tags", "tags")
        tags = raw_input.get(column, raw_input.get("tags")) if isinstance(raw_input, Mapping) else None
        if isinstance(tags, list) and is_string_list(tags):
            survey.add((0, tag) for tag in tags)

    def map_columns(self, raw_input: Any) -> Any:
        asked = super().map_columns(raw_input)
        if not isinstance(raw_input, Mapping) or "tokens" not in asked:
            return asked
        if self.seen_tags is not None:  # a stream cannot be surveyed in advance
            self._see_tags(raw_input, self.seen_tags)
            self.notation = TagNotation(choose_notation(self.seen_tags, self.notation.letters))
        return {**asked, "notation": self.notation}

    def validate(self, raw_input: Any, where: str) -> Values:
        """Return the text, or the words in `tokens`. Inputs are not each other's context unless they name a document.
        Other keys are dropped: rows use names of their own for context."""
        if isinstance(raw_input, dict) and "tokens" in raw_input:
            if not isinstance(raw_input["tokens"], list) or not all(
                isinstance(word, str) for word in raw_input["tokens"]
            ):
                raise ValueError(f"{where}: 'tokens' must be a list of words; put raw text in 'text'")
            check_filled({"tokens": raw_input["tokens"]}, where)
            columns = {
                name: raw_input[name] for name in ("tokens", "spaces", "document", "notation") if name in raw_input
            }
            return {"document": None, **columns}
        text = raw_input.get("text") if isinstance(raw_input, dict) else raw_input
        if not isinstance(text, str):
            raise ValueError(f"{where}: ner expects a text, {{text: …}} or {{tokens: […]}}")
        check_filled({"text": text}, where)
        return {"text": text, "document": None}

    def reads_raw_text(self, values: Values) -> bool:
        """Whether the tokens of a row encode exactly like the same sentence as raw text: the file's raw text, or else
        the text that joins the tokens."""
        raw = values.get("raw_text")
        if not isinstance(raw, str):
            raw = join_tokens(values["tokens"], values.get("spaces"))[0]
        texts = [separate_marks(*layout_words(row)[1:])[0] for row in (values, {"text": raw})]
        return texts[0] == texts[1] or self.tokenizer.encode(texts[0]).ids == self.tokenizer.encode(texts[1]).ids

    def encode(self, values: Values) -> list[Window]:
        """Encode a row. Sentences of one context window share its encoded windows."""
        shown: ContextWindow | None = values.get("shown")
        if shown is not None:
            if shown.windows is None:
                everything = [*shown.before, *shown.words, *shown.after]
                text, places = join_tokens(everything)
                shown.windows = self._windows(everything, len(shown.before), len(shown.words), text, places, shown.tags)
            return shown.windows
        words, text, places = layout_words(values)
        tags = gold_of_words(values) if "tags" in values else None
        text, places = separate_marks(text, places)
        return self._windows(words, 0, len(words), text, places, tags, values.get("belief"))

    def _windows(
        self,
        words: Sequence[str],
        before: int,
        count: int,
        text: str,
        places: Sequence[tuple[int, int]],
        tags: Sequence[str] | None,
        belief: Sequence[NDArray[Any]] | None = None,
    ) -> list[Window]:
        """Encode a text. Of its words, the `count` after the first `before` are predicted, and have these tags."""
        encoding = self.tokenizer.encode(text)
        first, last = content_span(encoding.special)
        owner = word_of(encoding.offsets[first:last], places)
        kinds = self._case_types(words, owner)
        owner = np.where((owner >= before) & (owner < before + count), owner - before, -1)
        starts = np.concatenate(([True], owner[1:] != owner[:-1])) & (owner >= 0)
        labels = self._labels(self._repair_tags(tags), belief, owner, starts)
        head, tail = encoding.ids[:first], encoding.ids[last:]
        room = self.size - len(head) - len(tail)
        cuts = self._window_spans(owner, room)
        windows: list[Window] = []
        for (start, stop), (own_start, own_stop) in zip(cuts, core_spans(cuts), strict=True):
            here = slice(start, stop)
            owned = np.zeros(stop - start, dtype=bool)
            owned[own_start - start : own_stop - start] = True
            window = {
                "tokens": np.array([*head, *encoding.ids[first:last][here], *tail], dtype=np.int32),
                "word": self._pad_special(np.where(owned & starts[here], owner[here], -1), head, tail, -1),
            }
            if labels is not None:
                window["labels"] = self._window_labels(labels[here], owned, head, tail)
            if kinds is not None:
                window["types"] = self._pad_special(kinds[here], head, tail, 0)
            if self.options.get("crf"):  # whether the sentence begins and ends in this window
                window["ends"] = np.array([not windows, (start, stop) == cuts[-1]], dtype=np.int32)
            windows.append(window)
        return windows

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss, summed over all labeled subwords. With a CRF, a sentence of n words counts n: its −log
        p(tags) is the sum of −log p(tag | previous tags), so that losses with and without the CRF are on one scale."""
        logits = self.logits(model, batch)
        labels = batch["labels"]
        count = label_mask(labels).sum()
        if not isinstance(model.readout, CRFReadout):
            return class_loss(logits.flatten(0, 1), labels.flatten(0, 1), self.smoothing, rdrop=self.rdrop), count
        inner = labels.masked_fill(batch["word"] >= 0, IGNORE)
        subword_loss = class_loss(logits.flatten(0, 1), inner.flatten(), self.smoothing)
        return self._chain_loss(model.readout, logits, batch) + subword_loss, count

    def _chain_loss(self, chain: CRFReadout, logits: Tensor, batch: Batch) -> Tensor:
        """Return −log p(tags of the words), summed; word positions are gathered from logits [B, T, C]. (Labels of a
        sequence are not smoothed.)"""
        first = batch["word"] >= 0
        lengths = first.sum(1)
        order = first.byte().argsort(dim=1, descending=True, stable=True)[:, : max(int(lengths.max()), 1)]
        emissions = logits.gather(1, order[..., None].expand(-1, -1, logits.shape[-1]))
        tags = batch["labels"].gather(1, order).clamp(min=0)
        start, _, step = (torch.as_tensor(part, dtype=torch.float32, device=logits.device) for part in self.rules)
        begins, ends = batch["ends"].to(logits.dtype).unbind(1)
        lost = crf_nll(
            emissions,
            tags,
            lengths,
            (chain.start + start) * begins[:, None],
            chain.end * ends[:, None],
            chain.step + step,
        )
        return lost.sum()

    def forward(self, model: TaskModel, batch: Batch) -> list[NDArray[Any]]:
        scores = self.logits(model, batch).float()
        chain = model.readout
        if isinstance(chain, CRFReadout):
            trained = (part.float().cpu().numpy() for part in (chain.start, chain.end, chain.step))
            self.moves = self.rules + TransitionScores(*trained)
        else:
            scores = scores.log_softmax(-1)
        tables = (table.cpu().numpy() for table in (scores, batch["word"]))
        return [row[word >= 0] for row, word in zip(*tables, strict=True)]

    def soft_labels(self, values: Values, windows: Sequence[Window], outputs: Sequence[Any]) -> NDArray[Any]:
        """Return tag probabilities [words, C]; a CRF has none per word."""
        return np.exp(self._scores(values, len(layout_words(values)[0]), windows, outputs))

    def hard_labels(self, belief: NDArray[Any]) -> Values:
        likely = np.log(np.maximum(belief, 1e-30))
        return {"tags": [self.labels[i] for i in best_legal_path(likely, self.rules)]}

    def _scores(self, values: Values, count: int, windows: Sequence[Window], outputs: Sequence[Any]) -> NDArray[Any]:
        """Return the scores of each word [words, C]."""
        scores = np.full((count, len(self.labels)), -1e4)
        scores[:, self.numbers.get("O", 0)] = 0.0  # a word without tokens is outside of entities
        for window, rows in zip(windows, outputs, strict=True):
            word = window["word"][window["word"] >= 0] - values.get("at", 0)
            inside = (word >= 0) & (word < count)
            scores[word[inside]] = rows[inside]
        return scores

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[NDArray[Any]]) -> Prediction:
        words, text, places = layout_words(values)
        scores = self._scores(values, len(words), windows, outputs)
        crf = bool(self.options.get("crf"))
        path = best_path(scores, self.moves) if crf else best_legal_path(scores, self.rules)
        tags = [self.labels[i] for i in path]
        plain = not is_bio(self.labels)
        spans = [] if plain else entity_spans(tags, "conlleval")
        # Confidence: with a CRF, the probability of the entity's tag sequence; otherwise the mean over its words.
        sequence = SpanProbabilities(scores, self.moves) if crf and spans else None
        entities = []
        for label, start, stop in spans:
            a, b = places[start][0], places[stop - 1][1]
            if sequence is not None:
                score = sequence.of(path, start, stop)
            else:
                score = float(np.exp(scores[np.arange(start, stop), path[start:stop]]).mean())
            entities.append({"start": a, "end": b, "label": label, "text": text[a:b], "score": round(score, 6)})
        prediction: Prediction = {"entities": entities}
        if "tokens" in values:
            tokens = join_tokens(values["tokens"], values.get("spaces"))[1]
            tags = tags_of_tokens(tags, places, tokens)
            notation = values.get("notation")  # check the type: a user's column may have this name too
            if isinstance(notation, TagNotation) and are_bio(self.labels):
                tags = notation.write(tags)
            prediction |= {"text": text, "tags": tags}
        elif plain:
            prediction |= {"tokens": words, "tags": tags}
        return prediction

    def scorer(self, replicates: int = 1000) -> Scorer:
        return TagScorer(self.labels, replicates)

    def _repair_tags(self, tags: Sequence[str] | None) -> Sequence[str] | None:
        """Turn an I-X that continues nothing into B-X, as conlleval reads it: the CRF forbids it."""
        if tags is None or not self.options.get("crf"):
            return tags
        pairs = zip(["O", *tags], tags, strict=False)  # the last tag has no successor
        opened = [f"B-{tag[2:]}" if tag.startswith("I-") and last[1:] != tag[1:] else tag for last, tag in pairs]
        return [new if new in self.numbers else tag for new, tag in zip(opened, tags, strict=True)]

    def _labels(
        self,
        tags: Sequence[str] | None,
        belief: Sequence[NDArray[Any]] | None,
        owner: NDArray[Any],
        starts: NDArray[Any],
    ) -> NDArray[Any] | None:
        """Return the tag index of each token [T], or, with a teacher, tag probabilities [T, C]."""
        if tags is None:
            return None
        numbers = np.array([self._number(tag) for tag in tags], dtype=np.int64)
        if belief is None:
            both = np.array([numbers, self.inner[numbers]])
            return np.where(owner >= 0, both[np.where(starts, 0, 1), owner], IGNORE)
        tag = np.eye(len(self.labels))  # one-hot rows, also for the subwords after a word's first
        chances = (1 - self.distill_weight) * tag[numbers] + self.distill_weight * np.stack(belief)
        both = np.array([chances, chances @ tag[self.inner]])
        return np.where((owner >= 0)[:, None], both[np.where(starts, 0, 1), owner], 0.0)

    def _number(self, tag: str) -> int:
        if tag not in self.numbers:
            raise ValueError(f"tag {tag!r} was not seen in training; tags are: {', '.join(self.labels)}")
        return self.numbers[tag]

    def _case_types(self, words: Sequence[str], owner: NDArray[Any]) -> NDArray[Any] | None:
        if not self.options.get("case"):
            return None
        kinds = np.array([case_of(word) for word in words] + [0])
        return np.where(owner >= 0, kinds[owner], 0)

    def _window_spans(self, owner: NDArray[Any], room: int) -> list[tuple[int, int]]:
        """Return windows over the sentence; spare room shows the words around it."""
        owned = np.flatnonzero(owner >= 0)
        if not len(owned):
            return [(0, min(len(owner), room))]
        low, high = int(owned[0]), int(owned[-1]) + 1
        if high - low > room:
            overlap = min(self.overlap, room - 1)
            return [(low + a, low + b) for a, b in split_windows(high - low, room, overlap)]
        spare = room - (high - low)
        left = min(low, max(spare // 2, spare - (len(owner) - high)))
        right = min(len(owner) - high, spare - left)
        return [(low - left, high + right)]

    def _window_labels(
        self, labels: NDArray[Any], owned: NDArray[Any], head: Sequence[int], tail: Sequence[int]
    ) -> NDArray[Any]:
        """Return the labels that this window owns; the rest belong to overlapping windows."""
        if labels.ndim == 1:
            return self._pad_special(np.where(owned, labels, IGNORE), head, tail, IGNORE)
        return np.pad(labels * owned[:, None], ((len(head), len(tail)), (0, 0))).astype(np.float32)

    @staticmethod
    def _pad_special(inside: NDArray[Any], head: Sequence[int], tail: Sequence[int], filler: int) -> NDArray[Any]:
        return np.pad(inside, (len(head), len(tail)), constant_values=filler).astype(np.int32)
