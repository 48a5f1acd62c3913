"""translate: sequence-to-sequence translation by an encoder-decoder."""

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
ENDS = tuple(".!?;\n。！？；…")  # sentence ends where a long source may be split


@dataclass(frozen=True)
class GeneratedText:
    """Generated text of one window, and the loss on the reference (nats, number of tokens)."""

    texts: list[Hypothesis]
    nats: float = 0.0
    count: int = 0
    seen: NDArray[Any] | None = None  # [target tokens, source tokens]: cross-attention of the best hypothesis


class Translate(Task):
    """Translator.

    options: start, stop: the target's first token, and the tokens that end it; first: forced initial tokens;
    decode: generation settings; language, tokenize: how BLEU splits words.

    A source longer than the model is split at sentence ends, and its translations are joined, n-best lists by the
    combinations with the best mean score; such a pair is not used for training.
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
        windows = self.encode_source(source_text(values["source"]))
        if "target" in values and len(windows) == 1:
            target = self.target(references(values)[0])
            if len(target) - 1 <= self.size:
                windows[0]["target"] = np.array(target, dtype=np.int32)
        return windows

    def encode_source(self, text: str) -> list[Window]:
        encoding = self.tokenizer.encode(text)
        return [{"tokens": np.array(part.ids, dtype=np.int32)} for part in self.split_source(text, encoding)]

    def split_source(self, text: str, encoding: Encoding) -> list[Encoding]:
        """Split the source into as many windows as needed, at sentence ends where possible."""
        inside = len(encoding) - sum(encoding.special)
        room = self.size - sum(encoding.special)
        spans, start = [], 0
        ends = _ends(text, encoding) if inside > room else []
        while inside - start > room:
            last = bisect_right(ends, start + room)
            cut = ends[last - 1] if last and ends[last - 1] > start else start + room
            spans.append((start, cut))
            start = cut
        spans.append((start, inside))
        return slice_encodings(encoding, ({0: span} for span in spans))

    def target(self, text: str) -> list[int]:
        """Return start, text, stop. The tokenizer's own special tokens between them (BART's <s>) stay."""
        ids = self.tokenizer.target.encode(text).ids
        ids = ids[1:] if ids[:1] == [self.options["start"]] else ids
        ids = ids[:-1] if ids and ids[-1] in self.options["stop"] else ids
        return [self.options["start"], *ids, self.options["stop"][0]]

    def skip_reason(self, windows: Sequence[Window]) -> str:
        if len(windows) > 1:
            return f"the source is longer than the model's {self.size} tokens"
        return "" if "target" in windows[0] else f"the target is longer than the model's {self.size} tokens"

    def collate(self, windows: Sequence[Window]) -> Batch:
        """Collate tokens and keep of the source; target and target_keep, if any row has gold (rows without: no
        token)."""
        batch = super().collate([{"tokens": window["tokens"]} for window in windows])
        if any("target" in window for window in windows):
            empty = np.zeros(0, dtype=np.int32)
            targets = super().collate([{"tokens": window.get("target", empty)} for window in windows])
            batch |= {"target": targets["tokens"], "target_keep": targets["keep"]}
        return batch

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        hidden, labels = self.run_decoder(model, batch, self.run_encoder(model, batch))
        total = vocabulary_loss(cast(LMReadout, model.readout), hidden, labels, self.smoothing, self.rdrop)
        return total, (labels != IGNORE).sum()

    def run_encoder(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Encode the source: memory [B, S, D], and its padding mask (None: no padding)."""
        keep = None if bool(batch["keep"].all()) else batch["keep"]
        return cast(EncoderDecoder, model.body).encoder(batch["tokens"], keep), keep

    def run_decoder(
        self, model: TaskModel, batch: Batch, memory: tuple[Tensor, Tensor | None]
    ) -> tuple[Tensor, Tensor]:
        """Return hidden states [B, T, D] before each token of the gold target, and these tokens [B, T].

        Padding is on the right and attention is causal, so the decoder needs no padding mask.
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
        alignments = (
            self.align_outputs(model, texts, memory, keep) if self.settings.get("alignment") else [None] * len(texts)
        )
        if "target" not in batch:
            return [GeneratedText(several, seen=table) for several, table in zip(texts, alignments, strict=True)]
        hidden, labels = self.run_decoder(model, batch, (memory, keep))
        nats = vocabulary_nats(cast(LMReadout, model.readout), hidden, labels)
        counted = zip(texts, nats.sum(1).tolist(), (labels != IGNORE).sum(1).tolist(), alignments, strict=True)
        return [GeneratedText(*fields) for fields in counted]

    def align_outputs(
        self, model: TaskModel, texts: Sequence[Sequence[Hypothesis]], memory: Tensor, keep: Tensor | None
    ) -> list[NDArray[Any]]:
        """Return the cross-attention of the best hypothesis of each row, token by token."""
        start = self.options["start"]
        batch = super().collate([{"tokens": np.array([start, *several[0].tokens])} for several in texts])
        tables = align_tokens(model, batch["tokens"], memory, keep)
        return [table[: len(several[0].tokens)].cpu().numpy() for table, several in zip(tables, texts, strict=True)]

    @property
    def settings(self) -> dict[str, Any]:
        """The [decode] section of the run file."""
        decode: dict[str, Any] = self.options.get("decode", {})
        return decode

    def generation_config(self) -> GenerationConfig:
        known = {field.name for field in fields(GenerationConfig)}
        return GenerationConfig(**{name: value for name, value in self.settings.items() if name in known})

    def limit(self, length: int) -> int:
        """Return the maximum target length for a source of `length` tokens; the start token takes one position."""
        requested = self.settings.get("max_length") or 2 * length + 16
        return max(1, min(int(requested), self.size - 1))

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[GeneratedText]) -> Prediction:
        candidates: list[Prediction] = [
            {
                "target": join_texts([self.text(hypothesis.tokens) for hypothesis in several]),
                "score": _mean_score(several),
            }
            for several in combine_nbest([written.texts for written in outputs], self.generation_config().nbest)
        ]
        prediction = dict(candidates[0])
        if len(candidates) > 1:
            prediction["nbest"] = candidates
        if outputs[0].seen is not None and "source" in values:
            prediction["alignment"] = self.align_words(source_text(values["source"]), outputs)
        if outputs[0].count:
            prediction["gold"] = {"nats": outputs[0].nats, "tokens": outputs[0].count}
        return prediction

    def text(self, tokens: Sequence[int]) -> str:
        ended = tokens[:-1] if tokens and tokens[-1] in self.options["stop"] else tokens
        text = self.tokenizer.target.decode(ended).strip()
        # WordPiece does not store spaces: decoding puts one between any two words, also between Chinese characters.
        return APART.sub("", text) if isinstance(self.tokenizer.target.inner.decoder, WordPiece) else text

    def align_words(self, source: str, outputs: Sequence[GeneratedText]) -> list[Any]:
        """Align the words of the source with the words of its windows' best hypotheses, joined."""
        links, texts = [], []
        for part, written in zip(self.split_source(source, self.tokenizer.encode(source)), outputs, strict=True):
            assert written.seen is not None
            tokens, alignment = written.texts[0].tokens, written.seen[:, : len(part)]
            read = [(-1, -1) if special else place for place, special in zip(part.offsets, part.special, strict=True)]
            beginnings = [self.text(tokens[:n]) for n in range(len(tokens) + 1)]
            texts.append(beginnings[-1])
            first = len(join_texts(texts)) - len(texts[-1])
            aligned = link_words(source, read, texts[-1], token_spans(beginnings), alignment)
            links += [{**link, "target": [first + place for place in link["target"]]} for link in aligned]
        return links

    def scorer(self, replicates: int = 1000) -> Scorer:
        options = self.options
        return TranslationScorer(options.get("language", ""), options.get("tokenize") or None, replicates)


class TranslationScorer(Scorer):
    """BLEU and chrF of the generated text, and the loss on the reference."""

    main = "bleu"

    def __init__(self, language: str, tokenize: str | None, replicates: int) -> None:
        self.texts = BleuMetric(language, tokenize=tokenize, replicates=replicates)
        self.gold = PerplexityMetric(replicates)

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        gold = references(values)
        self.texts.add([gold], [prediction["target"]], [index])
        if "gold" in prediction:
            self.gold.add([prediction["gold"]["nats"]], [prediction["gold"]["tokens"]], index=[index])
        return prediction["target"] in gold

    def result(self) -> dict[str, Score]:
        return {**self.texts.result(), **self.gold.result()}


def source_text(text: str | Sequence[str]) -> str:
    """Return the source as one text; it may come as a list of sentences."""
    return text if isinstance(text, str) else " ".join(text)


def first_targets(rows: Callable[[], Iterator[Values]]) -> str:
    """Return the targets of the first rows, joined."""
    return "".join(source_text(values["target"]) for values in islice(rows(), 100))


def script_of(text: str) -> str:
    """Return zh, ja, ko or th for a script without spaces to split words at for BLEU; else ""."""
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
    """Return the references of a row; the first is the training target."""
    return [values["target"]] if isinstance(values["target"], str) else list(values["target"])


def join_texts(texts: Sequence[str]) -> str:
    """Join translations of the parts of a source; no space after a Chinese or Japanese sentence."""
    joined = ""
    for text in texts:
        joined += text if not (joined and text) or joined[-1] in "。！？；…，" else f" {text}"
    return joined


def combine_nbest(windows: Sequence[Sequence[Hypothesis]], most: int) -> list[list[Hypothesis]]:
    """Choose one hypothesis per window: the combinations with the largest sums of scores, best first."""
    combinations: list[list[Hypothesis]] = [[]]
    for several in windows:
        longer = [[*texts, hypothesis] for texts in combinations for hypothesis in several]
        combinations = sorted(longer, key=lambda texts: -sum(hypothesis.score for hypothesis in texts))[:most]
    return combinations


def _ends(text: str, encoding: Encoding) -> list[int]:
    """Return the token indices, without special tokens, before which a sentence ends."""
    starts = [offset[0] for offset, special in zip(encoding.offsets, encoding.special, strict=True) if not special]
    ends = []
    scanned = stop = 0  # characters scanned, and the end of the last non-space character
    for i, start in enumerate(starts):
        for place in range(scanned, start):
            stop = stop if text[place] == " " else place + 1
        scanned = max(scanned, start)
        if text.endswith(ENDS, 0, stop):
            ends.append(i)
    return ends


def _mean_score(texts: Sequence[Hypothesis]) -> float:
    return round(float(np.mean([hypothesis.score for hypothesis in texts])), 6)
