"""Batches for a model's body from dataset rows: encoded by its task, or as plain text for a model without one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multihead.data.batching import plan_batches
from multihead.inference import Pipeline
from multihead.models import Encoder, EncoderDecoder, LMReadout, TaskModel, TokenEmbedding
from multihead.tasks import SPECS, TASKS, Batch, Task, Values, Window
from multihead.tasks.classify import Classify
from multihead.tasks.denoise import Denoise
from multihead.tasks.generate import Generate
from multihead.tasks.task import distinct_windows
from multihead.tasks.word_spans import join_tokens

AHEAD = 1024  # rows buffered for batching: enough to find rows of similar length
BATCH_TOKENS = 4096
PAIRS = (("source", "target"), ("text_a", "text_b"), ("question", "context"))
LONGEST = 1 << 20  # a model without learned positions takes any length


def max_input_length(loaded: Pipeline) -> int:
    """Return the model's maximum input length in tokens; for a model trained here, its training length."""
    body = loaded.model.body
    stem = body.encoder.stem if isinstance(body, EncoderDecoder) else body.stem
    if not isinstance(stem, TokenEmbedding):
        raise ValueError("this model takes images or audio; inspect its heads with mh.watch, in Python")
    most = LONGEST if stem.positions is None else stem.positions.length
    return most if loaded.task is None else min(most, loaded.make_task().size)


def messages_of(values: Values) -> list[Any]:
    """Return the messages of a conversation; [] for any other row."""
    messages = values.get("conversation", values.get("messages"))
    return messages if isinstance(messages, list) and all(isinstance(message, Mapping) for message in messages) else []


def row_texts(values: Values) -> tuple[str, ...]:
    """Return the text of a row, or its two texts; if no column name is known, the first column with text."""
    if "tokens" in values:
        return (join_tokens(values["tokens"], values.get("spaces"))[0],)
    if messages := messages_of(values):
        return ("\n".join(f"{message.get('role')}: {message.get('content')}" for message in messages),)
    for pair in PAIRS:
        if all(isinstance(values.get(name), str) for name in pair):
            return tuple(values[name] for name in pair)
    named = [values[name] for name in ("text", "source", "prompt") if isinstance(values.get(name), str)]
    texts = named or [value for value in values.values() if isinstance(value, str)]
    if not texts:
        raise ValueError(f"a row has no text; its columns are {', '.join(values)}; choose one: text=COLUMN")
    return (texts[0],)


def encode_windows(task: Task, values: Values) -> list[Window]:
    """Encode a row. Running text is split as for training: each window includes the next token, which is only a
    label."""
    if not isinstance(task, Generate) or "text" not in values:
        return task.encode(values)
    (window,) = task.encode(values)
    starts = range(0, len(window["tokens"]) - 1, task.size)
    return [{"tokens": window["tokens"][start : start + task.size + 1]} for start in starts]


class ModelInputs:
    """Encoder of dataset rows for one model."""

    def __init__(self, loaded: Pipeline) -> None:
        self.loaded = loaded
        self.pair = isinstance(loaded.model.body, EncoderDecoder)
        # Translation and mask filling get plain text: their training inputs are not the subject here.
        reads = isinstance(loaded.model.body, Encoder) and not isinstance(loaded.model.readout, LMReadout)
        self.task = loaded.make_task() if loaded.task in TASKS and reads else None
        spec = SPECS.get(loaded.task or "")
        self.writer = loaded.make_task() if spec and spec.generates_text and not spec.has_source else None
        if self.task is None and loaded.tokenizer is None:
            raise ValueError("this model has no tokenizer; inspect its heads with mh.watch, in Python")
        self.pad = 0 if loaded.tokenizer is None else loaded.tokenizer.special.get("pad", 0)

    def windows(self, values: Values) -> list[Window]:
        """Encode one row, split where it is too long for the model."""
        if self.task is not None and self.fits(values):
            return self.task.encode(values)
        texts = row_texts(values)
        if isinstance(self.writer, Generate) and messages_of(values):
            return [{"tokens": self.writer.encode_conversation(values)["tokens"][: self.writer.size]}]
        if self.writer is None or len(texts) > 1:
            return self.encode_plain(*texts)
        written = encode_windows(self.writer, values if "text" in values else {"text": texts[0]})
        if isinstance(self.writer, Denoise):
            return [self._add_noise(self.writer, window) for window in written if not self.writer.skip_reason([window])]
        return [{"tokens": window["tokens"][: self.writer.size]} for window in written]

    def _add_noise(self, task: Denoise, window: Window) -> Window:
        """Return a masked text as source, and the full text as target."""
        pair = task.add_noise(task.collate([window]), 0)
        return {name: pair[name][0].cpu().numpy() for name in ("tokens", "target")}

    def fits(self, values: Values) -> bool:
        """Whether a row has the task's inputs; a tagger accepts raw text too."""
        required = () if self.task is None else self.task.inputs
        return all(name in values for name in required) or ("text" in values and required == ("tokens",))

    def encode_plain(self, *texts: str) -> list[Window]:
        """Encode one text, or two, with the model's tokenizer."""
        assert self.loaded.tokenizer is not None
        size = max_input_length(self.loaded)
        if not self.pair:
            cut = Classify(self.loaded.tokenizer, [], size).tokenize_windows(*texts)
            typed = any(any(part.types) for part in cut) and isinstance(self.loaded.model.body, Encoder)
            return [{"tokens": np.array(p.ids), **({"types": np.array(p.types)} if typed else {})} for p in cut]
        if len(texts) < 2:
            raise ValueError("this is an encoder-decoder; name both columns: source=… target=…")
        source, target = self.loaded.tokenizer.encode(texts[0]).ids, target_tokens(self.loaded, texts[1])
        if max(len(source), len(target)) > size:
            raise ValueError(
                f"a row has {max(len(source), len(target))} tokens, the model's limit is {size}; shorten it"
            )
        return [{"tokens": np.array(source), "target": np.array(target)}]

    def batches(self, rows: Iterable[Values], batch_tokens: int = BATCH_TOKENS) -> Iterator[Batch]:
        """Yield batches of similar lengths, at constant memory."""
        source = iter(rows if self.task is None else self.task.prepare(map(self.task.map_columns, rows)))
        while block := list(islice(source, AHEAD)):
            for known in (True, False):
                some = [values for values in block if (self.task is not None and self.fits(values)) == known]
                ready, _ = distinct_windows(
                    window for values in some for window in self.windows(values) if len(window["tokens"])
                )
                sizes = np.array([max(len(window["tokens"]), len(window.get("target", ()))) for window in ready])
                for numbers in plan_batches(sizes, max(batch_tokens, *sizes), 0, 0) if ready else ():
                    batch_windows = [ready[i] for i in numbers]
                    yield (
                        self.task.collate(batch_windows)
                        if known and self.task is not None
                        else collate_windows(batch_windows, self.pad)
                    )


def target_tokens(loaded: Pipeline, text: str) -> list[int]:
    """Encode a target as the decoder's input: after its start token."""
    assert loaded.tokenizer is not None
    writer = loaded.target_tokenizer or loaded.tokenizer.target
    start = loaded.generation.get("decoder_start_token_id", writer.special.get("bos", writer.special.get("cls", 0)))
    return [int(start), *writer.encode(text).ids]


def collate_windows(ready: list[Window], pad: int) -> Batch:
    """Collate tokens and keep; types, or target and target_keep, if present."""
    batch: Batch = {}
    for name, filler in (("tokens", pad), ("types", 0), ("target", pad)):
        if any(name in window for window in ready):
            arrays = [window.get(name, np.zeros(len(window["tokens"]))) for window in ready]
            rows = [torch.from_numpy(np.asarray(row, dtype=np.int64)) for row in arrays]
            batch[name] = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=filler)
            if name != "types":
                lengths = torch.tensor([len(row) for row in rows])
                keep = torch.arange(batch[name].shape[1])[None] < lengths[:, None]
                batch["keep" if name == "tokens" else "target_keep"] = keep
    return batch


def run_body(model: TaskModel, batch: Batch) -> Tensor:
    """Run the body on one batch -> hidden [B, T, D]."""
    body = model.body
    keep = None if bool(batch["keep"].all()) else batch["keep"]  # no padding needs no mask
    if isinstance(body, EncoderDecoder):
        return body(batch["tokens"], batch["target"], keep, batch["target_keep"])
    types = {"types": batch["types"]} if "types" in batch else {}
    return body(batch["tokens"], keep, **types)
