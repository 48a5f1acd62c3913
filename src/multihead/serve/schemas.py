"""The forms of requests. Unknown fields are errors: a misspelled `heads_off` would change nothing, silently."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class RequestForm(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class PredictForm(RequestForm):
    """One input, or several: the same objects as `multihead predict` takes."""

    input: Any = Field(default=None, description="A text, or an object with the task's columns.")
    inputs: list[Any] | None = Field(default=None, description="Several of them; each is answered in its place.")
    interactive: bool = Field(default=False, description="A person waits: answer it before batch work.")

    @model_validator(mode="after")
    def check_either(self) -> PredictForm:
        if (self.input is None) == (self.inputs is None):
            raise ValueError("give either input or inputs")
        return self
