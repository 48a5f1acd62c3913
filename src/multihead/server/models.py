"""The table of models that a server has: names, never paths, are what a request may hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from multihead.inference import Pipeline
from multihead.inspection.address import numbers
from multihead.models import TaskModel
from multihead.pretrained import load
from multihead.server.exclusion import ModelLock
from multihead.server.generation import Generator
from multihead.server.limits import Limits, RequestError
from multihead.server.metrics import Metrics, ModelMetrics
from multihead.server.scheduler import Scheduler
from multihead.server.style import Style
from multihead.tasks import Prediction, Task
from multihead.tasks.bi_encoder import EmbeddingTask
from multihead.tasks.generate import Generate

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
ROUTES = (
    "/v1/predict/",
    "/v1/heads/",
    "/v1/whatif/",
    "/v1/picture/",
    "/v1/generate/",
)  # behind which a model's name stands
WARM = (4, 60)  # words of the texts that a model reads before its first client does


@dataclass(eq=False)
class ServedModel:
    """A model that is being served: what it can do, and the threads that do it."""

    name: str
    loaded: Pipeline
    task: Task | None  # what predictions are made with; None: it only makes vectors
    embedder: EmbeddingTask | None
    scheduler: Scheduler
    metrics: ModelMetrics
    generator: Generator | None = None
    created: int = 0  # when its directory was written, in seconds since 1970
    directory: str | None = None  # that it was opened from, and a pruned model can be made of

    def need_task(self) -> Task:
        """Return the task, or raise the answer to a request for a prediction."""
        if self.task is None:
            raise RequestError(422, "wrong_model", "this model makes vectors only; use /v1/embeddings")
        return self.task

    def need_embedder(self) -> EmbeddingTask:
        if self.embedder is None:
            raise RequestError(422, "wrong_model", "this model makes no vectors; train one: match with kind = bi")
        return self.embedder

    def need_writer(self) -> Generate:
        if not isinstance(self.task, Generate):
            raise RequestError(422, "wrong_model", "this model does not go on with a text; use /v1/predict")
        return self.task

    @cached_property
    def description(self) -> dict[str, Any]:
        """What GET /v1/models tells of it."""
        heads = [f"{name}.{head}" for name, several in numbers(self.loaded.model).items() for head in several]
        kind = "embed" if self.task is None else self.task.name
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "multihead",
            "task": kind,
            "inputs": ["text"] if self.task is None else list(self.task.inputs),
            "labels": list(self.loaded.labels),
            "embeds": self.embedder is not None,
            "window": (self.task or self.need_embedder()).size,
            "parameters": sum(weight.numel() for weight in self.loaded.model.parameters()),
            "heads": heads,
        }

    def warm_up(self) -> None:
        """Read something: the first passes pay for threads, workspaces and packed weights."""
        futures: list[Future[list[Prediction]]] = []
        for words in WARM * 2:
            for task in filter(None, (self.task, self.embedder)):
                with suppress(ValueError):  # a task may want an input of another form: it starts cold then
                    row = task.validate(task.map_columns(example_input(task, words)), "the first input")
                    if isinstance(task, Generate):
                        futures.append(self.scheduler.write(task, [row], Style(max_tokens=2)).future)
                    else:
                        futures.append(self.scheduler.submit(task, [row]))
        for future in futures:
            with suppress(Exception):
                future.result(timeout=600)

    def close(self) -> None:
        self.scheduler.close()
        if self.generator is not None:
            self.generator.close()


class ModelTable:
    """The models by name, in the order in which they were given."""

    def __init__(self, limits: Limits, metrics: Metrics, workers: int = 1) -> None:
        self.limits, self.metrics, self.workers = limits, metrics, workers
        self.models: dict[str, ServedModel] = {}

    def add(self, name: str, loaded: Pipeline, created: int = 0, directory: str | None = None) -> ServedModel:
        """Serve a model under a name. Raises ValueError if the name is taken, or the model can do nothing."""
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for a model; use letters, digits, '.', '_' and '-': NAME=PATH")
        if name in self.models:
            raise ValueError(f"two models are called {name!r}; name one of them otherwise: NAME=PATH")
        task, embedder = _task_of(loaded), _embedder_of(loaded)
        if task is None and embedder is None:
            loaded.make_task()  # raises, and tells why
        own_weights(loaded.model)
        loaded.unused_tensors = {}  # tensors that nobody needs would hold their file open
        lock = ModelLock()
        counters = self.metrics.model(name, lambda: self.models[name].scheduler.depth if name in self.models else 0)
        generator = Generator(loaded.model, counters, lock) if isinstance(task, Generate) else None
        scheduler = Scheduler(
            loaded.model,
            self.limits,
            counters,
            lock=lock,
            generator=generator,
            precision=loaded.precision,
            workers=self.workers,
        )
        self.models[name] = ServedModel(
            name, loaded, task, embedder, scheduler, counters, generator, created, directory
        )
        return self.models[name]

    def find(self, name: str) -> ServedModel:
        """Return the model of a name that a request gave."""
        if name not in self.models:
            raise RequestError(404, "unknown_model", "there is no model of that name; GET /v1/models lists them")
        return self.models[name]

    def check_room(self, path: str) -> None:
        """Raise if the queue of the model that a path ends with is full."""
        served = self.models.get(path.rpartition("/")[2])
        if served is not None and path.startswith(ROUTES):
            served.scheduler.check_room()

    def first(self, *, embeds: bool = False, tasks: Sequence[str] = ()) -> ServedModel:
        """Return the first model that makes vectors, or has one of these tasks: for routes that name none."""
        for served in self.models.values():
            if (embeds and served.embedder is not None) or (served.task is not None and served.task.name in tasks):
                return served
        raise RequestError(404, "unknown_model", "no model here can do that; GET /v1/models lists them")

    def close(self) -> None:
        for served in self.models.values():
            served.close()


def load_models(
    table: ModelTable, given: Sequence[str] | Mapping[str, Pipeline], device: str = "auto", precision: str = "fp32"
) -> None:
    """Fill a table. given: PATH or NAME=PATH each; or models that are loaded, by name. A model with several tasks is
    served once for each, as NAME.TASK."""
    if isinstance(given, Mapping):
        for name, loaded in given.items():
            table.add(name, loaded)
        return
    for entry in given:
        name, path = split_entry(entry)
        loaded = load(path)
        created = int(Path(path).stat().st_mtime) if Path(path).exists() else 0
        if loaded.task is None and loaded.tasks:
            for task in loaded.tasks:
                table.add(f"{name}.{task}", load(path, task=task).to(device, precision), created)
        else:
            table.add(name, loaded.to(device, precision), created, path if Path(path).is_dir() else None)


def split_entry(entry: str) -> tuple[str, str]:
    """NAME=PATH -> both; of a path alone, the name is its last part that says something: runs/ner/model is ner."""
    name, equals, path = entry.partition("=")
    if equals and NAME.fullmatch(name):
        return name, path
    parts = [part for part in entry.replace("hub:", "").split("/") if part not in ("", ".", "..")]
    while len(parts) > 1 and parts[-1] == "model":
        parts.pop()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", parts[-1] if parts else "model").strip("-._")
    return name.removesuffix(".gguf") or "model", entry


def own_weights(model: TaskModel) -> None:
    """Move the weights out of their file into memory of the process's own.

    Weights are mapped from their file when a model is opened. A mapped file that is cut short under a running program
    ends it with SIGBUS at the next look, and one that is written over changes its answers.
    """
    with torch.no_grad():
        for parameter in model.parameters():  # tied ones come once, and stay tied
            parameter.data = parameter.data.clone()
        for module in model.modules():
            for name, buffer in module._buffers.items():
                module._buffers[name] = None if buffer is None else buffer.clone()


def example_input(task: Task, words: int) -> Any:
    """Return an input of so many words, of the form that the task takes."""
    mask = task.tokenizer.named.get("mask", "") if task.spec.fills_masks else ""
    text = " ".join([*["one", "two"] * (words // 2), mask]).strip()
    return text if len(task.inputs) == 1 else dict.fromkeys(task.inputs, text)


def _task_of(loaded: Pipeline) -> Task | None:
    try:
        return loaded.make_task()
    except ValueError:
        return None


def _embedder_of(loaded: Pipeline) -> EmbeddingTask | None:
    try:
        return loaded.embedder()
    except ValueError:
        return None
