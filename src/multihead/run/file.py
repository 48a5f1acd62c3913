"""A whole run file: which sections go together, and the defaults that depend on other keys."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

from multihead.run.keys import (
    COLUMNS,
    Answer,
    Classify,
    Data,
    Decode,
    Match,
    Model,
    Ner,
    Section,
    Tokenizer,
    Train,
    Window,
    key,
)

WRITERS: tuple[str, ...] = ()  # tasks that write text, and so have [decode]
SCRATCH_LR = 5e-4


def known(task: str) -> str:
    """The name, if there is such a task."""
    if task in COLUMNS:
        return task
    near = get_close_matches(task.lower(), COLUMNS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(COLUMNS)}"
    raise ValueError(f"task is {task!r}; {hint}")


class Block(Section):
    """One of several tasks on one trunk."""

    name: Annotated[str, Field(pattern=r"^[\w-]+$")]
    task: Annotated[str, AfterValidator(known)]
    weight: Annotated[float, Field(gt=0)] = 1.0
    data: Data

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, given: Any) -> Any:
        return _with_columns(given) if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        _check_data(self.task, self.data)
        return self


class RunFile(Section):
    """A whole run file. Every section is there, with its defaults; `parts` names the ones that mean something."""

    task: Annotated[str, AfterValidator(known)] = key("", "what is learnt")
    from_: Annotated[str | dict[str, str] | None, BeforeValidator(lambda v: v or None)] = Field(
        default=None,
        alias="from",
        description="a directory or hub:owner/name; without this line: from scratch",
        examples=["path/to/model"],
    )
    out: str = key("", "the run's directory; train again on the same one goes on where it stopped")
    device: Literal["auto", "cpu", "cuda", "mps"] = key("auto", "auto, cpu, cuda or mps")
    data: Data = Data()
    tokenizer: Tokenizer = Tokenizer()
    model: Model = Model()
    window: Window = Window()
    train: Train = Train()
    decode: Decode = Decode()
    ner: Ner = Ner()
    classify: Classify = Classify()
    match: Match = Match()
    answer: Answer = Answer()
    tasks: Annotated[tuple[Block, ...], Strict(False)] = ()

    @property
    def scratch(self) -> bool:
        return self.from_ is None

    @property
    def parts(self) -> tuple[str, ...]:
        """The sections that this run uses, in their order in the file."""
        tasks = {self.task, *(block.task for block in self.tasks)}
        without = {name for name in COLUMNS if name not in tasks}
        without |= set() if self.scratch else {"tokenizer", "model"}
        without |= set() if tasks & set(WRITERS) else {"decode"}
        without |= {"data"} if self.tasks else set()
        return tuple(name for name in SECTIONS if name not in without | {"tasks"})

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, given: Any) -> Any:
        """Defaults that depend on other keys: columns and `out` on the task, the learning rate on `from`."""
        if not isinstance(given, Mapping):
            return given
        filled = _with_columns(given) if given.get("task") else dict(given)
        train = filled.get("train", {})
        train = train.model_dump(exclude_unset=True) if isinstance(train, Train) else train
        if isinstance(train, Mapping) and not (filled.get("from") or filled.get("from_")):
            filled["train"] = {"lr": SCRATCH_LR} | dict(train)
        if not filled.get("out") and isinstance(filled.get("task", ""), str):
            filled["out"] = f"runs/{filled.get('task') or 'several'}"
        return filled

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if bool(self.task) == bool(self.tasks):
            fault = "tasks stands instead of task; give one of them"
            raise ValueError(fault if self.task else f"task is missing; known: {', '.join(COLUMNS)}")
        for name in SECTIONS:
            if name in self.model_fields_set and name not in (*self.parts, "tasks"):
                raise ValueError(f"{name} {self._why_not(name)}")
        if isinstance(self.from_, dict) and set(self.from_) != {"encoder", "decoder"}:
            raise ValueError("from joins two models: {encoder = …, decoder = …}, both and nothing else")
        if self.task:
            _check_data(self.task, self.data)
        names = [block.name for block in self.tasks]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"tasks has two blocks named {twice!r}; rename one")
        size, most = self.window.size or 0, self.model.max_length
        if self.scratch and size > most:
            raise ValueError(f"window.size is {size}; at most model.max_length = {most} is wanted")
        return self

    def _why_not(self, name: str) -> str:
        if name in COLUMNS:
            return f"is a section of task = {name!r}, not of {self.task or 'these tasks'!r}; remove it"
        if name == "decode":
            return "is for tasks that write text; remove it"
        if name == "data":
            return "belongs into each of the [[tasks]], as [tasks.data]"
        return "is for training from scratch, and `from` brings its own; remove one of the two"


SECTIONS: dict[str, type[Section]] = {
    "data": Data,
    "tokenizer": Tokenizer,
    "model": Model,
    "window": Window,
    "train": Train,
    "decode": Decode,
    "ner": Ner,
    "classify": Classify,
    "match": Match,
    "answer": Answer,
    "tasks": Block,
}


def _with_columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the task are called by their roles unless the file says otherwise."""
    task, data = given.get("task"), given.get("data", {})
    data = data.model_dump(exclude_unset=True) if isinstance(data, Data) else data
    if not isinstance(data, Mapping):
        return dict(given)
    columns = {role: role for role in (COLUMNS.get(task, ()) if isinstance(task, str) else ())}
    return {**given, "data": columns | {name: value for name, value in data.items() if value is not None}}


def _check_data(task: str, data: Data) -> None:
    if wrong := next((role for role in data.columns if role not in COLUMNS[task]), None):
        raise ValueError(f"data.{wrong} is no column of task = {task!r}, which has: {', '.join(COLUMNS[task])}")
    if not data.train:
        raise ValueError("data.train is missing; name the training file")
