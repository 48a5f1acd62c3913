"""summarize: translate's ways from a long text to a short one, scored by ROUGE beside the text's own beginning."""

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
    """options as in translate, but by and stem: what ROUGE counts.

    A text longer than the model is read from its beginning, where news and papers say what they are about; the
    input_info says how many tokens were left out.
    """

    spec = SPECS["summarize"]

    @classmethod
    def resolve_options(cls, section: TaskSection, rows: Callable[[], Iterator[Values]]) -> dict[str, Any]:
        options = super().resolve_options(section, rows)
        if options["by"] == "auto":
            options["by"] = counted_of(first_targets(rows))
        if options["stem"] and options["by"] == "characters":
            raise ValueError("summarize.stem cuts English endings, and ROUGE counts characters here; leave it out")
        return options

    def encode_source(self, text: str) -> list[Window]:
        whole = self.tokenizer.encode(text)
        (part,) = self.split_source(text, whole)
        lost = len(whole) - len(part)
        return [{"tokens": np.array(part.ids, dtype=np.int32), "cut": np.array(lost, dtype=np.int32)}]

    def split_source(self, text: str, whole: Encoding) -> list[Encoding]:
        return slice_encodings(whole, [{0: (0, self.size - sum(whole.special))}])  # what ends a text still ends it

    def limit(self, length: int) -> int:
        return max(1, min(int(self.settings.get("max_length") or 128), self.size - 1))

    def scorer(self, replicates: int = 1000) -> Scorer:
        return SummaryScorer(self.options.get("by", "words"), bool(self.options.get("stem")), replicates)


class SummaryScorer(Scorer):
    """ROUGE of what was written, and of two leads: the text's first sentence, and as many words of it as the gold has
    (the second is told how long to be, which the model is not)."""

    main = "rougeL"

    def __init__(self, by: Any, stem: bool, replicates: int) -> None:
        self.texts, self.lead, self.short = (RougeMetric(by, stem=stem, replicates=replicates) for _ in range(3))
        self.gold = PerplexityMetric(replicates)

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        wanted, source = references(values), values["source"]
        first = source[0] if not isinstance(source, str) and source else first_sentence(source_text(source))
        for metric, text in (
            (self.texts, prediction["target"]),
            (self.lead, first),
            (self.short, " ".join(self.texts.words(first)[: len(self.texts.words(wanted[0]))])),
        ):
            metric.add([wanted], [text], [index])
        if "gold" in prediction:
            self.gold.add([prediction["gold"]["nats"]], [prediction["gold"]["tokens"]], index=[index])
        return prediction["target"] in wanted

    def result(self) -> dict[str, Score]:
        leads = {"lead": self.lead, "lead_short": self.short}
        beside = {f"{name}.{key}": score for name, metric in leads.items() for key, score in metric.result().items()}
        return {**self.texts.result(), **beside, **self.gold.result()}


def counted_of(text: str) -> str:
    """What ROUGE counts: words of a-z, which it finds none of in Chinese, Thai or Russian targets: characters there."""
    letters = [sign for sign in text if sign.isalpha()]
    return "words" if 2 * sum(sign.isascii() for sign in letters) >= len(letters) else "characters"


def first_sentence(text: str) -> str:
    """The first one that says something."""
    return next((found for m in SENTENCE.finditer(text.strip()) if len(found := m.group().strip()) > 3), text)
