"""Sections of the run file that configure one task each, and the base class of all sections.

A leaf without torch: the configuration (`config/`), the readers (`data/`) and the command line import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

# Every number has a range: values beyond it are mistakes that would overflow or exhaust memory.
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Whole = Annotated[int, Field(ge=0, le=1_000_000_000)]
Width = Annotated[int, Field(ge=1, le=65_536)]  # of a layer
Layers = Annotated[int, Field(ge=1, le=1_000)]
Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(ge=1e-6, le=1e6)]
Names = Annotated[tuple[str, ...], Strict(False)]  # TOML has no tuples
Name = Annotated[str, Field(min_length=1)]


def key(default: Any, note: str, example: Any = None, *, shown: bool = False) -> Any:
    """Declare a key with the comment that `template` writes after it; `example` is shown where the default is unset.

    shown: the user should review it, so the template writes it uncommented.
    """
    return Field(default, description=note, examples=[example], json_schema_extra={"shown": True} if shown else None)


class Section(BaseModel):
    """A table of the run file. Validator messages start with the key they are about ("it": the validated one)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)


class TaskSection(Section):
    """Options of one task. A task without options uses this class itself."""

    @property
    def label_optional(self) -> bool:
        """Whether the task can be trained on examples without a label."""
        return False

    @property
    def numeric_labels(self) -> bool | None:
        """Whether labels are numbers on a scale, not classes; None: decided by the data."""
        return None

    @property
    def whole_documents(self) -> bool:
        """Whether a split keeps the rows of one document together."""
        return False

    def check(self) -> None:
        """Raise ValueError for options that conflict."""

    def conflicts(self) -> Mapping[str, str]:
        """Return keys of other sections that these options do not support, mapped to the reason."""
        return {}

    def reader_options(self) -> dict[str, Any]:
        """Return the options that decide how files are read."""
        return {}


class NerSection(TaskSection):
    crf: bool = key(False, "CRF: learn tag transitions")
    context: Whole = key(0, "words of the document that are shown on either side")
    case: bool = key(False, "encode letter case for an uncased model")
    scheme: Literal["auto", "IOB1", "BIO", "BILOU", "BMES", "plain"] = key(
        "auto", "of the tags: auto, IOB1, BIO, BILOU, BMES or plain"
    )

    @property
    def whole_documents(self) -> bool:
        return self.context > 0

    def conflicts(self) -> Mapping[str, str]:
        if not self.crf:
            return {}
        return {"data.teacher": "a crf", "train.smoothing": "ner.crf", "train.rdrop": "ner.crf"}

    def reader_options(self) -> dict[str, Any]:
        return {} if self.scheme == "auto" else {"scheme": self.scheme}


Pool = Literal["auto", "first", "mean"]


class ClassifySection(TaskSection):
    multi_label: bool = key(False, "a text may have several labels, or none")
    class_weights: Literal["none", "balanced"] | dict[str, Positive] = key(
        "none", "none, balanced, or a table such as {rare = 5.0}"
    )
    pool: Pool = key("auto", "first (token) or mean; auto: as it was trained to pool, its family's way, else mean")

    def check(self) -> None:
        if self.multi_label and self.class_weights != "none":
            raise ValueError(
                "classify.class_weights needs one label per text, multi_label allows several; remove one of them"
            )


class MatchSection(TaskSection):
    kind: Literal["cross", "bi"] = key("cross", "cross (reads both texts together) or bi (a vector each)", shown=True)
    target: Literal["classes", "score"] = key(
        "classes", "the label is one of some classes, or a score (a number)", shown=True
    )
    positive: Name | None = key(None, "the label of matching texts; unset: 1, yes, same …", "same")
    temperature: Annotated[float, Field(ge=1e-4, le=1)] = key(0.05, "bi: lower = the nearest wrong text counts more")
    pool: Pool = key("auto", "first (token) or mean; auto: its family's way (bi: as it was trained), else mean")
    symmetric: bool = key(False, "cross: average both orders of the texts")

    @property
    def label_optional(self) -> bool:
        return self.kind == "bi" and self.target == "classes"  # without labels, all pairs match

    @property
    def numeric_labels(self) -> bool:
        return self.target == "score"

    def check(self) -> None:
        usual = type(self).model_fields["temperature"].default
        if self.kind == "cross" and self.temperature != usual:
            raise ValueError('match.temperature is for kind = "bi"; remove it')

    def conflicts(self) -> Mapping[str, str]:
        reasons = {"data.teacher": "vectors (match.kind = bi)"} if self.kind == "bi" else {}
        if self.target == "score":
            return reasons | dict.fromkeys(("train.smoothing", "train.rdrop"), "match.target = score")
        if self.kind == "bi":
            return reasons | dict.fromkeys(("train.smoothing", "train.rdrop"), "match.kind = bi")
        return reasons


class AnswerSection(TaskSection):
    no_answer: bool = key(False, "the text may hold no answer")
    max_answer_tokens: Count = key(30, "the longest answer")


class TranslateSection(TaskSection):
    language: str = key(
        "", "of the target (de, zh, ja …): decides how BLEU splits words; unset: by its script", "de", shown=True
    )
    tokenize: str = key("", "how BLEU splits words, in sacreBLEU's names; none = at spaces; unset: by language", "13a")


class SummarizeSection(TaskSection):
    by: Literal["auto", "words", "characters"] = key(
        "auto", "what ROUGE counts: words of a-z, or characters (Chinese); auto: by the script", shown=True
    )
    stem: bool = key(False, "ROUGE stems English words first")


class GenerateSection(TaskSection):
    system: str = key("", "system prompt of a chat model", "You are a kind teacher.")
    turns: Literal["assistant", "all"] = key("assistant", "turns of conversations to train on: assistant or all")


class MaskSection(TaskSection):
    share: Annotated[float, Field(gt=0, lt=1)] = key(0.15, "fraction of words to mask")
    whole_words: bool = key(True, "mask all subwords of a word together")


class DenoiseSection(TaskSection):
    share: Annotated[float, Field(gt=0, lt=1)] = key(0.3, "fraction of tokens to mask")
    span: Annotated[float, Field(ge=1, le=10_000)] = key(3.0, "mean number of tokens per mask")
