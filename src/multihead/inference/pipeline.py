"""Pipeline: a model with its tokenizer, config and options; the object that is loaded, used and saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from multihead.data.readers.columns import is_string_list
from multihead.data.readers.normalize import normalize_row
from multihead.data.readers.record import ReadOptions
from multihead.data.readers.tag_schemes import TagCounts, detect_scheme
from multihead.inference.defaults import check_borders, default_options, default_task, max_input_length, vocabulary_size
from multihead.inference.engine import evaluate, predict_rows
from multihead.inference.scores import Scores
from multihead.inspection.address import Address, attentions
from multihead.inspection.hooks import ablate, is_watched, watch
from multihead.inspection.recording import Recording
from multihead.io.html import html_table
from multihead.io.manifest import MANIFEST
from multihead.io.pooling import Pooling
from multihead.machine.cpu_sharing import share_cpus
from multihead.machine.device import select_device
from multihead.machine.precision import inference_precision
from multihead.models import ClassifierReadout, Encoder, LMReadout, TaskModel
from multihead.tasks import TASKS, Prediction, Task
from multihead.tasks.bi_encoder import EmbeddingTask
from multihead.tasks.generate import Generate
from multihead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from multihead.pruning.pipeline_heads import PipelineHeads

Json = dict[str, Any]


@dataclass(repr=False)
class Pipeline:
    """A model with everything in its directory."""

    model: TaskModel  # a body and a readout, in eval mode
    config: Json  # config.json, unknown keys included
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None  # of a joined decoder with a vocabulary of its own
    labels: list[str] = field(default_factory=list)
    generation: Json = field(default_factory=dict)  # generation_config.json
    generation_file: str = ""  # its path, for error messages
    preprocessor: Json = field(default_factory=dict)  # preprocessor_config.json: for images and audio
    task: str | None = None
    name: str = ""  # of the task, if it was trained with auxiliary tasks
    unused_tensors: dict[str, Tensor] = field(default_factory=dict)  # tensors of the file that the model does not use
    options: Json = field(default_factory=dict)  # of the task, and the window's size and overlap
    pruned: Json = field(default_factory=dict)  # pruning/prune.py's record of the parent model
    pooling: Pooling = ""  # pooling of its embeddings; a new classifier uses it too
    precision: str = "fp32"  # compute precision of encoder tasks; weights are fp32
    tasks: tuple[str, ...] = ()  # multi-task: names of the readouts; `load(…, task=name)` loads one

    def __post_init__(self) -> None:
        if self.tokenizer is not None and self.target_tokenizer is not None:
            self.tokenizer.target = self.target_tokenizer

    @property
    def unused_names(self) -> list[str]:
        """Names of tensors in the file that the model does not use; `save` writes them back unchanged."""
        return sorted(self.unused_tensors)

    @property
    def architecture(self) -> str:
        return str((self.config.get("architectures") or [""])[0])

    def make_task(self) -> Task:
        """Return the task that this model was trained for, or the default task of a language model."""
        if self.task is None and self.tasks:
            raise ValueError(
                f"this model has several tasks: {', '.join(self.tasks)}; choose one: --task {self.tasks[0]}, "
                f"in Python load(…, task={self.tasks[0]!r})"
            )
        if self.task is not None and self.tokenizer is not None:
            check_borders(self.model.body, self.options, f"{Path(self.model.source) / MANIFEST}: options.")
            return self._on_device(TASKS[self.task].variant(self.options)(self.tokenizer, self.labels, **self.options))
        name = default_task(self.model)
        if name is None or self.tokenizer is None:
            raise ValueError(
                f"{self.model.source}: this {self.architecture or 'model'} was not trained for a task here; "
                "train it: multihead init TASK"
            )
        options = default_options(self.model.body, self.tokenizer.target, self.generation, self.generation_file)
        return self._on_device(TASKS[name](self.tokenizer, [], max_input_length(self.model.body), **options))

    def _on_device(self, task: Task) -> Task:
        """Return the task with its batches on the model's device."""
        share_cpus()
        task.device = self.model.device
        least = task.tokenizer.inner.num_special_tokens_to_add(is_pair=False) + 1
        if task.size < least:  # windows would have no room for text
            raise ValueError(
                f"{self.model.source}: its window has {task.size} tokens, but at least {least} are needed; "
                f"fix options.size in {MANIFEST}, or the number of positions in config.json"
            )
        if task.pad >= vocabulary_size(self.model.body, source=True):
            task.pad = 0  # added to the tokenizer alone; padding is masked anyway
        return task

    def to(self, device: str = "auto", precision: str = "fp32") -> Pipeline:
        """Move this model to a device: cpu, cuda, mps, or auto (a GPU if available); and set the precision of encoder
        tasks: fp32, bf16, or auto (bf16 where it is correct and faster)."""
        self.model.to(select_device(device))
        if isinstance(self.model.readout, LMReadout):
            if precision == "bf16":
                raise ValueError("precision bf16 is for encoder tasks; this model generates text in fp32: remove it")
            precision = "fp32"
        self.precision = inference_precision(precision, self.model.device.type)
        return self

    @overload
    def __call__(self, inputs: str | Json) -> Prediction: ...
    @overload
    def __call__(self, inputs: Iterator[str | Json]) -> Iterator[Prediction]: ...
    @overload
    def __call__(self, inputs: list[str] | list[Json] | tuple[str | Json, ...]) -> list[Prediction]: ...
    def __call__(
        self, inputs: str | Json | Iterable[str | Json]
    ) -> Prediction | list[Prediction] | Iterator[Prediction]:
        """Predict: one input gives one prediction, a list gives a list, an iterator gives an iterator.

        An input is a text, or an object with the task's columns.
        """
        if isinstance(inputs, str | dict):
            return self.predict([inputs])[0]
        return self._predict(inputs) if isinstance(inputs, Iterator) else self.predict(inputs)

    def predict(self, inputs: Iterable[str | Json]) -> list[Prediction]:
        """Return one prediction for each text, or for each object with the task's columns."""
        if isinstance(inputs, str | bytes | Mapping) or not isinstance(inputs, Iterable):
            raise ValueError(f"predict expects a list, not {type(inputs).__name__}; for one text: predict([text])[0]")
        return list(self._predict(inputs))

    def _predict(self, inputs: Iterable[str | Json]) -> Iterator[Prediction]:
        task = self.make_task()
        if not isinstance(inputs, Iterator):
            inputs = list(inputs)
            task.survey(inputs)
        rows = (
            task.validate(task.map_columns(raw_input), f"input {number}") for number, raw_input in enumerate(inputs)
        )
        # While watched, process one input at a time: batches are sorted by length, but recordings must follow the input
        # order.
        ahead = 1 if is_watched(self.model) else None
        for _, prediction in predict_rows(self.model, task, rows, ahead=ahead, precision=self.precision):
            yield prediction

    def stream(self, prompt: str | Json) -> Iterator[str]:
        """Yield the generated text for one prompt, part by part."""
        task = self.make_task()
        if not isinstance(task, Generate):
            raise ValueError(f"stream needs a language model (generate); this model's task is {task.name}: use predict")
        values = task.validate(task.map_columns(prompt), "the prompt")
        return (piece for piece in task.stream(self.model, values))

    def watch(self, only: Sequence[str] = ()) -> AbstractContextManager[Recording]:
        """Record what every attention (or `only` these, as `encoder.2.self`) attends to: `multihead.inspection`."""
        return watch(self.model, only)

    def ablate(self, heads: Sequence[Address]) -> AbstractContextManager[None]:
        """Switch heads off: `multihead.ablate`."""
        return ablate(self.model, heads)

    def __repr__(self) -> str:
        layers = Counter(name.split(".")[0] for name in attentions(self.model) if name.endswith(".self"))
        stacks = ", ".join(f"{count} {stack} layers" for stack, count in layers.items())
        size = sum(weight.numel() for weight in self.model.parameters())
        labels = f", {len(self.labels)} labels" if self.labels else ""
        return f"<Pipeline {self.task or self.architecture}: {stacks}, {size / 1e6:.1f} M parameters{labels}>"

    def _repr_html_(self) -> str:
        size = sum(weight.numel() for weight in self.model.parameters())
        rows: list[tuple[str, object]] = [
            ("task", self.task or "none"), ("architecture", self.architecture), ("parameters", f"{size:,}"),
            ("attentions", len(attentions(self.model))), ("labels", ", ".join(self.labels[:20])),
            ("source", self.model.source), ("device", self.model.device), ("precision", self.precision),
        ]  # fmt: skip
        return html_table("Pipeline", ("", ""), rows)

    def embedder(self) -> EmbeddingTask:
        """Return the embedding task, for a bi-encoder or its body alone."""
        body, tokenizer = self.model.body, self.tokenizer
        bare = self.task is None or issubclass(TASKS[self.task].variant(self.options), EmbeddingTask)
        if (
            not bare
            or not isinstance(body, Encoder)
            or tokenizer is None
            or isinstance(self.model.readout, ClassifierReadout)
        ):
            raise ValueError(f"this {self.architecture} has no embeddings; train a bi-encoder: match with kind = bi")
        size = int(self.options.get("size", body.config.max_length))
        overlap = min(int(self.options.get("overlap", 64)), size // 2)
        task = EmbeddingTask(tokenizer, [], size, overlap, pool=self.options.get("pool") or self.pooling)
        self._on_device(task)
        return task

    def embed(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Return a normalized embedding for each text [n, dim], by a bi-encoder or its body alone; the dot product of
        two is their cosine similarity."""
        task = self.embedder()
        if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
            raise ValueError(
                f"embed expects a list of texts, not {type(texts).__name__}; for one text: embed([text])[0]"
            )
        rows = (task.validate(text, f"input {number}") for number, text in enumerate(texts))
        # Drop an LM readout: vocabulary logits are not an embedding.
        scores = isinstance(self.model.readout, LMReadout)
        model = TaskModel(self.model.body, nn.Identity()).eval() if scores else self.model
        model.source = self.model.source
        predictions = predict_rows(model, task, rows, precision=self.precision)
        vectors = [prediction["vector"] for _, prediction in predictions]
        return np.stack(vectors) if vectors else np.zeros((0, _width(self.model)), dtype=np.float32)

    def evaluate(self, rows: Iterable[Json]) -> Scores:
        """Return scores with confidence intervals, on rows that include the task's gold columns."""
        if isinstance(rows, str | bytes | Path | Mapping) or not isinstance(rows, Iterable):
            raise ValueError(
                f"evaluate expects a list of rows such as {{text, label}}, not {type(rows).__name__}; "
                "for a file: multihead evaluate MODEL FILE"
            )
        task = self.make_task()
        return Scores(evaluate(self.model, task, prepare_scored_rows(task, rows), precision=self.precision).result())

    def save(self, directory: str | Path) -> None:
        """Write a model directory, which `load` and, if it is of a known family, transformers can open."""
        from multihead.pretrained.save import save  # imports this module

        save(self, directory)

    @property
    def heads(self) -> PipelineHeads:
        """Statistics, ranking and pruning of its attention heads: `pipeline.heads.stats(rows)`."""
        from multihead.pruning.pipeline_heads import PipelineHeads  # imports this module

        return PipelineHeads(self)


def _width(model: TaskModel) -> int:
    """Return the width of the embeddings."""
    assert isinstance(model.body, Encoder)
    return model.body.config.dim


def prepare_scored_rows(task: Task, rows: Iterable[Json]) -> Iterator[Json]:
    """Yield rows with inputs and gold, normalized as by file readers: tags of any scheme become BIO."""
    options, named = ReadOptions(), _map_columns(task, rows)
    if task.spec.tags_words:  # the scheme is detected from all rows
        every = list(named)
        survey = TagCounts()
        for number, row in enumerate(every):
            survey.add((number, tag) for tag in (row["tags"] if is_string_list(row.get("tags")) else ()))
        options, named = ReadOptions(scheme=detect_scheme(survey, "row")), iter(every)
    for number, row in enumerate(named):
        normalized = normalize_row(row, options)
        if not isinstance(normalized, dict):
            raise ValueError(f"row {number}: {normalized[1]}")
        chat = task.spec.documents and normalized.keys() & {"conversation", "messages"}
        required = () if chat else task.columns()
        if any(name not in normalized for name in required):
            has = ", ".join(row) or "nothing"
            raise ValueError(
                f"row {number}: {task.name} needs {' and '.join(required)} for evaluation; the row has: {has}"
            )
        yield normalized


def _map_columns(task: Task, rows: Iterable[Json]) -> Iterator[Json]:
    """Rename columns from the training data's names to the task's."""
    trained_names: Mapping[str, str] = task.options.get("columns", {})
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            required = " and ".join(task.columns())
            raise ValueError(
                f"row {number}: {task.name} needs objects with {required} for evaluation, not {type(row).__name__}"
            )
        yield {**row, **{role: row[name] for role, name in trained_names.items() if name in row}}
