"""The sections of a run file: keys, defaults, limits. The key names are a public interface.

`data` paths are always absolute here, whatever they were in the file, so that a copy of the file elsewhere stays valid.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

from multihead.tasks.sections import Count, Layers, Name, Names, Positive, Section, Share, Whole, Width, key

DISTILLATION_KEYS = {"data": ("teacher", "distill_weight", "unlabelled")}  # section -> keys for tasks with soft labels
HOME = "~/"  # only this: "~name" is a file


def expand_home(path: str) -> str:
    """Expand ~/ at the start of a path to the user's home directory."""
    check_name(path)
    return os.path.expanduser(path) if path.startswith(HOME) else path


def check_name(names: Any) -> Any:
    """Raise for an invalid path, alone or in a tuple or table; else return them unchanged."""
    for name in names.values() if isinstance(names, dict) else (names,) if isinstance(names, str) else names or ():
        if "\0" in name:
            raise ValueError("it contains a NUL character, which no path can have; remove it")
    return names


def _make_absolute(files: Any) -> Any:
    if not isinstance(files, str):
        return tuple(map(_make_absolute, files))
    return os.path.abspath(expand_home(files)) if files else ""


def _check_encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except (LookupError, ValueError):
        raise ValueError(f"encoding is {name!r}, which is unknown; try utf-8, gb18030 or latin-1") from None
    return name


Files = Annotated[str | Names, AfterValidator(_make_absolute)]
Column = Annotated[Name, BeforeValidator(lambda v: str(v) if type(v) is int else v)]  # or a number from 1


class DataSection(Section):
    train: Files = key("", "one file or a list; relative paths start at this file's directory")
    valid: Files = key("", "unset: 10 % of train, chosen by a hash of the text")
    test: Files = key("", "unset: none; scored once, at the end")
    hold_out: bool = key(True, "false: without valid, train on every row and keep the last weights (needs test)")
    format: Name | None = key(None, "unset: detected from the file's suffix and content")
    encoding: Annotated[str, AfterValidator(_check_encoding)] = key("utf-8", "of text files")
    limit: Count | None = key(None, "unset: all rows; training rows, sampled by a hash of the text", 1000)
    weights: Annotated[tuple[Positive, ...], Strict(False)] | None = key(
        None, "passes over each training file per epoch; unset: one", (1.0,)
    )
    teacher: Annotated[str | Names, AfterValidator(check_name)] = key(
        "", "distillation: one or more trained models that add soft labels; unset: none", "path/to/teacher"
    )
    distill_weight: Annotated[float, Field(ge=1e-6, le=1)] = key(
        0.5, "weight of the soft labels: 0.5 = as much as the labels, 1 = alone"
    )
    unlabelled: Files = key("", "further inputs, a file or a list, which the teacher labels; unset: none", "more.txt")
    text: Column | None = key(None, "the column with the text: its name, or its number from 1")
    text_a: Column | None = key(None, "the column with the first text")
    text_b: Column | None = key(None, "the column with the second text")
    label: Column | None = key(None, "the column with the label")
    source: Column | None = key(None, "the column with the source text")
    target: Column | None = key(None, "the column with the target text")
    question: Column | None = key(None, "the column with the question")
    context: Column | None = key(None, "the column with the text that holds the answer")
    answers: Column | None = key(None, "the column with the answers")
    tokens: Column | None = key(None, "the column with the words; in CoNLL files found by itself")
    tags: Column | None = key(None, "the column with their tags")

    @property
    def columns(self) -> dict[str, str]:
        """Column mapping: role -> the file's column."""
        return {role: getattr(self, role) for role in ROLES if getattr(self, role) is not None}


ROLES = tuple(DataSection.model_fields)[tuple(DataSection.model_fields).index("text") :]


class TokenizerSection(Section):
    kind: Literal["bpe", "unigram", "wordpiece", "char"] = key("bpe", "bpe, unigram, wordpiece or char")
    vocab: Annotated[int, Field(ge=1, le=10_000_000)] = key(8000, "tokens at most")
    lowercase: bool = key(False, "fold capitals")
    shared: bool = key(True, "source and target have one vocabulary; false: one each")


class ModelSection(Section):
    dim: Width = key(256, "width")
    layers: Layers = key(4, "blocks")
    decoder_layers: Layers | None = key(None, "decoder blocks; unset: as many as layers", 2)
    heads: Width = key(4, "attention heads per block; they divide dim")
    kv_heads: Width | None = key(None, "key/value heads; unset: as many as heads", 2)
    inner: Annotated[int, Field(ge=1, le=1_000_000)] | None = key(
        None, "feed-forward width; unset: 4 * dim (8/3 with a gate)", 1024
    )
    dropout: Share = key(0.1, "0 = off")
    positions: Literal["none", "sinusoidal", "learned", "rotary", "alibi", "relative"] = key(
        "rotary", "none, sinusoidal, learned, rotary, alibi or relative"
    )
    norm_first: bool = key(True, "pre-norm (easier to train) or post-norm (as BERT)")
    max_length: Annotated[int, Field(ge=8, le=10_000_000)] = key(512, "maximum input length in tokens")

    @model_validator(mode="after")
    def _check_widths(self) -> Self:
        if self.dim % self.heads:
            raise ValueError(f"heads is {self.heads}; expected a divisor of dim = {self.dim}")
        if self.heads % (self.kv_heads or 1):
            raise ValueError(f"kv_heads is {self.kv_heads}; expected a divisor of heads = {self.heads}")
        if self.positions == "rotary" and self.dim // self.heads % 2:
            raise ValueError(
                f"dim is {self.dim}; expected an even width of each of the {self.heads} heads, for rotary positions"
            )
        return self


class WindowSection(Section):
    size: Annotated[int, Field(ge=8, le=10_000_000)] | None = key(
        None, "tokens per window; unset: as many as the model takes", 256
    )
    overlap: Whole = key(64, "tokens that neighboring windows share")

    @model_validator(mode="after")
    def _check_overlap(self) -> Self:
        if self.size is not None and self.overlap >= self.size:
            raise ValueError(f"overlap is {self.overlap}; expected less than size = {self.size}")
        return self


class TrainSection(Section):
    epochs: Annotated[int, Field(ge=1, le=10_000)] | None = key(3, "passes over the training data")
    steps: Count | None = key(None, "unset: epochs count; give one of the two", 1000)
    batch_tokens: Count = key(1024, "tokens per batch, padding included")
    lr: Annotated[float, Field(ge=1e-12, le=1)] = key(1e-4, "highest learning rate; from scratch 5e-4 is a good start")
    lr_end: Annotated[float, Field(ge=0, le=1)] = key(0.0, "learning rate that linear and cosine end at")
    schedule: Literal["linear", "cosine", "constant"] = key("linear", "after warmup: linear, cosine or constant")
    warmup: Whole | Annotated[float, Field(ge=0, le=1)] = key(0.1, "0.1 = a tenth of all steps, 100 = a hundred steps")
    weight_decay: Annotated[float, Field(ge=0, le=100)] = key(0.01, "0 = off")
    beta2: Share = key(0.999, "AdamW's memory of squared gradients; 0.98 or 0.99 for short or noisy runs")
    clip: Literal[0] | Annotated[float, Field(ge=1e-6, le=1e6)] = key(1.0, "maximum gradient norm; 0 = off")
    accumulate: Count = key(1, "batches per step")
    layer_decay: Annotated[float, Field(ge=1e-6, le=1)] = key(
        1.0, "learning rate factor per layer, from the top down; 1 = off"
    )
    freeze: Whole | Names = key(0, "freeze embeddings and this many layers, or a list; 0 = none")
    lora: Annotated[int, Field(ge=0, le=65_536)] = key(0, "rank of LoRA updates; 0 = off")
    average: Literal["none", "ema", "checkpoints"] = key(
        "none", "weight averaging: none, ema, or checkpoints (mean of those on disk)"
    )
    ema_decay: Annotated[float, Field(gt=0, lt=1)] = key(0.999, "for average = ema")
    smoothing: Share = key(0.0, "label smoothing; 0 = off")
    rdrop: Annotated[float, Field(ge=0, le=1000)] = key(0.0, "R-Drop weight: make two forward passes agree; 0 = off")
    patience: Whole = key(0, "early stopping after this many evaluations without a gain; 0 = never")
    eval_every: Whole = key(0, "steps between evaluations; 0 = after each epoch")
    eval_rows: Whole = key(0, "rows of valid, from its start, for evaluations while training; 0 = all")
    save_every: Count = key(500, "steps between checkpoints")
    keep_checkpoints: Count = key(2, "checkpoints on disk")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = key(1, "decides order, dropout and new weights")
    threads: Literal["auto"] | Annotated[int, Field(ge=1, le=1024)] = key("auto", "auto, or a number")
    precision: Literal["auto", "fp32", "onednn", "bf16"] = key(
        "auto", "auto (tried out here), fp32, onednn (fp32 by another library) or bf16"
    )
    compile: Literal["auto"] | bool = key("auto", "auto (where it pays), true or false")

    @model_validator(mode="before")
    @classmethod
    def _steps_for_epochs(cls, raw: Any) -> Any:
        steps = isinstance(raw, Mapping) and raw.get("steps") is not None and "epochs" not in raw
        return {**raw, "epochs": None} if steps else raw

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("steps and epochs exclude each other; give one of them")
        if self.average == "checkpoints" and self.keep_checkpoints < 2:
            raise ValueError('keep_checkpoints is 1; expected at least 2 for average = "checkpoints"')
        return self
