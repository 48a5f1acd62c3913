"""A whole run file: which sections go together, and the defaults that depend on other keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

from multihead.run.keys import (
    COLUMNS,
    Answer,
    Classify,
    Data,
    Match,
    Model,
    Ner,
    Section,
    Tokenizer,
    Train,
    Window,
    check_name,
    expand_home,
    key,
)
from multihead.run.writing import Decode, Denoise, Generate, Mask, Summarize, Translate

WRITERS = ("translate", "summarize", "generate", "denoise")  # tasks that write text, and so have [decode]
PAIRS = ("translate", "summarize", "denoise")  # of these, the ones with an encoder and a decoder
SOURCES = ("translate", "summarize")  # of these, the ones that write another text than they read
SCRATCH_LR = 5e-4
# Where a task's defaults differ. A model from scratch has a shape that learns well: mBART's for pairs, far faster than
# Marian's (norm after, sinusoidal); for all others rotary positions and the norm first, which is Llama's shape for
# generate, and for encoders far faster than BERT's (learned positions, norm after).
PAIR: dict[str, dict[str, Any]] = {"model": {"positions": "learned"}}
DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "translate": {**PAIR, "train": {"smoothing": 0.1}},
    "summarize": {**PAIR, "train": {"smoothing": 0.1}},
    "denoise": PAIR,
    "generate": {"decode": {"beam": 1, "sample": True, "temperature": 0.8, "top_p": 0.95}},
}
ONLY_PAIRS = {"tokenizer": ("shared",), "model": ("decoder_layers",)}  # keys that speak of two sides


def known(task: str) -> str:
    """The name, if there is such a task."""
    if task in COLUMNS:
        return task
    near = get_close_matches(task.lower(), COLUMNS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(COLUMNS)}"
    raise ValueError(f"task is {task!r}; {hint}")


class Block(Section):
    """One of several tasks on one trunk. A task's own section may stand here, instead of one for all such tasks."""

    name: Annotated[str, Field(pattern=r"^[\w-]+$")]
    task: Annotated[str, AfterValidator(known)]
    weight: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0  # how often an epoch goes through its data
    auxiliary: bool = False  # only trained on: neither scored while training nor kept
    data: Data
    ner: Ner | None = None
    classify: Classify | None = None
    match: Match | None = None
    answer: Answer | None = None
    translate: Translate | None = None
    summarize: Summarize | None = None
    generate: Generate | None = None
    mask: Mask | None = None
    denoise: Denoise | None = None

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, given: Any) -> Any:
        return _with_columns(given) if isinstance(given, Mapping) else given

    @property
    def own(self) -> str | None:
        """The task's section, if it stands here."""
        return None if getattr(self, self.task) is None else self.task

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        _check_data(self.task, self.data)
        if wrong := next((name for name in COLUMNS if name != self.task and getattr(self, name) is not None), None):
            raise ValueError(f"{wrong} is a section of task = {wrong!r}, not of {self.task!r}; remove it")
        return self


class RunFile(Section):
    """A whole run file. Every section is there, with its defaults; `parts` names the ones that mean something."""

    task: Annotated[str, AfterValidator(known)] = key("", "what is learnt")
    from_: Annotated[str | dict[str, str] | None, BeforeValidator(lambda v: v or None), AfterValidator(check_name)] = (
        Field(
            default=None,
            alias="from",
            description="a directory (from here, or from this file's) or hub:owner/name; unset: from scratch",
            examples=["path/to/model"],
        )
    )
    out: Annotated[str, AfterValidator(expand_home)] = key(
        "", "the run's directory; train again on the same one goes on where it stopped"
    )
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
    translate: Translate = Translate()
    summarize: Summarize = Summarize()
    generate: Generate = Generate()
    mask: Mask = Mask()
    denoise: Denoise = Denoise()
    tasks: Annotated[tuple[Block, ...], Strict(False)] = ()

    @property
    def scratch(self) -> bool:
        return self.from_ is None

    def alone(self, block: Block) -> RunFile:
        """The run of one of the tasks, as if there were no other."""
        changed = {"task": block.task, "tasks": (), "data": block.data}
        return self.model_copy(update=changed | ({block.own: getattr(block, block.own)} if block.own else {}))

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
        """Defaults that depend on other keys: columns, shape and `out` on the task, the learning rate on `from`."""
        if not isinstance(given, Mapping):
            return given
        filled = _with_columns(given) if given.get("task") else dict(given)
        task, scratch = filled.get("task"), not (filled.get("from") or filled.get("from_"))
        defaults = _defaults([task] if task else [block.get("task") for block in _tables(filled.get("tasks"))])
        if scratch:
            defaults["train"] = {"lr": SCRATCH_LR, **defaults.get("train", {})}
        else:
            defaults.pop("model", None)
        for name, values in defaults.items():
            section = filled.get(name, {})
            section = section.model_dump(exclude_unset=True) if isinstance(section, Section) else section
            if isinstance(section, Mapping):
                filled[name] = values | _instead(name, section)
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
        for section, keys in ONLY_PAIRS.items():
            part = getattr(self, section)
            for name in keys:
                tasks = {self.task, *(block.task for block in self.tasks)}
                if not tasks & set(PAIRS) and getattr(part, name) != type(part).model_fields[name].default:
                    raise ValueError(f"{section}.{name} is for tasks with two sides ({', '.join(PAIRS)}); remove it")
        if self.decode.alignment and not {self.task, *(block.task for block in self.tasks)} & set(SOURCES):
            raise ValueError(f"decode.alignment is for tasks with a source ({', '.join(SOURCES)}); remove it")
        names = [block.name for block in self.tasks]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"tasks has two blocks named {twice!r}; rename one")
        if self.tasks and all(block.auxiliary for block in self.tasks):
            raise ValueError("tasks has auxiliary ones only; one must be what the model is for")
        trunks = {_trunk(block.task): block for block in reversed(self.tasks)}
        if len(trunks) > 1:
            told = (f"{block.name!r} ({block.task}) wants {trunk}" for trunk, block in reversed(trunks.items()))
            raise ValueError(f"tasks cannot share one trunk: {', '.join(told)}")
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
    "translate": Translate,
    "summarize": Summarize,
    "generate": Generate,
    "mask": Mask,
    "denoise": Denoise,
    "tasks": Block,
}


def _trunk(task: str) -> str:
    """What a task sits on."""
    return "an encoder with a decoder" if task in PAIRS else "a decoder" if task in WRITERS else "an encoder"


def _tables(blocks: Any) -> list[Mapping[str, Any]]:
    """The blocks that are tables; what else is there is told by the validation."""
    given = blocks if isinstance(blocks, list | tuple) else ()
    dumped = [block.model_dump() if isinstance(block, Block) else block for block in given]
    return [block for block in dumped if isinstance(block, Mapping)]


def _defaults(tasks: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Sections whose defaults differ; of several tasks, those in which all of them agree."""
    first, *others = [DEFAULTS.get(task, {}) if isinstance(task, str) else {} for task in tasks or [""]]
    return {name: values for name, values in first.items() if all(other.get(name) == values for other in others)}


def _instead(name: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """What a person gave; a beam means that nothing is drawn, whatever the task would do."""
    drawn = {"sample": False} if name == "decode" and section.get("beam", 1) != 1 else {}
    return drawn | dict(section)


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
    files = 1 if isinstance(data.train, str) else len(data.train) // (2 if data.format == "parallel" else 1)
    pairs = [files // 2] if data.format is None and "target" in COLUMNS[task] else []  # parallel or not: seen later
    if data.weights is not None and len(data.weights) not in (files, *pairs):
        raise ValueError(f"data.weights has {len(data.weights)} numbers for {files} training files; give one for each")
