"""The complete, commented run file that `multihead init` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from multihead.config.parse import from_task
from multihead.config.run_config import ONLY_PAIRS
from multihead.config.sections import DISTILLATION_KEYS, ROLES
from multihead.config.toml import format_toml
from multihead.tasks.sections import Section
from multihead.tasks.spec import SPECS, check_task_name

# Keys to review, in addition to keys of tasks that are `shown`; all other keys are commented out.
LOOK = {
    "task", "from", "out", "data.train", *(f"data.{role}" for role in ROLES), "tokenizer.kind", "tokenizer.vocab",
    "model.dim", "model.layers", "model.heads", "train.epochs", "train.batch_tokens", "train.lr", "decode.beam",
}  # fmt: skip
TITLES = {
    "tokenizer": "trained on the training data",
    "model": "its shape",
    "window": "inputs longer than the model are split into overlapping windows",
    "decode": "how text is generated",
}
WIDTH = 34  # column of the notes


def template(task: str, *, from_: str = "path/to/model", from_scratch: bool = False) -> str:
    """Return every key of a task with its default and a note; it is valid once its paths are."""
    spec = SPECS[check_task_name(task)]
    file, format = spec.example
    run = from_task(task, from_=None if from_scratch else from_, data={"train": file})
    examples = {"data.train": file, "data.format": format}
    examples |= {f"data.{name}": file.replace("train", name) for name in ("valid", "test")}
    lines = [
        f"# A run file for {task}. A line with # in front shows a default, or an example where the default is unset.",
        "# Use it: multihead train run.toml; change single keys: multihead train run.toml train.lr=3e-5",
        "# Multi-task: a block [[tasks]] for each task, with name, task, weight, [tasks.data].",
        "",
        *_lines("", run, examples),
    ]
    for part in run.sections:
        title = f"  # {TITLES[part]}" if part in TITLES else ""
        hidden = () if spec.body == "encoder_decoder" else ONLY_PAIRS.get(part, ())
        hidden = hidden if spec.soft_labels else (*hidden, *DISTILLATION_KEYS.get(part, ()))
        lines += ["", f"[{part}]{title}", *_lines(f"{part}.", getattr(run, part), examples, hidden)]
    return "\n".join(lines) + "\n"


def _lines(table: str, part: Section, examples: dict[str, str], hidden: Sequence[str] = ()) -> Iterator[str]:
    for name, field in type(part).model_fields.items():
        if name in hidden:
            continue
        value = getattr(part, name)
        unset = value is None or value == ""
        if field.description is None or (table == "data." and name in ROLES and unset):  # column of another task
            continue
        key = field.alias or name
        if unset or table + key in examples:
            value = examples.get(table + key, (field.examples or [None])[0])
        mark = "" if (table + key in LOOK or field.json_schema_extra) and not unset else "# "
        yield f"{mark}{key} = {format_toml(value)}".ljust(WIDTH) + f" # {field.description}"
