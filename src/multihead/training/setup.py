"""Training setup from a run file: tasks with their data, tokenizer and model.

In multi-task runs, each task is set up as if it were alone, except for the shared encoder.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from itertools import islice

import torch

from multihead.config import RunConfig
from multihead.inference import Pipeline
from multihead.inference.defaults import BODIES, max_input_length, text_borders
from multihead.machine.device import select_device
from multihead.models import ClassifierReadout, Decoder, Encoder, EncoderDecoder, LMReadout, TaskModel
from multihead.models.families import FAMILIES, native_config
from multihead.pretrained import as_encoder, load, with_readout
from multihead.tasks import Task, Values
from multihead.tasks.chat import add_default_template
from multihead.tasks.pair_scores import number
from multihead.text.coverage import unknown_share
from multihead.text.training import NoText
from multihead.training.distillation import TeacherEnsemble
from multihead.training.freezing import freeze_parameters
from multihead.training.from_scratch import create_model, texts_of, with_vocabulary
from multihead.training.task_data import TaskData, read_all

UNSPELT = 0.05  # share of unknown characters for a warning; curly quotes, missing in BERT's Chinese vocabulary, are 2 %
REQUIREMENTS = {
    "encoder": "takes images or audio; {task} needs a text encoder such as BERT",
    "decoder": "is not a causal language model; {task} needs one such as GPT-2 or Llama",
    "encoder_decoder": (
        "is not an encoder-decoder; {task} needs one such as Marian, BART or T5, or from = {{encoder = …, decoder = …}}"
    ),
}


@dataclass(frozen=True, eq=False)
class TaskSetup(TaskData):
    """One task of a run, before the first step; several tasks share one body."""

    loaded: Pipeline = field(kw_only=True)
    task: Task = field(kw_only=True)
    wrote: str = field(default="", kw_only=True)  # architecture of a causal model converted to an encoder
    teachers: TeacherEnsemble | None = field(default=None, kw_only=True)

    def qualified_name(self, what: str) -> str:
        """Return the name qualified by its task, in multi-task runs: sst2/valid."""
        return f"{self.name}/{what}" if self.name else what

    def unknown_token_warnings(self) -> list[str]:
        """Warn about splits with characters outside the vocabulary, by their first rows: all map to one unknown
        token."""
        reads = self.task.tokenizer
        columns = {"source": reads, "target": reads.target} if self.kind.gold == ("target",) else {"text": reads}
        fix = "name another model in from, or train from scratch with a new [tokenizer]"
        if self.run.from_ is None:
            fix = 'set tokenizer.kind = "bpe", or a larger tokenizer.vocab'
        warnings = []
        for name, side in self.sides.items():
            if side.side == "valid":  # part of train, which is reported
                continue
            for column, tokenizer in columns.items():
                names = None if column == "text" else (column,)
                share = unknown_share(tokenizer, (text for values in side() for text in texts_of(values, names)))
                if share > UNSPELT:
                    unknown = f"is not in the vocabulary and becomes {tokenizer.named['unk']}"
                    warnings.append(f"{name}: {share:.0%} of the {column} {unknown}; {fix}")
        return warnings


def set_up(run: RunConfig) -> tuple[list[TaskSetup], TaskModel]:
    """Read the data, build the tasks and the model: the single task's, or one with all readouts."""
    device = select_device(run.device)
    every = read_all(run)
    kind = every[0].kind
    torch.manual_seed(run.train.seed)
    texts = (
        every[0].sides["train"] if len(every) == 1 else lambda: interleave([data.sides["train"]() for data in every])
    )
    has_chat_template = any(data.options.get("chat") for data in every)
    try:
        pretrained = create_model(run, kind, texts, has_chat_template) if run.from_ is None else load(run.from_)
    except NoText:
        details = "\n".join(
            f"{data.run.data.train}: no usable row for training\n{data.readings['train']}" for data in every
        )
        raise ValueError(details) from None
    loaded = as_encoder(pretrained) if kind.body == "encoder" else pretrained
    wrote = pretrained.architecture if loaded is not pretrained else ""
    subjects: list[TaskSetup] = []
    for data in every:
        subjects.append(attach_task(data, loaded, [earlier.loaded.model for earlier in subjects], wrote))
    check_comparable_scores(subjects)
    old = {id(parameter) for parameter in pretrained_parameters(loaded.model.body, run)}
    for subject in subjects:
        subject.task.adapt(subject.loaded.model)
    model = joint_model(subjects)
    freeze_parameters(model, run.train.freeze, run.train.lora, old)
    model.to(device)
    for subject in subjects:
        subject.task.device = device
        check_readable(subject)
    return subjects, model


def check_readable(subject: TaskSetup) -> None:
    """Raise before training for evaluation rows that cannot be encoded. With labels, all rows were checked already."""
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


def attach_task(data: TaskData, loaded: Pipeline, others: Sequence[TaskModel], wrote: str) -> TaskSetup:
    """Build the task with its readout on the body; a readout that another task uses is copied."""
    run = data.run
    if loaded.tokenizer is None:
        raise ValueError(f"{run.from_}: this model has no tokenizer; {run.task} needs a text model")
    most = longest_input(loaded, data.kind, run)
    size = min(run.window.size or most, most)
    options = data.options
    if data.kind.body != "encoder":
        options = options | text_borders(
            loaded.model.body, loaded.tokenizer.target, loaded.generation, loaded.generation_file
        )
    if data.kind.readout.over == "none" and loaded.pooling and "pool" not in options:
        options = options | {"pool": loaded.pooling}  # keep the pooling of a pretrained bi-encoder
    if options.get("chat") and loaded.tokenizer.template is None:
        add_default_template(loaded.tokenizer, options["start"], options["stop"][0])
    task = data.kind(loaded.tokenizer, data.labels, size, min(run.window.overlap, size // 2), **options)
    task.smoothing, task.rdrop = run.train.smoothing, run.train.rdrop
    pipeline = attach_readout(replace(loaded), task)
    if any(pipeline.model.readout is used.readout for used in others):
        tied = {id(parameter): parameter for parameter in pipeline.model.body.parameters()}
        pipeline.model = TaskModel(pipeline.model.body, deepcopy(pipeline.model.readout, tied))
    teachers, task.distill_weight = (
        (TeacherEnsemble(run.data.teacher, task), run.data.distill_weight) if run.data.teacher else (None, 0.0)
    )
    shared_fields = {f.name: getattr(data, f.name) for f in fields(TaskData)}
    return TaskSetup(**shared_fields, loaded=pipeline, task=task, wrote=wrote, teachers=teachers)


def joint_model(subjects: Sequence[TaskSetup]) -> TaskModel:
    """Return all trainable parts as one model; multi-task: the body and every readout, named task-NAME."""
    models = [subject.loaded.model for subject in subjects]
    if len(models) == 1:
        return models[0]
    readouts = {f"task-{s.name}": model.readout for s, model in zip(subjects, models, strict=True)}
    return TaskModel(models[0].body, torch.nn.ModuleDict(readouts))


def interleave(several: Sequence[Iterator[Values]]) -> Iterator[Values]:
    """Yield rows of all iterators in turn, so that a tokenizer with a size limit sees all tasks."""
    waiting = deque(several)
    while waiting:
        rows = waiting.popleft()
        for values in islice(rows, 1):
            yield values
            waiting.append(rows)


def check_comparable_scores(subjects: Sequence[TaskSetup]) -> None:
    """Raise if the main scores have no mean: the best model has the best mean, and a loss has none with other
    scores."""
    mains = {subject.name: subject.task.scorer(0).main for subject in subjects if not subject.auxiliary}
    if len({main == "loss" for main in mains.values()}) > 1:
        lost = next(name for name, main in mains.items() if main == "loss")
        criteria = ", ".join(f"{name} by {main}" for name, main in mains.items())
        raise ValueError(f"tasks are scored {criteria}: their mean is undefined; set auxiliary = true for {lost}")


def pretrained_parameters(body: Encoder | Decoder | EncoderDecoder, run: RunConfig) -> Iterator[torch.nn.Parameter]:
    """Yield pretrained parameters. Between two joined models, the cross-attention is new."""
    for name, parameter in body.named_parameters():
        if not isinstance(run.from_, dict) or ".cross" not in name:
            yield parameter


def longest_input(loaded: Pipeline, kind: type[Task], run: RunConfig) -> int:
    """Return the maximum input length of a body, after checking that it is the kind that the task needs."""
    body = loaded.model.body
    if not isinstance(body, BODIES[kind.body]):
        raise ValueError(f"{run.from_}: a {loaded.architecture} {REQUIREMENTS[kind.body].format(task=run.task)}")
    return max_input_length(body)


def attach_readout(loaded: Pipeline, task: Task) -> Pipeline:
    """Attach the task's readout to the body: its family's, or a native one."""
    names = task.labels if len(task.labels) == task.classes() else []
    family = FAMILIES.get(loaded.config.get("model_type", ""))
    # With 77 intents learned from 1,000 rows with MiniLM, whose embeddings are means, mean pooling scores 0.526 and the
    # first token 0.326 (three seeds). Pairs gain nothing: the embeddings were trained on single texts.
    vectors = loaded.pooling if len(task.inputs) == 1 else ""
    pool = (task.options.get("pool") or vectors) if task.readout.over == "first" else ""
    if task.readout.over == "vocabulary":
        if not isinstance(loaded.model.readout, LMReadout):
            called = (task.readout.architecture, task.readout.other)
            suffix = next((name for name in called if family is not None and name in family.readouts), None)
            if suffix is not None:
                loaded = with_readout(loaded, suffix)
            else:
                loaded.model = with_vocabulary(loaded.model.body, transform=task.body == "encoder")
                loaded.config = native_config(loaded.model)
    elif family is not None and pool != "mean":
        loaded = with_readout(loaded, task.readout.architecture, names)
    else:
        body = loaded.model.body
        assert isinstance(body, Encoder)
        readout: torch.nn.Module = torch.nn.Identity()
        if task.readout.over != "none":
            over, hidden = task.readout.over, task.readout.hidden
            if over == "first" and pool != "first":  # untrained in a new model
                over, hidden = "mean", None
            readout = ClassifierReadout(body.config.dim, task.classes(), over, hidden)
        loaded.model = TaskModel(body, readout)
        loaded.labels = list(names)
        # The body keeps its family, also as the shared encoder of several tasks.
        native = native_config(loaded.model)
        loaded.config = native if family is None else {**loaded.config, "architectures": native["architectures"]}
    loaded.tasks = ()
    loaded.task, loaded.options = task.name, {"size": task.size, "overlap": task.overlap, **task.options}
    return loaded
