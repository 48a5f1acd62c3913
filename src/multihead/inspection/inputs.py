"""From a file to batches that a model's body reads: by its task, or, for a model without one, as plain text."""

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

AHEAD = 1024  # rows that are read before the first batch: enough to find neighbours of equal length
BATCH_TOKENS = 4096
PAIRS = (("source", "target"), ("text_a", "text_b"), ("question", "context"))
LONGEST = 1 << 20  # a model without a table of positions takes any length


def max_input_length(loaded: Pipeline) -> int:
    """How many tokens the model takes at once; of one that was trained here, as many as then."""
    body = loaded.model.body
    stem = body.encoder.stem if isinstance(body, EncoderDecoder) else body.stem
    if not isinstance(stem, TokenEmbedding):
        raise ValueError("this model reads pictures or sound; its heads are seen with mh.watch, in Python")
    most = LONGEST if stem.positions is None else stem.positions.length
    return most if loaded.task is None else min(most, loaded.make_task().size)


def messages_of(values: Values) -> list[Any]:
    """The messages of a conversation; of any other row, none."""
    said = values.get("conversation", values.get("messages"))
    return said if isinstance(said, list) and all(isinstance(message, Mapping) for message in said) else []


def row_texts(values: Values) -> tuple[str, ...]:
    """The text of a row, or its two texts; where no column has a name that is known, the first that holds text."""
    if "tokens" in values:
        return (join_tokens(values["tokens"], values.get("spaces"))[0],)
    if said := messages_of(values):
        return ("\n".join(f"{message.get('role')}: {message.get('content')}" for message in said),)
    for pair in PAIRS:
        if all(isinstance(values.get(name), str) for name in pair):
            return tuple(values[name] for name in pair)
    named = [values[name] for name in ("text", "source", "prompt") if isinstance(values.get(name), str)]
    found = named or [value for value in values.values() if isinstance(value, str)]
    if not found:
        raise ValueError(f"a row has no text; its columns are {', '.join(values)}; name one: text=COLUMN")
    return (found[0],)


def encode_windows(task: Task, values: Values) -> list[Window]:
    """A row as the model reads it. Running text, which is encoded in one piece, is cut as for training: each window has
    the token behind it too, which is only foretold."""
    if not isinstance(task, Generate) or "text" not in values:
        return task.encode(values)
    (whole,) = task.encode(values)
    starts = range(0, len(whole["tokens"]) - 1, task.size)
    return [{"tokens": whole["tokens"][start : start + task.size + 1]} for start in starts]


class ModelInputs:
    """Rows of a file -> what one model reads."""

    def __init__(self, loaded: Pipeline) -> None:
        self.loaded = loaded
        self.pair = isinstance(loaded.model.body, EncoderDecoder)
        # Tasks that translate, or fill masks, are fed plain text: what they train on is not what is asked about here.
        reads = isinstance(loaded.model.body, Encoder) and not isinstance(loaded.model.readout, LMReadout)
        self.task = loaded.make_task() if loaded.task in TASKS and reads else None
        spec = SPECS.get(loaded.task or "")
        self.writer = loaded.make_task() if spec and spec.generates_text and not spec.has_source else None
        if self.task is None and loaded.tokenizer is None:
            raise ValueError("this model has no tokenizer; its heads are seen with mh.watch, in Python")
        self.pad = 0 if loaded.tokenizer is None else loaded.tokenizer.special.get("pad", 0)

    def windows(self, values: Values) -> list[Window]:
        """One row, cut where it is too long for the model."""
        if self.task is not None and self.fits(values):
            return self.task.encode(values)
        found = row_texts(values)
        if isinstance(self.writer, Generate) and messages_of(values):
            return [{"tokens": self.writer.encode_conversation(values)["tokens"][: self.writer.size]}]
        if self.writer is None or len(found) > 1:
            return self.encode_plain(*found)
        written = encode_windows(self.writer, values if "text" in values else {"text": found[0]})
        if isinstance(self.writer, Denoise):
            return [self._add_noise(self.writer, window) for window in written if not self.writer.skip_reason([window])]
        return [{"tokens": window["tokens"][: self.writer.size]} for window in written]

    def _add_noise(self, task: Denoise, window: Window) -> Window:
        """A text with gaps, and the whole one."""
        pair = task.add_noise(task.collate([window]), 0)
        return {name: pair[name][0].cpu().numpy() for name in ("tokens", "target")}

    def fits(self, values: Values) -> bool:
        """Whether a row has what the task reads; a tagger reads raw text too."""
        wanted = () if self.task is None else self.task.inputs
        return all(name in values for name in wanted) or ("text" in values and wanted == ("tokens",))

    def encode_plain(self, *found: str) -> list[Window]:
        """Text, or two, as the model's tokenizer cuts it."""
        assert self.loaded.tokenizer is not None
        size = max_input_length(self.loaded)
        if not self.pair:
            cut = Classify(self.loaded.tokenizer, [], size).tokenize_windows(*found)
            typed = any(any(part.types) for part in cut) and isinstance(self.loaded.model.body, Encoder)
            return [{"tokens": np.array(p.ids), **({"types": np.array(p.types)} if typed else {})} for p in cut]
        if len(found) < 2:
            raise ValueError("this model reads a source and writes a target; name both columns: source=… target=…")
        source, target = self.loaded.tokenizer.encode(found[0]).ids, target_tokens(self.loaded, found[1])
        if max(len(source), len(target)) > size:
            raise ValueError(f"a row has {max(len(source), len(target))} tokens, this model takes {size}; shorten it")
        return [{"tokens": np.array(source), "target": np.array(target)}]

    def batches(self, rows: Iterable[Values], batch_tokens: int = BATCH_TOKENS) -> Iterator[Batch]:
        """Rectangles of similar lengths, at constant memory."""
        source = iter(rows if self.task is None else self.task.prepare(map(self.task.map_columns, rows)))
        while block := list(islice(source, AHEAD)):
            for known in (True, False):
                some = [values for values in block if (self.task is not None and self.fits(values)) == known]
                ready, _ = distinct_windows(
                    window for values in some for window in self.windows(values) if len(window["tokens"])
                )
                sizes = np.array([max(len(window["tokens"]), len(window.get("target", ()))) for window in ready])
                for numbers in plan_batches(sizes, max(batch_tokens, *sizes), 0, 0) if ready else ():
                    mine = [ready[i] for i in numbers]
                    yield (
                        self.task.collate(mine) if known and self.task is not None else collate_windows(mine, self.pad)
                    )


def target_tokens(loaded: Pipeline, text: str) -> list[int]:
    """A target as the decoder reads it: behind its start token."""
    assert loaded.tokenizer is not None
    writer = loaded.target_tokenizer or loaded.tokenizer.target
    start = loaded.generation.get("decoder_start_token_id", writer.special.get("bos", writer.special.get("cls", 0)))
    return [int(start), *writer.encode(text).ids]


def collate_windows(ready: list[Window], pad: int) -> Batch:
    """tokens and keep; types, or target and target_keep, where there are any."""
    batch: Batch = {}
    for name, filler in (("tokens", pad), ("types", 0), ("target", pad)):
        if any(name in window for window in ready):
            given = [window.get(name, np.zeros(len(window["tokens"]))) for window in ready]
            rows = [torch.from_numpy(np.asarray(row, dtype=np.int64)) for row in given]
            batch[name] = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=filler)
            if name != "types":
                lengths = torch.tensor([len(row) for row in rows])
                keep = torch.arange(batch[name].shape[1])[None] < lengths[:, None]
                batch["keep" if name == "tokens" else "target_keep"] = keep
    return batch


def run_body(model: TaskModel, batch: Batch) -> Tensor:
    """The body on one batch -> hidden [B, T, D]."""
    body = model.body
    keep = None if bool(batch["keep"].all()) else batch["keep"]  # no mask at all where nothing is padded
    if isinstance(body, EncoderDecoder):
        return body(batch["tokens"], batch["target"], keep, batch["target_keep"])
    types = {"types": batch["types"]} if "types" in batch else {}
    return body(batch["tokens"], keep, **types)
