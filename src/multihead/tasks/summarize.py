"""summarize: sequence-to-sequence summarization, scored by ROUGE against lead baselines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from multihead.metrics import PerplexityMetric, RougeMetric, Score
from multihead.tasks.spec import SPECS
from multihead.tasks.task import Prediction, Scorer, Values, Window, slice_encodings
from multihead.tasks.translate import Translate, first_targets, references, source_text
from multihead.text.tokenizer import Encoding

if TYPE_CHECKING:
    from multihead.tasks.sections import TaskSection

SENTENCE = re.compile(r".*?(?:[.!?](?=\s|$)|[。！？]|\n|$)", re.DOTALL)


class Summarize(Translate):
    """Summarizer. options as in translate, except by and stem: the units that ROUGE counts.

    A text longer than the model is truncated on the right, since news and papers start with what they are about;
    input_info reports how many tokens were truncated.
    """

    spec = SPECS["summarize"]

    @classmethod
    def resolve_options(cls, section: TaskSection, rows: Callable[[], Iterator[Values]]) -> dict[str, Any]:
        options = super().resolve_options(section, rows)
        if options["by"] == "auto":
            options["by"] = counted_of(first_targets(rows))
        if options["stem"] and options["by"] == "characters":
            raise ValueError("summarize.stem needs words, but ROUGE counts characters here; remove it")
        return options

    def encode_source(self, text: str) -> list[Window]:
        encoding = self.tokenizer.encode(text)
        (part,) = self.split_source(text, encoding)
        lost = len(encoding) - len(part)
        return [{"tokens": np.array(part.ids, dtype=np.int32), "cut": np.array(lost, dtype=np.int32)}]

    def split_source(self, text: str, encoding: Encoding) -> list[Encoding]:
        return slice_encodings(
            encoding, [{0: (0, self.size - sum(encoding.special))}]
        )  # special tokens at the end stay

    def limit(self, length: int) -> int:
        return max(1, min(int(self.settings.get("max_length") or 128), self.size - 1))

    def scorer(self, replicates: int = 1000) -> Scorer:
        return SummaryScorer(self.options.get("by", "words"), bool(self.options.get("stem")), replicates)


class SummaryScorer(Scorer):
    """ROUGE of the generated summary and of two lead baselines: the text's first sentence, and its first words up to
    the length of the reference (an oracle length that the model does not have)."""

    main = "rougeL"

    def __init__(self, by: Any, stem: bool, replicates: int) -> None:
        self.texts, self.lead, self.short = (RougeMetric(by, stem=stem, replicates=replicates) for _ in range(3))
        self.gold = PerplexityMetric(replicates)

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        gold, source = references(values), values["source"]
        first = source[0] if not isinstance(source, str) and source else first_sentence(source_text(source))
        for metric, text in (
            (self.texts, prediction["target"]),
            (self.lead, first),
            (self.short, " ".join(self.texts.words(first)[: len(self.texts.words(gold[0]))])),
        ):
            metric.add([gold], [text], [index])
        if "gold" in prediction:
            self.gold.add([prediction["gold"]["nats"]], [prediction["gold"]["tokens"]], index=[index])
        return prediction["target"] in gold

    def result(self) -> dict[str, Score]:
        leads = {"lead": self.lead, "lead_short": self.short}
        beside = {f"{name}.{key}": score for name, metric in leads.items() for key, score in metric.result().items()}
        return {**self.texts.result(), **beside, **self.gold.result()}


def counted_of(text: str) -> str:
    """Return the units that ROUGE counts: words of a-z, or characters where it would find no words (Chinese, Thai,
    Russian)."""
    letters = [character for character in text if character.isalpha()]
    return "words" if 2 * sum(character.isascii() for character in letters) >= len(letters) else "characters"


def first_sentence(text: str) -> str:
    """Return the first sentence with content."""
    return next((sentence for m in SENTENCE.finditer(text.strip()) if len(sentence := m.group().strip()) > 3), text)
