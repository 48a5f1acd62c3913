"""The complete run file: which sections go together, and defaults that depend on other keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, create_model, model_validator

from multihead.config.decode_sections import DecodeSection
from multihead.config.sections import (
    DataSection,
    ModelSection,
    TokenizerSection,
    TrainSection,
    WindowSection,
    check_name,
    expand_home,
)
from multihead.tasks.sections import Section, TaskSection, key
from multihead.tasks.spec import SPECS, TaskSpec, check_task_name

SCRATCH_LR = 5e-4
ONLY_PAIRS = {"tokenizer": ("shared",), "model": ("decoder_layers",)}  # keys for encoder-decoders only
BODY_NAMES = {"encoder": "an encoder", "decoder": "a decoder", "encoder_decoder": "an encoder-decoder"}


class BlockKeys(Section):
    """Keys of a [[tasks]] block outside of the tasks' sections."""

    name: Annotated[str, Field(pattern=r"^[\w-]+$")]
    task: Annotated[str, AfterValidator(check_task_name)]
    weight: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0  # passes over its data per epoch
    auxiliary: bool = False  # only trained on: neither evaluated nor saved
    data: DataSection


class RunKeys(Section):
    """Keys and sections of a run file that belong to no single task."""

    task: Annotated[str, AfterValidator(check_task_name)] = key("", "the task to train")
    from_: Annotated[str | dict[str, str] | None, BeforeValidator(lambda v: v or None), AfterValidator(check_name)] = (
        Field(
            default=None,
            alias="from",
            description="a directory (from here, or from this file's) or hub:owner/name; unset: from scratch",
            examples=["path/to/model"],
        )
    )
    out: Annotated[str, AfterValidator(expand_home)] = key("", "the run's directory; training into it again resumes")
    device: Literal["auto", "cpu", "cuda", "mps"] = key("auto", "auto, cpu, cuda or mps")
    data: DataSection = DataSection()
    tokenizer: TokenizerSection = TokenizerSection()
    model: ModelSection = ModelSection()
    window: WindowSection = WindowSection()
    train: TrainSection = TrainSection()
    decode: DecodeSection = DecodeSection()


# Each task has a section of its name. mypy cannot see fields that are created from a table; code reads them through
# `RunConfig.section` only.
if TYPE_CHECKING:
    BlockFields = BlockKeys
    RunFields = RunKeys
else:
    BlockFields = create_model(
        "BlockFields", __base__=BlockKeys, **{name: (spec.section | None, None) for name, spec in SPECS.items()}
    )
    RunFields = create_model(
        "RunFields", __base__=RunKeys, **{name: (spec.section, spec.section()) for name, spec in SPECS.items()}
    )


class TaskBlock(BlockFields):
    """One task of a multi-task run. It may contain the task's own section, instead of one for all such tasks."""

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, raw: Any) -> Any:
        return _with_columns(raw) if isinstance(raw, Mapping) else raw

    @property
    def own_section(self) -> str | None:
        """The name of the task's section, if the block contains it."""
        return None if getattr(self, self.task) is None else self.task

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        _check_data(self.task, self.data)
        if wrong := next((name for name in SPECS if name != self.task and getattr(self, name) is not None), None):
            raise ValueError(f"{wrong} belongs to task = {wrong!r}, not to {self.task!r}; remove it")
        return self


class RunConfig(RunFields):
    """A complete run file. Every section is present, with its defaults; `sections` names the relevant ones."""

    tasks: Annotated[tuple[TaskBlock, ...], Strict(False)] = ()

    @property
    def from_scratch(self) -> bool:
        return self.from_ is None

    @property
    def spec(self) -> TaskSpec:
        """The spec of the only task; in multi-task runs, each task has its own: `for_task`."""
        return SPECS[self.task]

    @property
    def section(self) -> TaskSection:
        """The options of the only task."""
        section = getattr(self, self.task)
        assert isinstance(section, TaskSection)
        return section

    @property
    def specs(self) -> list[TaskSpec]:
        """The specs of all tasks, without duplicates."""
        return [SPECS[name] for name in dict.fromkeys([self.task, *(block.task for block in self.tasks)]) if name]

    def for_task(self, block: TaskBlock) -> RunConfig:
        """Return the run of one of the tasks, as if it were alone."""
        changed = {"task": block.task, "tasks": (), "data": block.data}
        return self.model_copy(
            update=changed | ({block.own_section: getattr(block, block.own_section)} if block.own_section else {})
        )

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections that this run uses, in their order in the file."""
        without = {name for name in SPECS if SPECS[name] not in self.specs}
        without |= set() if self.from_scratch else {"tokenizer", "model"}
        without |= set() if any(spec.generates_text for spec in self.specs) else {"decode"}
        without |= {"data"} if self.tasks else set()
        return tuple(name for name in SECTIONS if name not in without | {"tasks"})

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, raw: Any) -> Any:
        """Fill defaults that depend on other keys: columns, shape and `out` on the task, the learning rate on
        `from`."""
        if not isinstance(raw, Mapping):
            return raw
        filled = _with_columns(raw) if raw.get("task") else dict(raw)
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
    def _check_consistency(self) -> Self:
        if bool(self.task) == bool(self.tasks):
            fault = "tasks and task exclude each other; give one of them"
            raise ValueError(fault if self.task else f"task is missing; known: {', '.join(SPECS)}")
        for name in SECTIONS:
            if name in self.model_fields_set and name not in (*self.sections, "tasks"):
                raise ValueError(f"{name} {self._why_not(name)}")
        if isinstance(self.from_, dict) and set(self.from_) != {"encoder", "decoder"}:
            raise ValueError("from joins two models; write {encoder = …, decoder = …} with exactly these keys")
        if self.task:
            _check_data(self.task, self.data)
        paired = any(spec.body == "encoder_decoder" for spec in self.specs)
        for section, keys in {} if paired else ONLY_PAIRS.items():
            part = getattr(self, section)
            for name in keys:
                if getattr(part, name) != type(part).model_fields[name].default:
                    pairs = ", ".join(name for name, spec in SPECS.items() if spec.body == "encoder_decoder")
                    raise ValueError(f"{section}.{name} is for sequence-to-sequence tasks ({pairs}); remove it")
        if self.decode.alignment and not any(spec.has_source for spec in self.specs):
            sources = ", ".join(name for name, spec in SPECS.items() if spec.has_source)
            raise ValueError(f"decode.alignment is for tasks with a source ({sources}); remove it")
        names = [block.name for block in self.tasks]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"tasks has two blocks named {twice!r}; rename one")
        if self.tasks and all(block.auxiliary for block in self.tasks):
            raise ValueError("tasks are all auxiliary; set auxiliary = false for at least one")
        bodies = {BODY_NAMES[SPECS[block.task].body]: block for block in reversed(self.tasks)}
        if len(bodies) > 1:
            needs = (f"{block.name!r} ({block.task}) needs {body}" for body, block in reversed(bodies.items()))
            raise ValueError(f"tasks cannot share one body: {', '.join(needs)}")
        size, most = self.window.size or 0, self.model.max_length
        if self.from_scratch and size > most:
            raise ValueError(f"window.size is {size}; expected at most model.max_length = {most}")
        return self

    def _why_not(self, name: str) -> str:
        if name in SPECS:
            return f"belongs to task = {name!r}, not to {self.task or 'these tasks'!r}; remove it"
        if name == "decode":
            return "is for tasks that generate text; remove it"
        if name == "data":
            return "belongs to each of the [[tasks]]; move it to [tasks.data]"
        return "is for training from scratch, but `from` names a pretrained model; remove one of the two"


SECTIONS: dict[str, type[Section]] = {
    "data": DataSection,
    "tokenizer": TokenizerSection,
    "model": ModelSection,
    "window": WindowSection,
    "train": TrainSection,
    "decode": DecodeSection,
    **{name: spec.section for name, spec in SPECS.items()},
    "tasks": TaskBlock,
}


def _tables(blocks: Any) -> list[Mapping[str, Any]]:
    """Return the blocks that are tables; validation reports anything else."""
    items = blocks if isinstance(blocks, list | tuple) else ()
    dumped = [block.model_dump() if isinstance(block, TaskBlock) else block for block in items]
    return [block for block in dumped if isinstance(block, Mapping)]


def _defaults(tasks: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return sections with task-dependent defaults; in multi-task runs, those that all tasks agree on."""
    known = [SPECS.get(task) if isinstance(task, str) else None for task in tasks or [""]]
    first, *others = [{} if spec is None else spec.defaults for spec in known]
    return {name: dict(values) for name, values in first.items() if all(later.get(name) == values for later in others)}


def _instead(name: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's keys; a beam disables sampling, whatever the task's default."""
    drawn = {"sample": False} if name == "decode" and section.get("beam", 1) != 1 else {}
    return drawn | dict(section)


def _with_columns(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Add default column names: the task's column roles, unless the file names others."""
    task, data = raw.get("task"), raw.get("data", {})
    data = data.model_dump(exclude_unset=True) if isinstance(data, DataSection) else data
    if not isinstance(data, Mapping):
        return dict(raw)
    spec = SPECS.get(task) if isinstance(task, str) else None
    columns = {role: role for role in (() if spec is None else spec.columns)}
    return {**raw, "data": columns | {name: value for name, value in data.items() if value is not None}}


def _check_data(task: str, data: DataSection) -> None:
    columns = SPECS[task].columns
    if wrong := next((role for role in data.columns if role not in columns), None):
        raise ValueError(f"data.{wrong} is not a column of task = {task!r}; columns are: {', '.join(columns)}")
    if not data.train:
        raise ValueError("data.train is missing; set it to the training file")
    files = 1 if isinstance(data.train, str) else len(data.train) // (2 if data.format == "parallel" else 1)
    pairs = [files // 2] if data.format is None and "target" in columns else []  # parallel or not: detected later
    if data.weights is not None and len(data.weights) not in (files, *pairs):
        raise ValueError(f"data.weights has {len(data.weights)} numbers for {files} training files; give one for each")
