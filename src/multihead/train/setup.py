"""From a run file to everything that training needs: data, labels, tokenizer, task and model.

Of several tasks, each is set up as if it were alone, but for the body, which they share.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any

import torch

from multihead.build import Loaded, load, with_readout
from multihead.data.read import Reading, records
from multihead.machine.device import device_of
from multihead.models import Classes, Decoder, Encoder, EncoderDecoder, Model, Vocabulary
from multihead.models.families import FAMILIES, own_config
from multihead.run import RunFile
from multihead.tasks import TASKS, Task, Values
from multihead.tasks.bi import positive_of
from multihead.tasks.classify import named
from multihead.tasks.conversation import give_template
from multihead.tasks.ready import borders, longest
from multihead.tasks.translate import plain
from multihead.train.examples import Side
from multihead.train.frozen import limit
from multihead.train.scratch import scratch, with_vocabulary

BODIES = {"encoder": Encoder, "decoder": Decoder, "pair": EncoderDecoder}
WANTED = {
    "encoder": "writes; {task} wants a model that reads, such as BERT",
    "decoder": "is no language model; {task} wants one that only writes, such as GPT-2 or Llama",
    "pair": "has one side; {task} wants two, such as Marian, BART or T5, or from = {{encoder = …, decoder = …}}",
}


@dataclass(frozen=True, eq=False)
class Read:
    """What the data says of a task, before there is a model."""

    run: RunFile  # of this task alone
    sides: dict[str, Side]  # train, and, if there are such rows, valid and test
    readings: dict[str, Reading]
    options: dict[str, Any]
    kind: type[Task]
    labels: list[str]
    name: str = ""  # of several tasks; "" for the only one
    weight: float = 1.0
    auxiliary: bool = False


@dataclass(frozen=True, eq=False)
class Subject(Read):
    """One task of a run, before the first step; several have the same body."""

    loaded: Loaded = field(kw_only=True)
    task: Task = field(kw_only=True)

    def called(self, what: str) -> str:
        """What is one of several tasks', by its name: sst2/valid."""
        return f"{self.name}/{what}" if self.name else what


def set_up(run: RunFile) -> tuple[list[Subject], Model]:
    """Read what must be known of the data, build the tasks and the model: the only task's, or one with all readouts."""
    device = device_of(run.device)
    every = read_all(run)
    kind = every[0].kind
    torch.manual_seed(run.train.seed)
    texts = every[0].sides["train"] if len(every) == 1 else lambda: by_turns([one.sides["train"]() for one in every])
    talks = any(one.options.get("chat") for one in every)
    loaded = scratch(run, kind, texts, talks) if run.from_ is None else load(run.from_)
    subjects: list[Subject] = []
    for one in every:
        subjects.append(placed(one, loaded, [other.loaded.model for other in subjects]))
    refuse_unlike(subjects)
    old = {id(parameter) for parameter in known(loaded.model.body, run)}
    for subject in subjects:
        subject.task.adapt(subject.loaded.model)
    model = whole(subjects)
    limit(model, run.train.freeze, run.train.lora, old)
    model.to(device)
    for subject in subjects:
        subject.task.device = device
        refuse_unreadable(subject)
    return subjects, model


def read_all(run: RunFile) -> list[Read]:
    """Every task of a run with its data; what could not be trained on is refused."""
    if run.task:
        return [read_one(run)]
    return [read_one(run.alone(block), block.name, block.weight, block.auxiliary) for block in run.tasks]


def read_one(run: RunFile, name: str = "", weight: float = 1.0, auxiliary: bool = False) -> Read:
    refuse_useless(run)
    if not auxiliary:
        refuse_unscored(run)
    readings, sides = data_of(run, held_out=not auxiliary)
    renamed = {role: name for role, name in run.data.columns.items() if name != role and not name.isdecimal()}
    options = options_of(run, sides["train"]) | ({"columns": renamed} if renamed else {})
    if run.task == "generate":
        options |= {"chat": True} if talking(run, readings.values()) else {}
    if options.get("multi_label"):
        refuse_cells(readings["train"])
    kind = TASKS[str(run.task)].variant(options)
    labels = kind.learn(Side(readings["train"])(), **options)  # of all rows: those held out have labels too
    if labels and len(labels) < 2 and not options.get("score"):
        raise ValueError(f"{run.data.train}: every row has the label {labels[0]!r}; a classifier needs at least two")
    weights = options.get("class_weights")
    if weights and (odd := next((label for label in weights if label not in labels), None)):
        raise ValueError(f"classify.class_weights: {odd!r} is no label here; there are: {listed(labels)}")
    for side in ("valid", "test"):
        if side in sides:
            refuse_unusable(sides[side], kind, labels, options)
    return Read(run, sides, readings, options, kind, labels, name, weight, auxiliary)


def refuse_cells(train: Reading) -> None:
    """Several labels are a list, and a cell of a CSV file holds none: sport,politics would be a label of its own."""
    cells = next((file for file, format, _ in train.sources if format in ("csv", "tsv")), None)
    if cells is not None:
        wanted = 'give JSONL or Parquet, "label": ["sport", "politics"]'
        raise ValueError(f"{cells}: classify.multi_label reads lists of labels, cells of tables are none; {wanted}")


def refuse_unusable(side: Side, kind: type[Task], labels: Sequence[str], options: dict[str, Any]) -> None:
    """Before training, not after: data to score on that has no row, or a label that nothing could say."""
    known, rows = set(labels), 0
    for values in side():
        rows += 1
        odd = next((label for label in kind.golden(values, **options) if label not in known), None)
        if odd is not None:
            place = f"{values['file']}:{values['line']}"
            raise ValueError(f"{place}: the label {odd!r} is not in the training data, which has: {listed(labels)}")
        if not labels or side.side == "valid":  # held out of train, whose labels are known
            break  # one row is enough to see that there are some
    if not rows:
        files = ", ".join(file for file, _, _ in side.reading.sources)
        why = "the tenth that is held out for validation has no row; name data.valid" if side.side == "valid" else ""
        raise ValueError(f"{files}: {why or 'there is no row to score on'}, or give more rows\n{side.reading}")


def refuse_unreadable(subject: Subject) -> None:
    """Before training too: rows to score on that could not be scored. Where there are labels, all were looked at."""
    scored = "score" in subject.options
    if (subject.labels and not scored) or subject.task.readout.over == "vocabulary":
        return
    for name in ("valid", "test"):
        for values in subject.sides[name]() if name in subject.sides else ():
            if scored:
                number(values)
            try:
                subject.task.encode(values)
            except ValueError as error:
                raise ValueError(f"{values['file']}:{values['line']}: {error}") from None


def listed(labels: Sequence[str]) -> str:
    return ", ".join(labels[:20]) + (f" … ({len(labels):,} in all)" if len(labels) > 20 else "")


def talking(run: RunFile, readings: Iterable[Reading]) -> bool:
    """Do the files hold conversations? All of them, or none."""
    kinds = {found["format"] == "chat": file for reading in readings for file, found in reading.found.items()}
    if len(kinds) > 1:
        raise ValueError(f"{kinds[True]} holds conversations, {kinds[False]} texts; make a task of each: [[tasks]]")
    if run.generate.turns != "assistant" and True not in kinds:
        raise ValueError("generate.turns is about conversations, and the data are texts; leave it out")
    return True in kinds


def placed(one: Read, loaded: Loaded, others: Sequence[Model]) -> Subject:
    """The task, with its readout on the body; a readout that another task has taken is copied."""
    run = one.run
    if loaded.tokenizer is None:
        raise ValueError(f"{run.from_}: this model has no tokenizer; {run.task} reads text")
    most = longest_of(loaded, one.kind, run)
    size = min(run.window.size or most, most)
    options = one.options
    if one.kind.body != "encoder":
        options = options | borders(loaded.model.body, loaded.tokenizer.target, loaded.generation)
    if options.get("chat") and loaded.tokenizer.template is None:
        give_template(loaded.tokenizer, options["start"], options["stop"][0])
    task = one.kind(loaded.tokenizer, one.labels, size, min(run.window.overlap, size // 2), **options)
    task.smoothing, task.agree = run.train.smoothing, run.train.agree
    mine = fitted(replace(loaded), task)
    if any(mine.model.readout is other.readout for other in others):
        tied = {id(parameter): parameter for parameter in mine.model.body.parameters()}
        mine.model = Model(mine.model.body, deepcopy(mine.model.readout, tied))
    return Subject(**{f.name: getattr(one, f.name) for f in fields(Read)}, loaded=mine, task=task)


def whole(subjects: Sequence[Subject]) -> Model:
    """All that learns, as one model: of several tasks, the body and every readout, called task-NAME."""
    models = [subject.loaded.model for subject in subjects]
    if len(models) == 1:
        return models[0]
    readouts = {f"task-{s.name}": model.readout for s, model in zip(subjects, models, strict=True)}
    return Model(models[0].body, torch.nn.ModuleDict(readouts))


def by_turns(several: Sequence[Iterator[Values]]) -> Iterator[Values]:
    """A row of each, and again: a tokenizer that reads only so much still sees all of them."""
    waiting = deque(several)
    while waiting:
        rows = waiting.popleft()
        for values in islice(rows, 1):
            yield values
            waiting.append(rows)


def refuse_useless(run: RunFile) -> None:
    """Keys that would change nothing, or nothing good, beside others."""
    if run.train.lora and run.from_ is None:
        raise ValueError("train.lora changes a trained model a little; from scratch, everything has to learn: leave it")
    if run.task == "classify" and run.classify.multi_label and run.classify.class_weights != "none":
        raise ValueError("classify.class_weights weighs one label a text, multi_label allows several; leave one out")
    unsmoothed = {
        "task = answer": run.task == "answer",
        "match.target = score": run.task == "match" and run.match.target == "score",
        "match.kind = bi": run.task == "match" and run.match.kind == "bi",
        "ner.crf": run.task == "ner" and run.ner.crf,
    }
    if run.train.smoothing and (why := next((name for name, true in unsmoothed.items() if true), None)):
        raise ValueError(f"train.smoothing is of classes, and {why} learns something else; leave one out")
    drawn = {f"task = {name}": run.task == name for name in ("mask", "denoise", "generate")}
    if run.train.agree and (why := next((name for name, true in (unsmoothed | drawn).items() if true), None)):
        raise ValueError(f"train.agree is for tagging, classes and translation, and this is {why}; leave one out")


def refuse_unscored(run: RunFile) -> None:
    """With nothing held out, there must be a test file, and nothing may wait for a validation score."""
    if run.data.hold_out:
        return
    if run.data.valid:
        raise ValueError("data.hold_out is for runs without a validation file; leave it out, or data.valid")
    if not run.data.test:
        raise ValueError("data.hold_out = false leaves nothing to score the model on; name data.test")
    if run.train.patience:
        raise ValueError("train.patience waits for a validation score, and data.hold_out = false; leave one out")


def refuse_unlike(subjects: Sequence[Subject]) -> None:
    """The best model is the one with the best mean; a loss, of which less is better, has no mean with other scores."""
    mains = {subject.name: subject.task.scorer(0).main for subject in subjects if not subject.auxiliary}
    if len({main == "loss" for main in mains.values()}) > 1:
        lost = next(name for name, main in mains.items() if main == "loss")
        told = ", ".join(f"{name} by {main}" for name, main in mains.items())
        raise ValueError(f"tasks are scored {told}: no mean says which model is best; set auxiliary = true for {lost}")


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


def data_of(run: RunFile, held_out: bool = True) -> tuple[dict[str, Reading], dict[str, Side]]:
    """The files of a run and their sides; without a validation file, a tenth of train is held out by hash."""
    assert run.data is not None
    settings: dict[str, Any] = {"format": run.data.format, "encoding": run.data.encoding}
    if run.task == "ner" and run.ner is not None and run.ner.scheme != "auto":
        settings["scheme"] = run.ner.scheme
    columns = run.data.columns
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
    whole = run.task == "ner" and run.ner.context > 0
    if "valid" not in sides and held_out and run.data.hold_out:
        sides |= {side: Side(readings["train"], side, documents=whole) for side in ("train", "valid")}
    if run.data.limit is not None:
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
    if run.task == "translate" and not run.translate.language and not run.translate.tokenize:
        section = run.translate.model_copy(update={"language": script_of(train)})
    if TASKS[str(run.task)].readout.over == "vocabulary" and section is not None:
        written = {"decode": run.decode.model_dump(exclude_none=True)} if "decode" in run.parts else {}
        return {**section.model_dump(), **written}
    given = {} if section is None else section.model_dump()
    options = {name: value for name, value in given.items() if value not in (None, False, 0, "none", "auto")}
    options.pop("scheme", None)
    if options.pop("target", None) == "score":
        numbers = [number(values) for values in train()]
        options["score"] = (min(numbers), max(numbers))
    if options.get("kind") != "bi":
        options = {name: value for name, value in options.items() if name not in ("kind", "temperature")}
    elif options.pop("pool", None) is not None:
        raise ValueError('match.pool is for kind = "cross"; a vector of its own is always the mean; leave it out')
    elif options.pop("symmetric", None) is not None:
        raise ValueError('match.symmetric is for kind = "cross"; vectors know no first and second; leave it out')
    elif "score" not in options and "label" in next(train(), {}):
        seen = (label for values in train() for label in named(values["label"]))
        options["positive"] = positive_of(seen, options.get("positive"))
    if options.get("class_weights") == "balanced":
        counts = Counter(label for values in train() for label in named(values["label"]))
        options["class_weights"] = {k: counts.total() / (len(counts) * n) for k, n in counts.items()}
    if "max_answer_tokens" in options:
        options["longest"] = options.pop("max_answer_tokens")
    return options


def number(values: Values) -> float:
    """The label of a row, where it is a score."""
    with suppress(ValueError, TypeError):
        if math.isfinite(score := float(values["label"])):
            return score
    raise ValueError(f"{values['file']}:{values['line']}: the score is {values['label']!r}, which is no number")


def script_of(train: Side) -> str:
    """zh, ja or ko where the targets are written so, without spaces between words that BLEU could split at; else ""."""
    said = "".join(plain(values["target"]) for values in islice(train(), 100))
    count = max(sum(not sign.isspace() for sign in said), 1)
    for language, signs in (("ja", "\u3040-\u30ff"), ("ko", "\uac00-\ud7a3"), ("zh", "\u4e00-\u9fff")):
        if len(re.findall(f"[{signs}]", said)) > count / (5 if language == "ja" else 2):
            return language
    return ""


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
    elif family is not None and task.options.get("pool") != "mean":
        loaded = with_readout(loaded, task.readout.architecture, names)
    else:
        body = loaded.model.body
        assert isinstance(body, Encoder)
        readout: torch.nn.Module = torch.nn.Identity()
        if task.readout.over != "none":
            over, hidden = task.readout.over, task.readout.hidden
            if over == "first" and task.options.get("pool") != "first":  # which means nothing yet in a new model
                over, hidden = "mean", None
            readout = Classes(body.config.dim, task.classes(), over, hidden)
        loaded.model = Model(body, readout)
        loaded.config, loaded.labels = own_config(loaded.model), list(names)
    loaded.tasks = ()
    loaded.task, loaded.options = task.name, {"size": task.size, "overlap": task.overlap, **task.options}
    return loaded
