"""From a run file to everything that training needs: the tasks on their data, tokenizer and model.

Of several tasks, each is set up as if it were alone, but for the body, which they share.
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

UNSPELT = 0.05  # of the characters, for a warning; BERT's Chinese vocabulary has no curly quotes, which are 2 %
WANTED = {
    "encoder": "sees pictures or sound; {task} wants a model that reads text, such as BERT",
    "decoder": "is no language model; {task} wants one that only writes, such as GPT-2 or Llama",
    "encoder_decoder": (
        "has one side; {task} wants two, such as Marian, BART or T5, or from = {{encoder = …, decoder = …}}"
    ),
}


@dataclass(frozen=True, eq=False)
class TaskSetup(TaskData):
    """One task of a run, before the first step; several have the same body."""

    loaded: Pipeline = field(kw_only=True)
    task: Task = field(kw_only=True)
    wrote: str = field(default="", kw_only=True)  # the architecture of a model that wrote, and reads now
    teachers: TeacherEnsemble | None = field(default=None, kw_only=True)

    def qualified_name(self, what: str) -> str:
        """What is one of several tasks', by its name: sst2/valid."""
        return f"{self.name}/{what}" if self.name else what

    def unknown_token_warnings(self) -> list[str]:
        """Sides that the vocabulary cannot spell, by their first rows: all such words are one to the model."""
        reads = self.task.tokenizer
        columns = {"source": reads, "target": reads.target} if self.kind.gold == ("target",) else {"text": reads}
        fix = "name another model in from, or train from scratch with a [tokenizer] of its own"
        if self.run.from_ is None:
            fix = 'set tokenizer.kind = "bpe", or a larger tokenizer.vocab'
        found = []
        for name, side in self.sides.items():
            if side.side == "valid":  # held out of train, which is told
                continue
            for column, tokenizer in columns.items():
                names = None if column == "text" else (column,)
                share = unknown_share(tokenizer, (text for values in side() for text in texts_of(values, names)))
                if share > UNSPELT:
                    unknown = f"is not in the vocabulary and read as {tokenizer.named['unk']}"
                    found.append(f"{name}: {share:.0%} of the {column} {unknown}; {fix}")
        return found


def set_up(run: RunConfig) -> tuple[list[TaskSetup], TaskModel]:
    """Read what must be known of the data, build the tasks and the model: the only task's, or one with all readouts."""
    device = select_device(run.device)
    every = read_all(run)
    kind = every[0].kind
    torch.manual_seed(run.train.seed)
    texts = every[0].sides["train"] if len(every) == 1 else lambda: interleave([one.sides["train"]() for one in every])
    talks = any(one.options.get("chat") for one in every)
    try:
        given = create_model(run, kind, texts, talks) if run.from_ is None else load(run.from_)
    except NoText:
        told = "\n".join(f"{one.run.data.train}: no row is left to train on\n{one.readings['train']}" for one in every)
        raise ValueError(told) from None
    loaded = as_encoder(given) if kind.body == "encoder" else given
    wrote = given.architecture if loaded is not given else ""
    subjects: list[TaskSetup] = []
    for one in every:
        subjects.append(attach_task(one, loaded, [other.loaded.model for other in subjects], wrote))
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


def attach_task(one: TaskData, loaded: Pipeline, others: Sequence[TaskModel], wrote: str) -> TaskSetup:
    """The task, with its readout on the body; a readout that another task has taken is copied."""
    run = one.run
    if loaded.tokenizer is None:
        raise ValueError(f"{run.from_}: this model has no tokenizer; {run.task} reads text")
    most = longest_input(loaded, one.kind, run)
    size = min(run.window.size or most, most)
    options = one.options
    if one.kind.body != "encoder":
        options = options | text_borders(
            loaded.model.body, loaded.tokenizer.target, loaded.generation, loaded.generation_file
        )
    if one.kind.readout.over == "none" and loaded.pooling and "pool" not in options:
        options = options | {"pool": loaded.pooling}  # vectors of a bi-encoder stay as they were
    if options.get("chat") and loaded.tokenizer.template is None:
        add_default_template(loaded.tokenizer, options["start"], options["stop"][0])
    task = one.kind(loaded.tokenizer, one.labels, size, min(run.window.overlap, size // 2), **options)
    task.smoothing, task.rdrop = run.train.smoothing, run.train.rdrop
    mine = attach_readout(replace(loaded), task)
    if any(mine.model.readout is other.readout for other in others):
        tied = {id(parameter): parameter for parameter in mine.model.body.parameters()}
        mine.model = TaskModel(mine.model.body, deepcopy(mine.model.readout, tied))
    teachers, task.distill_weight = (
        (TeacherEnsemble(run.data.teacher, task), run.data.distill_weight) if run.data.teacher else (None, 0.0)
    )
    mine_too = {f.name: getattr(one, f.name) for f in fields(TaskData)}
    return TaskSetup(**mine_too, loaded=mine, task=task, wrote=wrote, teachers=teachers)


def joint_model(subjects: Sequence[TaskSetup]) -> TaskModel:
    """All that learns, as one model: of several tasks, the body and every readout, called task-NAME."""
    models = [subject.loaded.model for subject in subjects]
    if len(models) == 1:
        return models[0]
    readouts = {f"task-{s.name}": model.readout for s, model in zip(subjects, models, strict=True)}
    return TaskModel(models[0].body, torch.nn.ModuleDict(readouts))


def interleave(several: Sequence[Iterator[Values]]) -> Iterator[Values]:
    """A row of each, and again: a tokenizer that reads only so much still sees all of them."""
    waiting = deque(several)
    while waiting:
        rows = waiting.popleft()
        for values in islice(rows, 1):
            yield values
            waiting.append(rows)


def check_comparable_scores(subjects: Sequence[TaskSetup]) -> None:
    """The best model is the one with the best mean; a loss, of which less is better, has no mean with other scores."""
    mains = {subject.name: subject.task.scorer(0).main for subject in subjects if not subject.auxiliary}
    if len({main == "loss" for main in mains.values()}) > 1:
        lost = next(name for name, main in mains.items() if main == "loss")
        told = ", ".join(f"{name} by {main}" for name, main in mains.items())
        raise ValueError(f"tasks are scored {told}: no mean says which model is best; set auxiliary = true for {lost}")


def pretrained_parameters(body: Encoder | Decoder | EncoderDecoder, run: RunConfig) -> Iterator[torch.nn.Parameter]:
    """Parameters that came with the body. Between two joined models, the cross-attention is new."""
    for name, parameter in body.named_parameters():
        if not isinstance(run.from_, dict) or ".cross" not in name:
            yield parameter


def longest_input(loaded: Pipeline, kind: type[Task], run: RunConfig) -> int:
    """The longest input of a body that must be of the kind that the task wants."""
    body = loaded.model.body
    if not isinstance(body, BODIES[kind.body]):
        raise ValueError(f"{run.from_}: a {loaded.architecture} {WANTED[kind.body].format(task=run.task)}")
    return max_input_length(body)


def attach_readout(loaded: Pipeline, task: Task) -> Pipeline:
    """The body with the task's readout on it: its family's, or our own."""
    names = task.labels if len(task.labels) == task.classes() else []
    family = FAMILIES.get(loaded.config.get("model_type", ""))
    # Of 77 intents learned from 1,000 rows with MiniLM, whose vectors are means, the mean of the tokens finds 0.526 and
    # the first token 0.326 (three seeds). Pairs gain nothing: vectors were made of one text, not of two.
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
            if over == "first" and pool != "first":  # which means nothing yet in a new model
                over, hidden = "mean", None
            readout = ClassifierReadout(body.config.dim, task.classes(), over, hidden)
        loaded.model = TaskModel(body, readout)
        loaded.labels = list(names)
        # The body stays its family's, as the trunk of several tasks too.
        own = native_config(loaded.model)
        loaded.config = own if family is None else {**loaded.config, "architectures": own["architectures"]}
    loaded.tasks = ()
    loaded.task, loaded.options = task.name, {"size": task.size, "overlap": task.overlap, **task.options}
    return loaded
