"""translate: a text in, another text out, by an encoder and a decoder."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers.decoders import WordPiece
from torch import Tensor

from multihead.generation import GenerationConfig, Hypothesis, align_tokens, decode
from multihead.kernels.chunked_cross_entropy import vocabulary_loss, vocabulary_nats
from multihead.metrics import BleuMetric, PerplexityMetric, Score
from multihead.models import EncoderDecoder, LMReadout, TaskModel
from multihead.tasks.spec import SPECS
from multihead.tasks.task import (
    IGNORE,
    Batch,
    Prediction,
    ReadoutKind,
    Scorer,
    Task,
    Values,
    Window,
    slice_encodings,
)
from multihead.tasks.word_alignment import link_words, token_spans
from multihead.tasks.word_spans import HAN
from multihead.text.tokenizer import Encoding

if TYPE_CHECKING:
    from multihead.tasks.sections import TaskSection

SIGNS = f"[{HAN}\u3000-\u303f\uff00-\uffef]"
APART = re.compile(f"(?<={SIGNS}) (?={SIGNS})")
ENDS = tuple(".!?;\n。！？；…")  # where a source that is too long may be cut


@dataclass(frozen=True)
class GeneratedText:
    """What was written from one window, and how well the model foretold the gold text (nats, over so many tokens)."""

    texts: list[Hypothesis]
    nats: float = 0.0
    count: int = 0
    seen: NDArray[Any] | None = None  # [tokens written, tokens read]: where the best one looked


class Translate(Task):
    """options: start, stop: the target's first token, and those that end it; first: tokens it must begin with;
    decode: how text is written; language, tokenize: how BLEU splits words.

    A source longer than the model is cut at ends of sentences, and its translations are joined, n-best ones in the
    combinations of best mean score; for training such a pair is of no use.
    """

    spec = SPECS["translate"]
    readout = ReadoutKind("ForConditionalGeneration", "vocabulary", other="MTModel")

    @classmethod
    def resolve_options(cls, section: TaskSection, rows: Callable[[], Iterator[Values]]) -> dict[str, Any]:
        options = super().resolve_options(section, rows)
        if options.get("language") == options.get("tokenize") == "":
            options["language"] = script_of(first_targets(rows))
        return options

    @classmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        return []

    def encode(self, values: Values) -> list[Window]:
        found = self.encode_source(source_text(values["source"]))
        if "target" in values and len(found) == 1:
            target = self.target(references(values)[0])
            if len(target) - 1 <= self.size:
                found[0]["target"] = np.array(target, dtype=np.int32)
        return found

    def encode_source(self, text: str) -> list[Window]:
        whole = self.tokenizer.encode(text)
        return [{"tokens": np.array(part.ids, dtype=np.int32)} for part in self.split_source(text, whole)]

    def split_source(self, text: str, whole: Encoding) -> list[Encoding]:
        """The source in as many windows as it needs, each a whole number of sentences if they fit."""
        inside = len(whole) - sum(whole.special)
        room = self.size - sum(whole.special)
        spans, start = [], 0
        ends = _ends(text, whole) if inside > room else []
        while inside - start > room:
            last = bisect_right(ends, start + room)
            cut = ends[last - 1] if last and ends[last - 1] > start else start + room
            spans.append((start, cut))
            start = cut
        spans.append((start, inside))
        return slice_encodings(whole, ({0: span} for span in spans))

    def target(self, text: str) -> list[int]:
        """start, text, stop. Special tokens of the tokenizer's own between them (BART's <s>) stay."""
        ids = self.tokenizer.target.encode(text).ids
        ids = ids[1:] if ids[:1] == [self.options["start"]] else ids
        ids = ids[:-1] if ids and ids[-1] in self.options["stop"] else ids
        return [self.options["start"], *ids, self.options["stop"][0]]

    def skip_reason(self, windows: Sequence[Window]) -> str:
        if len(windows) > 1:
            return f"the source is longer than the model's {self.size} tokens"
        return "" if "target" in windows[0] else f"the target is longer than the model's {self.size} tokens"

    def collate(self, windows: Sequence[Window]) -> Batch:
        """tokens and keep of the source; target and target_keep, if there is any gold (rows without it: no token)."""
        batch = super().collate([{"tokens": window["tokens"]} for window in windows])
        if any("target" in window for window in windows):
            empty = np.zeros(0, dtype=np.int32)
            other = super().collate([{"tokens": window.get("target", empty)} for window in windows])
            batch |= {"target": other["tokens"], "target_keep": other["keep"]}
        return batch

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        hidden, labels = self.run_decoder(model, batch, self.run_encoder(model, batch))
        total = vocabulary_loss(cast(LMReadout, model.readout), hidden, labels, self.smoothing, self.rdrop)
        return total, (labels != IGNORE).sum()

    def run_encoder(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The source as the decoder sees it: memory [B, S, D], and which of it is real (None: all)."""
        keep = None if bool(batch["keep"].all()) else batch["keep"]
        return cast(EncoderDecoder, model.body).encoder(batch["tokens"], keep), keep

    def run_decoder(
        self, model: TaskModel, batch: Batch, memory: tuple[Tensor, Tensor | None]
    ) -> tuple[Tensor, Tensor]:
        """Hidden states [B, T, D] before each token of the gold target, and these tokens [B, T].

        Padding stands behind the text, and nothing looks ahead: the decoder needs no mask for it.
        """
        target, keep = batch["target"], batch["target_keep"]
        decoder = cast(EncoderDecoder, model.body).decoder
        hidden = decoder(target[:, :-1], memory=memory[0], memory_keep=memory[1])
        return hidden, target[:, 1:].masked_fill(~keep[:, 1:], IGNORE)

    def forward(self, model: TaskModel, batch: Batch) -> list[GeneratedText]:
        memory, keep = self.run_encoder(model, batch)
        options, vocab = self.options, cast(LMReadout, model.readout).weight.shape[0]
        lengths = batch["keep"].sum(1).tolist()
        texts = decode(
            model,
            torch.full((len(lengths), 1), options["start"], dtype=torch.long, device=memory.device),
            self.generation_config().restrict_to_vocabulary(len(self.tokenizer.target), vocab),
            memory=memory,
            memory_keep=keep,
            limit=[self.limit(length) for length in lengths],
            stop=frozenset(options["stop"]),
            prefix=[options["first"]] * len(lengths) if options.get("first") else None,
            seed=int(self.settings.get("seed", 0)),
            rows=[crc32(row[:n].cpu().numpy().tobytes()) for row, n in zip(batch["tokens"], lengths, strict=True)],
        )
        seen = self.align_outputs(model, texts, memory, keep) if self.settings.get("alignment") else [None] * len(texts)
        if "target" not in batch:
            return [GeneratedText(several, seen=table) for several, table in zip(texts, seen, strict=True)]
        hidden, labels = self.run_decoder(model, batch, (memory, keep))
        nats = vocabulary_nats(cast(LMReadout, model.readout), hidden, labels)
        counted = zip(texts, nats.sum(1).tolist(), (labels != IGNORE).sum(1).tolist(), seen, strict=True)
        return [GeneratedText(*one) for one in counted]

    def align_outputs(
        self, model: TaskModel, texts: Sequence[Sequence[Hypothesis]], memory: Tensor, keep: Tensor | None
    ) -> list[NDArray[Any]]:
        """Where the best text of each row looked, token by token."""
        start = self.options["start"]
        batch = super().collate([{"tokens": np.array([start, *several[0].tokens])} for several in texts])
        tables = align_tokens(model, batch["tokens"], memory, keep)
        return [table[: len(several[0].tokens)].cpu().numpy() for table, several in zip(tables, texts, strict=True)]

    @property
    def settings(self) -> dict[str, Any]:
        """The [decode] section of the run file."""
        found: dict[str, Any] = self.options.get("decode", {})
        return found

    def generation_config(self) -> GenerationConfig:
        known = {field.name for field in fields(GenerationConfig)}
        return GenerationConfig(**{name: value for name, value in self.settings.items() if name in known})

    def limit(self, length: int) -> int:
        """Tokens that a source of so many may become: the start token takes one of the model's places."""
        wanted = self.settings.get("max_length") or 2 * length + 16
        return max(1, min(int(wanted), self.size - 1))

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[GeneratedText]) -> Prediction:
        found: list[Prediction] = [
            {"target": join_texts([self.text(one.tokens) for one in several]), "score": _mean_score(several)}
            for several in combine_nbest([written.texts for written in outputs], self.generation_config().nbest)
        ]
        prediction = dict(found[0])
        if len(found) > 1:
            prediction["nbest"] = found
        if outputs[0].seen is not None and "source" in values:
            prediction["alignment"] = self.align_words(source_text(values["source"]), outputs)
        if outputs[0].count:
            prediction["gold"] = {"nats": outputs[0].nats, "tokens": outputs[0].count}
        return prediction

    def text(self, tokens: Sequence[int]) -> str:
        ended = tokens[:-1] if tokens and tokens[-1] in self.options["stop"] else tokens
        text = self.tokenizer.target.decode(ended).strip()
        # WordPiece knows words, not spaces: it puts one between any two, Chinese characters too.
        return APART.sub("", text) if isinstance(self.tokenizer.target.inner.decoder, WordPiece) else text

    def align_words(self, source: str, said: Sequence[GeneratedText]) -> list[Any]:
        """Which words of the source the words of the best texts of its windows, joined, were written from."""
        found, texts = [], []
        for part, written in zip(self.split_source(source, self.tokenizer.encode(source)), said, strict=True):
            assert written.seen is not None
            tokens, seen = written.texts[0].tokens, written.seen[:, : len(part)]
            read = [(-1, -1) if special else place for place, special in zip(part.offsets, part.special, strict=True)]
            beginnings = [self.text(tokens[:n]) for n in range(len(tokens) + 1)]
            texts.append(beginnings[-1])
            first = len(join_texts(texts)) - len(texts[-1])
            mine = link_words(source, read, texts[-1], token_spans(beginnings), seen)
            found += [{**link, "target": [first + place for place in link["target"]]} for link in mine]
        return found

    def scorer(self, replicates: int = 1000) -> Scorer:
        options = self.options
        return TranslationScorer(options.get("language", ""), options.get("tokenize") or None, replicates)


class TranslationScorer(Scorer):
    """BLEU and chrF of what was written, and the loss on the gold text."""

    main = "bleu"

    def __init__(self, language: str, tokenize: str | None, replicates: int) -> None:
        self.texts = BleuMetric(language, tokenize=tokenize, replicates=replicates)
        self.gold = PerplexityMetric(replicates)

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        wanted = references(values)
        self.texts.add([wanted], [prediction["target"]], [index])
        if "gold" in prediction:
            self.gold.add([prediction["gold"]["nats"]], [prediction["gold"]["tokens"]], index=[index])
        return prediction["target"] in wanted

    def result(self) -> dict[str, Score]:
        return {**self.texts.result(), **self.gold.result()}


def source_text(text: str | Sequence[str]) -> str:
    """A source may come as a list of sentences."""
    return text if isinstance(text, str) else " ".join(text)


def first_targets(rows: Callable[[], Iterator[Values]]) -> str:
    """The targets of the first rows."""
    return "".join(source_text(values["target"]) for values in islice(rows(), 100))


def script_of(text: str) -> str:
    """zh, ja, ko or th where a text is written so, without spaces that BLEU could split words at; else ""."""
    count = max(sum(not sign.isspace() for sign in text), 1)
    for language, signs in (
        ("ja", "\u3040-\u30ff"),
        ("ko", "\uac00-\ud7a3"),
        ("th", "\u0e00-\u0e7f"),
        ("zh", "\u4e00-\u9fff"),
    ):
        if len(re.findall(f"[{signs}]", text)) > count / (5 if language == "ja" else 2):
            return language
    return ""


def references(values: Values) -> list[str]:
    """The gold texts of a row; the first is the one that is learnt."""
    return [values["target"]] if isinstance(values["target"], str) else list(values["target"])


def join_texts(texts: Sequence[str]) -> str:
    """Translations of the parts of a source; no space behind a Chinese or Japanese sentence."""
    found = ""
    for text in texts:
        found += text if not (found and text) or found[-1] in "。！？；…，" else f" {text}"
    return found


def combine_nbest(windows: Sequence[Sequence[Hypothesis]], most: int) -> list[list[Hypothesis]]:
    """One text of each window: the combinations of the largest sums of scores, best first."""
    found: list[list[Hypothesis]] = [[]]
    for several in windows:
        longer = [[*texts, one] for texts in found for one in several]
        found = sorted(longer, key=lambda texts: -sum(one.score for one in texts))[:most]
    return found


def _ends(text: str, whole: Encoding) -> list[int]:
    """The tokens of the text, counted without special ones, before which a sentence ends."""
    starts = [offset[0] for offset, special in zip(whole.offsets, whole.special, strict=True) if not special]
    ends = []
    seen = stop = 0  # characters looked at, and of these the ones up to the last that is no space
    for i, start in enumerate(starts):
        for place in range(seen, start):
            stop = stop if text[place] == " " else place + 1
        seen = max(seen, start)
        if text.endswith(ENDS, 0, stop):
            ends.append(i)
    return ends


def _mean_score(texts: Sequence[Hypothesis]) -> float:
    return round(float(np.mean([one.score for one in texts])), 6)
