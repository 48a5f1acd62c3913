"""The section of tasks that generate text."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from multihead.tasks.sections import Section, key

Length = Annotated[int, Field(ge=1, le=10**6)]


class DecodeSection(Section):
    """generation/config.py has the same types and limits, for settings that come with a model; a test compares them."""

    beam: Annotated[int, Field(ge=1, le=100)] = key(
        5, "candidates that are kept; 1 = the likeliest token at every step"
    )
    nbest: Annotated[int, Field(ge=1, le=1000)] = key(1, "texts per input; above 1 they stand in nbest")
    length_penalty: Annotated[float, Field(ge=-50, le=50)] = key(
        1.0, "score = log p / length ** this; 0 likes short texts, below 0 even more"
    )
    max_length: Length | None = key(None, "new tokens at most; unset: as the task needs", 128)
    min_length: Annotated[int, Field(ge=0, le=10**6)] = key(0, "tokens at least")
    no_repeat_ngram: Annotated[int, Field(ge=0, le=10**6)] = key(0, "no run of so many tokens comes twice; 0 = off")
    repetition_penalty: Annotated[float, Field(gt=0, le=1000)] = key(1.0, "above 1: what was said becomes less likely")
    sample: bool = key(False, "draw tokens instead of taking the likeliest; wants beam = 1")
    temperature: Annotated[float, Field(gt=0, le=1000)] = key(1.0, "for sample: below 1 is surer, above 1 more varied")
    top_k: Annotated[int, Field(ge=0, le=10**9)] = key(0, "for sample: among so many; 0 = all")
    top_p: Annotated[float, Field(gt=0, le=1)] = key(1.0, "for sample: among the likeliest that hold this share")
    min_p: Annotated[float, Field(ge=0, le=1)] = key(0.0, "for sample: at least this share of the likeliest one")
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = key(0, "for sample: another one, other draws")
    alignment: bool = key(False, "also tell which words of the source each word was written from")

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.sample and self.beam > 1:
            raise ValueError(f"sample is true; beam = 1 is wanted then, not {self.beam}")
        if not self.sample and self.nbest > self.beam:
            raise ValueError(f"nbest is {self.nbest}; at most beam = {self.beam} is wanted, or sample = true")
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length is {self.min_length}; at most max_length = {self.max_length} is wanted")
        return self
