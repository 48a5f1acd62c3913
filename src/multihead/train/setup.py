"""From a run file to everything that training needs: data, labels, tokenizer, task and model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from multihead.build import Loaded, load, with_readout
from multihead.data.read import Reading, records
from multihead.models import Classes, Decoder, Encoder, EncoderDecoder, Model, Vocabulary
from multihead.models.families import FAMILIES, own_config
from multihead.run import RunFile
from multihead.tasks import TASKS, Task
from multihead.tasks.bi import positive_of
from multihead.tasks.classify import named
from multihead.tasks.ready import borders, longest
from multihead.train.examples import Side
from multihead.train.frozen import limit
from multihead.train.scratch import scratch, with_vocabulary

BODIES = {"encoder": Encoder, "decoder": Decoder, "pair": EncoderDecoder}
WANTED = {
    "encoder": "writes; {task} wants a model that reads, such as BERT",
    "decoder": "is no language model; {task} wants one that only writes, such as GPT-2 or Llama",
    "pair": "has one side; {task} wants two, such as Marian, BART or T5, or from = {{encoder = …, decoder = …}}",
}


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
    refuse_useless(run)
    readings, sides = data_of(run)
    options = options_of(run, sides["train"])
    kind = TASKS[str(run.task)].variant(options)
    labels = kind.learn(sides["train"](), **options)
    if labels and len(labels) < 2 and not options.get("score"):
        raise ValueError(f"{run.data.train}: every row has the label {labels[0]!r}; a classifier needs at least two")
    torch.manual_seed(run.train.seed)
    loaded = scratch(run, kind, sides["train"]) if run.from_ is None else load(run.from_)
    if loaded.tokenizer is None:
        raise ValueError(f"{run.from_}: this model has no tokenizer; {run.task} reads text")
    most = longest_of(loaded, kind, run)
    size = min(run.window.size or most, most)
    if kind.body != "encoder":
        options |= borders(loaded.model.body, loaded.tokenizer.target, loaded.generation)
    task = kind(loaded.tokenizer, labels, size, min(run.window.overlap, size // 2), **options)
    loaded = fitted(loaded, task)
    task.smoothing = run.train.smoothing
    old = {id(parameter) for parameter in known(loaded.model.body, run)}
    task.adapt(loaded.model)
    limit(loaded.model, run.train.freeze, run.train.lora, old)
    return Setup(loaded, task, sides, readings)


def refuse_unbuilt(run: RunFile) -> None:
    """Keys that the run file knows and training does not follow yet: better an error than a key without effect."""
    wanted = {
        f"device = {run.device!r}": run.device not in ("auto", "cpu"),
        "[[tasks]]": not run.task,
    }
    if unbuilt := [name for name, asked in wanted.items() if asked]:
        raise ValueError(f"{', '.join(unbuilt)}: not built yet; leave it out")


def refuse_useless(run: RunFile) -> None:
    """Keys that would change nothing, or nothing good, beside others."""
    if run.train.lora and run.from_ is None:
        raise ValueError("train.lora changes a trained model a little; from scratch, everything has to learn: leave it")
    unsmoothed = {
        "task = answer": run.task == "answer",
        "match.target = score": run.task == "match" and run.match.target == "score",
        "match.kind = bi": run.task == "match" and run.match.kind == "bi",
        "ner.crf": run.task == "ner" and run.ner.crf,
    }
    if run.train.smoothing and (why := next((name for name, true in unsmoothed.items() if true), None)):
        raise ValueError(f"train.smoothing is of classes, and {why} learns something else; leave one out")


def known(body: Encoder | Decoder | EncoderDecoder, run: RunFile) -> Iterator[torch.nn.Parameter]:
    """Parameters that came with the body. Between two joined models, the cross-attention is new."""
    for name, parameter in body.named_parameters():
        if not isinstance(run.from_, dict) or ".cross" not in name:
            yield parameter


def longest_of(loaded: Loaded, kind: type[Task], run: RunFile) -> int:
    """The longest input of a body that must be of the kind that the task wants."""
    body = loaded.model.body
    if not isinstance(body, BODIES[kind.body]):
        raise ValueError(f"{run.from_}: a {loaded.architecture} {WANTED[kind.body].format(task=run.task)}")
    return longest(body)


def data_of(run: RunFile) -> tuple[dict[str, Reading], dict[str, Side]]:
    """The files of a run and their sides; without a validation file, a tenth of train is held out by hash."""
    assert run.data is not None
    settings: dict[str, Any] = {"format": run.data.format, "encoding": run.data.encoding}
    if run.task == "ner" and run.ner is not None and run.ner.scheme != "auto":
        settings["scheme"] = run.ner.scheme
    columns = {role: column for role, column in run.data.columns.items() if role != column or run.task != "ner"}
    if run.task == "match" and run.match.kind == "bi" and run.match.target == "classes":
        first = next(iter(records(run.data.train, **settings)), None)
        if columns["label"] == "label" and first is not None and "label" not in first.values:
            del columns["label"]  # pairs without labels: all of them belong together
    names = {"train": run.data.train, "valid": run.data.valid, "test": run.data.test}
    readings = {
        side: records(files, columns=_columns(run, columns), task=str(run.task), **settings)
        for side, files in names.items()
        if files
    }
    sides = {side: Side(reading, "all") for side, reading in readings.items()}
    if "valid" not in sides:
        sides["train"], sides["valid"] = Side(readings["train"], "train"), Side(readings["train"], "valid")
    if run.data.limit is not None:
        whole = run.task == "ner" and run.ner.context > 0
        sides["train"] = Side(readings["train"], sides["train"].side, run.data.limit, documents=whole)
    return readings, sides


def _columns(run: RunFile, columns: dict[str, str]) -> dict[str, str] | None:
    """SQuAD files and CoNLL files know their columns."""
    return (
        None if run.task in ("answer", "ner") and all(role == column for role, column in columns.items()) else columns
    )


def options_of(run: RunFile, train: Side) -> dict[str, Any]:
    """The task's own section of the run file, with what the data decides."""
    section = getattr(run, str(run.task), None)
    if TASKS[str(run.task)].readout.over == "vocabulary" and section is not None:
        written = {"decode": run.decode.model_dump(exclude_none=True)} if "decode" in run.parts else {}
        return {**section.model_dump(), **written}
    options = (
        {} if section is None else {k: v for k, v in section.model_dump().items() if v not in (None, False, 0, "none")}
    )
    options.pop("scheme", None)
    if options.pop("target", None) == "score":
        numbers = [float(values["label"]) for values in train()]
        options["score"] = (min(numbers), max(numbers))
    if options.get("kind") != "bi":
        options = {name: value for name, value in options.items() if name not in ("kind", "positive", "temperature")}
    elif "score" not in options and "label" in next(train(), {}):
        seen = (label for values in train() for label in named(values["label"]))
        options["positive"] = positive_of(seen, options.get("positive"))
    if options.get("class_weights") == "balanced":
        counts = Counter(label for values in train() for label in named(values["label"]))
        options["class_weights"] = {k: counts.total() / (len(counts) * n) for k, n in counts.items()}
    if "max_answer_tokens" in options:
        options["longest"] = options.pop("max_answer_tokens")
    return options


def fitted(loaded: Loaded, task: Task) -> Loaded:
    """The body with the task's readout on it: its family's, or our own."""
    names = task.labels if len(task.labels) == task.classes() else []
    family = FAMILIES.get(loaded.config.get("model_type", ""))
    if task.readout.over == "vocabulary":
        if not isinstance(loaded.model.readout, Vocabulary):
            called = (task.readout.architecture, task.readout.other)
            suffix = next((name for name in called if family is not None and name in family.readouts), None)
            if suffix is not None:
                loaded = with_readout(loaded, suffix)
            else:
                loaded.model = with_vocabulary(loaded.model.body, transform=task.body == "encoder")
                loaded.config = own_config(loaded.model)
    elif family is not None:
        loaded = with_readout(loaded, task.readout.architecture, names)
    else:
        body = loaded.model.body
        assert isinstance(body, Encoder)
        readout: torch.nn.Module = torch.nn.Identity()
        if task.readout.over != "none":
            readout = Classes(body.config.dim, task.classes(), task.readout.over, task.readout.hidden)
        loaded.model = Model(body, readout)
        loaded.config, loaded.labels = own_config(loaded.model), list(names)
    loaded.task, loaded.options = task.name, {"size": task.size, "overlap": task.overlap, **task.options}
    return loaded
