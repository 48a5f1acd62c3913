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


class HeadsForm(RequestForm):
    """Which weights are wanted of one input."""

    input: Any = Field(description="A text, or an object with the task's columns.")
    heads: list[str] = Field(default=[], max_length=4096, description="Addresses such as encoder.2.self.3.")
    rows: list[int] | None = Field(default=None, max_length=65_536, description="Query tokens; null: all of them.")
    window: int = Field(default=0, ge=0, description="Of an input longer than the model: which part of it.")
    side: int = Field(default=0, ge=0, le=1, description="Of two texts that are read apart: which of them.")
    statistics: bool = Field(default=True, description="What every head did, in numbers.")


class WhatIfForm(RequestForm):
    """What to switch off."""

    input: Any = Field(description="A text, or an object with the task's columns.")
    heads_off: list[str] = Field(default=[], max_length=65_536, description="Heads whose output becomes 0.")
    tokens_off: list[int] = Field(default=[], max_length=65_536, description="Tokens that are read as the mask token.")


class PictureForm(RequestForm):
    """All heads of one input, as small maps."""

    input: Any = Field(description="A text, or an object with the task's columns.")
    heads: list[str] = Field(default=[], max_length=4096, description="Only these; none given: all.")
    window: int = Field(default=0, ge=0, description="Of an input longer than the model: which part of it.")
    side: int = Field(default=0, ge=0, le=1, description="Of two texts that are read apart: which of them.")
    bands: int = Field(default=32, ge=1, le=128, description="Rows and columns of a map, at most.")
    rollout: bool = Field(default=False, description="Rollout and alignment, too.")


class GenerateForm(RequestForm):
    """A text to go on with, token by token."""

    input: Any = Field(description="A text, {prompt: …} or {messages: [{role, content}, …]}.")
    max_tokens: int = Field(default=64, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    alternatives: int = Field(default=5, ge=0, le=20, description="Likeliest tokens that are told at each place.")


class EvaluateForm(RequestForm):
    heads_off: list[str] = Field(default=[], max_length=65_536, description="Heads whose output becomes 0.")


class SaveForm(RequestForm):
    """A smaller model without some heads."""

    heads_off: list[str] = Field(min_length=1, max_length=65_536, description="Heads that are cut out.")
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="Of the new directory.")


class RerankForm(RequestForm):
    """A question and texts that may answer it."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)
    model: str
    query: str
    documents: list[str | dict[str, Any]]
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool = False


class OpenAIForm(BaseModel):
    """Fields that are not known are ignored, as OpenAI's clients send many; those that would change an answer, and are
    not done here, are errors."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)
    model: str


class EmbeddingsForm(OpenAIForm):
    input: str | list[str]
    encoding_format: str = Field(default="float", pattern="^(float|base64)$")
    dimensions: int | None = None


class GenerationForm(OpenAIForm):
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    n: int | None = Field(default=None, ge=1, le=16)
    stop: str | list[str] | None = None
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, Any] | None = None
    logprobs: bool | int | None = None

    @model_validator(mode="after")
    def check_supported(self) -> GenerationForm:
        for name in ("presence_penalty", "frequency_penalty", "logit_bias", "logprobs"):
            if getattr(self, name):
                raise ValueError(f"{name} is not done here; leave it out")
        if isinstance(self.stop, list) and len(self.stop) > 16:
            raise ValueError("stop takes 16 texts at most")
        return self


class ChatForm(GenerationForm):
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=4096)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    tools: list[Any] | None = None
    response_format: dict[str, Any] | None = None

    @model_validator(mode="after")
    def check_chat(self) -> ChatForm:
        if self.tools:
            raise ValueError("tools is not done here; leave it out")
        if self.response_format and self.response_format.get("type") != "text":
            raise ValueError("response_format is not done here; leave it out")
        return self


class CompletionForm(GenerationForm):
    prompt: str | list[str]
    echo: bool = False
    suffix: str | None = None
    best_of: int | None = None

    @model_validator(mode="after")
    def check_completion(self) -> CompletionForm:
        if self.echo or self.suffix or (self.best_of or 1) > 1:
            raise ValueError("echo, suffix and best_of are not done here; leave them out")
        return self


class TeiForm(BaseModel):
    """As text-embeddings-inference takes it; models are not named there: the first that can do it answers."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)
    truncate: bool = False  # never needed: long texts are read in windows


class TeiEmbedForm(TeiForm):
    inputs: str | list[str]
    normalize: bool = True


class TeiRerankForm(TeiForm):
    query: str
    texts: list[str]
    return_text: bool = False
    raw_scores: bool = False


class TeiPredictForm(TeiForm):
    inputs: str | list[str | list[str]]
    raw_scores: bool = False


class KServeTensor(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)
    name: str
    shape: list[int]
    datatype: str
    data: list[Any]


class KServeForm(BaseModel):
    """The v2 protocol: a tensor of texts for each of the task's columns."""

    model_config = ConfigDict(extra="ignore", strict=True)
    id: str | None = Field(default=None, max_length=200)
    inputs: list[KServeTensor] = Field(min_length=1, max_length=16)
