"""The section of tasks that generate text."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from multihead.tasks.sections import Section, key

Length = Annotated[int, Field(ge=1, le=10**6)]


class DecodeSection(Section):
    """Decoding settings. generation/config.py has the same types and limits, for settings that come with a model; a
    test compares them."""

    beam: Annotated[int, Field(ge=1, le=100)] = key(5, "beam size; 1 = greedy decoding")
    nbest: Annotated[int, Field(ge=1, le=1000)] = key(1, "texts per input; above 1, predictions have nbest")
    length_penalty: Annotated[float, Field(ge=-50, le=50)] = key(
        1.0, "score = log p / length ** this; 0 prefers short texts, below 0 even more"
    )
    max_length: Length | None = key(None, "maximum new tokens; unset: depends on the task", 128)
    min_length: Annotated[int, Field(ge=0, le=10**6)] = key(0, "minimum tokens")
    no_repeat_ngram: Annotated[int, Field(ge=0, le=10**6)] = key(0, "no n-gram of this size occurs twice; 0 = off")
    repetition_penalty: Annotated[float, Field(gt=0, le=1000)] = key(
        1.0, "above 1: generated tokens become less likely"
    )
    sample: bool = key(False, "sample tokens; needs beam = 1")
    temperature: Annotated[float, Field(gt=0, le=1000)] = key(
        1.0, "for sample: below 1 less varied, above 1 more varied"
    )
    top_k: Annotated[int, Field(ge=0, le=10**9)] = key(0, "for sample: from the k most likely tokens; 0 = all")
    top_p: Annotated[float, Field(gt=0, le=1)] = key(1.0, "for sample: from the tokens with this probability mass")
    min_p: Annotated[float, Field(ge=0, le=1)] = key(0.0, "for sample: minimum, relative to the most likely token")
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = key(0, "for sample: the random seed")
    alignment: bool = key(False, "add word alignments with the source")

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.sample and self.beam > 1:
            raise ValueError(f"sample is true; expected beam = 1, not {self.beam}")
        if not self.sample and self.nbest > self.beam:
            raise ValueError(f"nbest is {self.nbest}; expected at most beam = {self.beam}, or sample = true")
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length is {self.min_length}; expected at most max_length = {self.max_length}")
        return self
