"""From a run file to everything that training needs: data, labels, tokenizer, task and model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from multihead.build import Loaded, load, with_readout
from multihead.data.read import Reading, records
from multihead.data.tokenizer import Tokenizer
from multihead.models import Classes, Encoder, Model, ModelConfig
from multihead.models.families import FAMILIES, own_config
from multihead.run import RunFile
from multihead.tasks import TASKS, Task, Values
from multihead.tasks.classify import named
from multihead.train.examples import Side


@dataclass(frozen=True)
class Setup:
    """What a run is made of, before the first step."""

    loaded: Loaded
    task: Task
    sides: dict[str, Side]  # train, valid and, if given, test
    readings: dict[str, Reading]


def set_up(run: RunFile) -> Setup:
    """Read what must be known of the data, build the task and the model."""
    refuse_unbuilt(run)
    readings, sides = data_of(run)
    kind = TASKS[str(run.task)]
    options = options_of(run, sides["train"])
    labels = kind.learn(sides["train"](), **options)
    if kind.name != "answer" and len(labels) < 2 and not options.get("score"):
        raise ValueError(f"{run.data.train}: every row has the label {labels[0]!r}; a classifier needs at least two")
    torch.manual_seed(run.train.seed)
    loaded = scratch(run, sides["train"]) if run.from_ is None else load(run.from_)
    if loaded.tokenizer is None:
        raise ValueError(f"{run.from_}: this model has no tokenizer; {run.task} reads text")
    longest = encoder_of(loaded, run).config.max_length
    size = min(run.window.size or longest, longest)
    task = kind(loaded.tokenizer, labels, size, min(run.window.overlap, size // 2), **options)
    loaded = fitted(loaded, task)
    task.adapt(loaded.model)
    return Setup(loaded, task, sides, readings)


def refuse_unbuilt(run: RunFile) -> None:
    """Keys that the run file knows and training does not follow yet: better an error than a key without effect."""
    wanted = {
        "train.freeze": bool(run.train.freeze),
        "train.lora": run.train.lora > 0,
        'train.average = "last"': run.train.average == "last",
        "train.smoothing": run.train.smoothing > 0,
        'train.precision = "bf16"': run.train.precision == "bf16",
        "train.compile = true": run.train.compile is True,
        "ner.crf": run.ner.crf,
        'match.kind = "bi"': run.match.kind == "bi",
        f"device = {run.device!r}": run.device not in ("auto", "cpu"),
        "[[tasks]]": not run.task,
    }
    if unbuilt := [name for name, asked in wanted.items() if asked]:
        raise ValueError(f"{', '.join(unbuilt)}: not built yet; leave it out")


def encoder_of(loaded: Loaded, run: RunFile) -> Encoder:
    if not isinstance(loaded.model.body, Encoder):
        raise ValueError(
            f"{run.from_}: a {loaded.architecture} writes; {run.task} wants a model that reads, such as BERT"
        )
    return loaded.model.body


def data_of(run: RunFile) -> tuple[dict[str, Reading], dict[str, Side]]:
    """The files of a run and their sides; without a validation file, a tenth of train is held out by hash."""
    assert run.data is not None
    settings: dict[str, Any] = {"format": run.data.format, "encoding": run.data.encoding}
    if run.task == "ner" and run.ner is not None and run.ner.scheme != "auto":
        settings["scheme"] = run.ner.scheme
    columns = {role: column for role, column in run.data.columns.items() if role != column or run.task != "ner"}
    names = {"train": run.data.train, "valid": run.data.valid, "test": run.data.test}
    readings = {
        side: records(files, columns=_columns(run, columns), **settings) for side, files in names.items() if files
    }
    sides = {side: Side(reading, "all") for side, reading in readings.items()}
    if "valid" not in sides:
        sides["train"], sides["valid"] = Side(readings["train"], "train"), Side(readings["train"], "valid")
    if run.data.limit is not None:
        sides["train"] = Side(readings["train"], sides["train"].side, run.data.limit)
    return readings, sides


def _columns(run: RunFile, columns: dict[str, str]) -> dict[str, str] | None:
    """SQuAD files and CoNLL files know their columns."""
    return (
        None if run.task in ("answer", "ner") and all(role == column for role, column in columns.items()) else columns
    )


def options_of(run: RunFile, train: Side) -> dict[str, Any]:
    """The task's own section of the run file, with what the data decides."""
    section = getattr(run, str(run.task), None)
    options = (
        {} if section is None else {k: v for k, v in section.model_dump().items() if v not in (None, False, 0, "none")}
    )
    options.pop("scheme", None)
    if options.pop("target", None) == "score":
        numbers = [float(values["label"]) for values in train()]
        options["score"] = (min(numbers), max(numbers))
    if options.get("class_weights") == "balanced":
        counts = Counter(label for values in train() for label in named(values["label"]))
        options["class_weights"] = {k: counts.total() / (len(counts) * n) for k, n in counts.items()}
    if "max_answer_tokens" in options:
        options["longest"] = options.pop("max_answer_tokens")
    return options


def scratch(run: RunFile, train: Side) -> Loaded:
    """A tokenizer learnt from the training texts, and a body with new weights."""
    tokenizer = Tokenizer.train(
        (text for values in train() for text in texts_of(values)),
        run.tokenizer.kind,
        run.tokenizer.vocab,
        lowercase=run.tokenizer.lowercase,
    )
    config = ModelConfig(
        vocab=len(tokenizer),
        pad=tokenizer.special.get("pad"),
        token_types=2,
        **run.model.model_dump(),
        activation="gelu",
    )
    model = Model(Encoder(config), torch.nn.Identity())
    return Loaded(model, own_config(model), tokenizer)


def fitted(loaded: Loaded, task: Task) -> Loaded:
    """The body with the task's readout on it: its family's, or our own."""
    names = task.labels if len(task.labels) == task.classes() else []
    if loaded.config.get("model_type") in FAMILIES:
        loaded = with_readout(loaded, task.readout.architecture, names)
    else:
        body = loaded.model.body
        assert isinstance(body, Encoder)
        readout = Classes(body.config.dim, task.classes(), task.readout.over, task.readout.hidden)
        loaded.model = Model(body, readout)
        loaded.config, loaded.labels = own_config(loaded.model), list(names)
    loaded.task, loaded.options = task.name, {"size": task.size, "overlap": task.overlap, **task.options}
    return loaded


def texts_of(values: Values) -> Iterator[str]:
    """The texts of a row, for a tokenizer to learn from."""
    if "tokens" in values:
        yield " ".join(values["tokens"])
    yield from (values[name] for name in ("text", "text_a", "text_b", "question", "context") if name in values)
